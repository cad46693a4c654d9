"""`agentless run`: run a command on GPUs in the current folder, and bring back what it changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import wraps
from typing import Any

import typer

from agentless.cli.client import client
from agentless.cli.command import command_of
from agentless.cli.submit.submit import Submitting, show, submit, targets_of
from agentless.client.client import Client
from agentless.client.files.span_files import read_lines
from agentless.errors import UsageError
from agentless.paths import current_dir
from agentless.rules.submit.options import OPTIONS, Options
from agentless.rules.submit.run import in_folder, needs_nothing
from agentless.rules.submit.task_request import Outside, task_request


def add_to(app: typer.Typer) -> None:
    app.command("run", cls=_Running)(run)


class _Running(Submitting):
    """As `submit`, but it always waits."""

    common = Submitting.common - {"wait", "follow"}


@wraps(submit, assigned=("__annotations__",))
def run(context: typer.Context, *, dry_run: bool, as_json: bool, **given: Any) -> int:
    """Run a command on GPUs as if they were on your machine.

    Uploads the current folder without the files that .gitignore excludes, shows the output, copies new and changed
    files back, and returns the exit code. Without a request, the command gets one GPU if the cluster has any.

    agentless run -- python train.py
    agentless run --gpus 2 -- torchrun --nproc-per-node 2 train.py
    """
    options: Options = {name: value for name, value in given.items() if name in OPTIONS}  # type: ignore[assignment]
    targets = targets_of(context, given["targets"], given["more_targets"])
    if not command_of(context):
        raise UsageError("No command. Write it after --, such as: agentless run -- python train.py")
    served = client(context)
    if needs_nothing(options, targets):
        options["gpus"] = int(has_gpus(served, given["node"]))
    folder = current_dir()
    asked = task_request(command_of(context), targets, options, Outside(time.time(), os.environ, read_lines, folder))
    asked = in_folder(asked, folder)
    follow = len(asked.sweep) * max(1, len(targets)) == 1
    return show(context, served, asked, wait=True, follow=follow, as_json=as_json, dry_run=dry_run)


def has_gpus(served: Client, nodes: Iterable[str] | None) -> bool:
    """Whether the cluster, or one of these nodes, has any."""
    return any(not nodes or gpu["node"] in nodes for gpu in served.get("/v1/gpus"))
