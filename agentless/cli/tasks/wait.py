"""`agentless wait`: until tasks have ended."""

from __future__ import annotations

import typer

from agentless.cli.arguments import Json, TaskArguments
from agentless.cli.client import client
from agentless.cli.output import print_end, print_json
from agentless.cli.progress import progress
from agentless.cli.tasks.batch import BatchOption, chosen, show_results, wait_for_batch
from agentless.cli.tasks.exit_code import worst
from agentless.cli.tasks.interrupted import saying_what_stays
from agentless.client.client import Client


def add_to(app: typer.Typer) -> None:
    app.command()(wait)


def wait(context: typer.Context, tasks: TaskArguments = None, batch: BatchOption = None, as_json: Json = False) -> int:
    """Wait until tasks end, and return their exit code.

    With several tasks, the exit code is the first one that is not 0.
    """
    served = client(context)
    if batch is not None and not tasks:
        return _wait_for_batch(served, batch, as_json)
    ended = []
    for task in chosen(served, tasks, batch):
        with saying_what_stays(served, task), progress(f"Waiting for task {task}"):
            ended.append(served.wait(task))
        print_end(ended[-1])
    if as_json:
        print_json(ended)
    return worst(ended)


def _wait_for_batch(served: Client, batch: str, as_json: bool) -> int:
    ended = wait_for_batch(served, batch)
    if as_json:
        print_json(ended)
    else:
        show_results(ended)
    return worst(ended)
