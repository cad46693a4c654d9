"""What the verbs share: the client, and words for people on stderr."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.client import Client
from agentless.errors import NotFound, UsageError
from agentless.model.owner import owner_of
from agentless.words import ending, printable


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
    list[str] | None,
    typer.Argument(
        metavar="TASK...",
        help="Ids, unique beginnings of ids, or names.",
        autocompletion=complete.tasks,
        callback=named,
    ),
]


def client(context: typer.Context) -> Client:
    """The client for this command line: the inventory named by it, by the environment, or found here."""
    served = Client.found(context.find_root().obj, owner_of(os.environ))
    context.call_on_close(lambda: _warn(served))
    return served


def own_code(task: dict[str, Any]) -> int:
    """The exit code of an ended task; one that has none of its own has failed, unless it says otherwise.

    One whose outputs are not here is no success either.
    """
    code: int | None = task["exit_code"]
    if code is None:
        return int(task["state"] != "completed")
    return code or int(any(output["state"] in ("missing", "stuck") for output in task.get("outputs") or ()))


def moment(text: str, option: str) -> float:
    """Unix seconds of a duration ago, or of a date; a date without a zone is local time."""
    from agentless.model.moment import parse_past

    try:
        return parse_past(text, time.time())
    except UsageError as error:
        raise UsageError(f"{option} {error}") from None


def _warn(served: Client) -> None:
    """Say on stderr what the controller wanted said along with its answers."""
    for warning in dict.fromkeys(served.warnings):
        print(f"agentless: warning: {warning}", file=sys.stderr)


def say(text: str) -> None:
    """Words for a person, apart from data."""
    print(text, file=sys.stderr)


def tell_end(task: dict[str, Any]) -> None:
    """How a task that somebody waited for has ended, if not well: an exit code alone says too little."""
    if line := ending(task):
        say(printable(line))
    tell_outputs(task)


def tell_outputs(task: dict[str, Any], *, here: bool = True) -> None:
    """What has come back of it; without `here` only what has not."""
    for output in task.get("outputs") or ():
        if here or output["state"] != "here":
            where = f" in {output['local']}" if output["files"] else ""
            say(printable(f"{task['id']}  {output['path']}: {output['words']}{where}"))


def print_json(value: Any) -> None:
    """Data for a script."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))
