"""What a notebook is made of, or which one is meant."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from agentless.cli.notebook.session import Notebook
from agentless.cli.output import say
from agentless.cli.submit.run import has_gpus
from agentless.cli.submit.submit import post
from agentless.client.client import Client
from agentless.client.files.span_files import read_lines
from agentless.client.http import RequestFailed
from agentless.client.notebook import LABEL, PORT, command, find
from agentless.client.ssh.forward import Listener, listen
from agentless.errors import Refused, UsageError
from agentless.model.images.env import NULL
from agentless.model.tasks.port import Port
from agentless.model.tasks.task_id import first_try
from agentless.paths import current_dir
from agentless.rules.submit.options import Options
from agentless.rules.submit.run import in_folder, needs_nothing
from agentless.rules.submit.task_request import Outside, TaskRequest, task_request

_TARGET = re.compile(r"\d+x.*|[^/]*:.*")
_NEXT = 100
"""Ports after the usual one that are tried."""


def read(served: Client, words: Sequence[str]) -> tuple[list[str], str, str]:
    """Targets, the folder, and the name of what exists already; raises UsageError."""
    targets, folders, names = [], [], []
    for word in words:
        if not word:
            raise UsageError("a target, folder or name is empty; omit it, or check the variable it comes from")
        if word.startswith((".", "~")) or "/" in word:
            folders.append(os.path.expanduser(word))
        elif _TARGET.fullmatch(word):
            targets.append(word)
        elif find(served, word):
            names.append(word)
        elif os.path.isdir(word):
            folders.append(word)
        else:
            raise UsageError(
                f"{word!r} is no notebook, VPS or folder; to list notebooks, run: agentless notebook --list (for a "
                f"node: --node {word})"
            )
    if max(map(len, (targets, folders, names))) > 1:
        raise UsageError("a notebook has one target and one folder; omit the others")
    if names and (targets or folders):
        raise UsageError(f"{names[0]} exists already; omit {(targets + folders)[0]}")
    folder = os.path.realpath(os.path.join(current_dir(), *folders))
    if not os.path.isdir(folder):
        raise UsageError(f"{folder} is not a folder")
    return targets, folder, "".join(names)


def existing(served: Client, name: str) -> tuple[Notebook, list[Listener]]:
    """Connect with one that exists; raises Refused if it has ended."""
    task, is_vps = find(served, name) or ({}, False)
    if task["ended_at"] is not None:
        help_ = f"start it: agentless vps start {name}" if is_vps else "start a new one: agentless notebook"
        raise Refused(f"{name} is {task['state']}; {help_}")
    ports = [] if is_vps else [Port(**each) for each in task["ports"]]
    first = next((each for each in ports if each.port == PORT), Port(PORT, PORT))
    others = listen([each for each in ports if each != first], "--port")
    return Notebook(name, task["id"], is_vps), [_listen(first.local, is_fixed=False), *others]


def new(served: Client, targets: list[str], folder: str, options: Options) -> tuple[Notebook, list[Listener]]:
    """Submit one."""
    if needs_nothing(options, targets):
        options["gpus"] = int(has_gpus(served, options.get("node")))
    if options.get("container") == NULL:
        raise UsageError("a notebook needs a container; omit --container NULL")
    options["name"] = options.get("name") or _unused_name(served)
    words, variables = command()
    outside = Outside(time.time(), os.environ, read_lines, current_dir())
    asked = in_folder(task_request(words, targets, options, outside), folder)
    spec = asked.spec
    wanted = next((each for each in spec.ports if each.port == PORT), None)
    others = [each for each in spec.ports if each != wanted]
    listeners = [_listen(wanted.local if wanted else PORT, is_fixed=wanted is not None), *listen(others, "--port")]
    key, value = LABEL
    spec = replace(
        spec,
        env={**variables, **spec.env},
        labels={**spec.labels, key: value},
        ports=tuple(each.port for each in listeners),
    )
    task = _submit(served, replace(asked, spec=spec))
    return Notebook(spec.name or task["id"], first_try(task["id"]), is_vps=False), listeners


def _submit(served: Client, asked: TaskRequest) -> dict[str, Any]:
    [start] = post(served, asked, dry_run=False)
    task: dict[str, Any] | None = start["task"]
    if task is None or start["exit_code"]:
        raise RequestFailed(start["message"], start["exit_code"])
    if start["message"]:
        say(start["message"])
    return task


def _unused_name(served: Client) -> str:
    """`notebook`, or `notebook-2` while there is one."""
    used = {each["name"] for path in ("/v1/tasks", "/v1/vps") for each in served.get(path)}
    names = (f"{LABEL[0]}-{number}" if number > 1 else LABEL[0] for number in count(1))
    return next(name for name in names if name not in used)


def _listen(local: int, *, is_fixed: bool) -> Listener:
    """Take a port for Jupyter, unless it is fixed the next free one; raises Refused."""
    for port in range(local, local + (1 if is_fixed else _NEXT)):
        with suppress(Refused):
            return listen([Port(PORT, port)], "--port")[0]
    return listen([Port(PORT, local)], "--port")[0]
