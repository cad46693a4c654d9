"""What the verbs share: the client, and words for people on stderr."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from agentless import paths
from agentless.cli import complete
from agentless.client import Client
from agentless.errors import ControllerError, InventoryError, NotFound, UsageError
from agentless.model.owner import check_owner
from agentless.model.units import parse_duration

WAIT_TURN = 30
"""Seconds of one turn of waiting."""


def named(words: Any) -> Any:
    """The argument, whose words each become a part of a path to the controller: none is empty or has a slash."""
    for word in [words] if isinstance(words, str) else words or ():
        if not word or "/" in word:
            raise NotFound(f"nothing is named {word!r}; agentless ps --all and agentless nodes show what there is")
    return words


Json = Annotated[bool, typer.Option("--json", help="Print JSON with documented field names.")]
TaskArgument = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="Its id, a unique beginning of it, or its name.",
        autocompletion=complete.tasks,
        callback=named,
    ),
]
TaskArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="TASK...",
        help="Ids, unique beginnings of ids, or names.",
        autocompletion=complete.tasks,
        callback=named,
    ),
]


def client(context: typer.Context) -> Client:
    """The client for this command line: the inventory named by it, by the environment, or found here."""
    explicit: Path | None = context.find_root().obj
    try:
        inventory = paths.find_inventory(explicit)
    except InventoryError:
        if explicit is not None:
            raise
        inventory = None  # a controller that runs knows its own
        if not Client(paths.state_dir(), None).is_running():
            raise
    served = Client(paths.state_dir(), inventory, owner())
    context.call_on_close(lambda: _warn(served))
    return served


def owner(option: str | None = None) -> str | None:
    """Who asks: as the option `--owner` says, else `$AGENTLESS_OWNER`; None: the owner of the controller."""
    if option is not None:
        return check_owner(option, "--owner")
    name = os.environ.get("AGENTLESS_OWNER")
    return check_owner(name, "$AGENTLESS_OWNER") if name else None


def wait_for(served: Client, task: str) -> dict[str, Any]:
    """The task once it has ended. Asked in turns, so that it survives a controller that dies and comes back."""
    failures = 0
    while True:
        try:
            found: dict[str, Any] = served.get(f"/v1/tasks/{task}/wait", within=WAIT_TURN)
        except ControllerError:
            failures += 1
            if failures == 3:
                raise
            continue
        if found["ended_at"] is not None:
            return found
        task, failures = found["id"], 0


def own_code(task: dict[str, Any]) -> int:
    """The exit code of an ended task; one that has none of its own has failed, unless it says otherwise."""
    code: int | None = task["exit_code"]
    return code if code is not None else int(task["state"] != "completed")


def moment(text: str, option: str) -> float:
    """Unix seconds of a duration ago, or of a date; a date without a zone is local time."""
    if "-" in text or "T" in text:
        from datetime import datetime

        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            raise UsageError(f"{option} {text!r}: write 10min, 2h or a date like 2026-05-01T12:00") from None
    return time.time() - parse_duration(text)


def _warn(served: Client) -> None:
    """Say on stderr what the controller wanted said along with its answers."""
    for warning in dict.fromkeys(served.warnings):
        print(f"agentless: warning: {warning}", file=sys.stderr)


def say(text: str) -> None:
    """Words for a person, apart from data."""
    print(text, file=sys.stderr)


def print_json(value: Any) -> None:
    """Data for a script."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))
