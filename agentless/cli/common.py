"""What the verbs share: the client, and words for people on stderr."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.app import complain
from agentless.client.client import Client
from agentless.client.words import ending
from agentless.errors import NotFound, UsageError
from agentless.model.owner import owner_of
from agentless.model.text import printable


def named(words: Any) -> Any:
    """The argument, whose words each become a part of a path to the controller: none is empty or has a slash.

    What is given twice is meant once.
    """
    for word in [words] if isinstance(words, str) else words or ():
        if not word or "/" in word:
            raise NotFound(f"nothing is named {word!r}; agentless ps --all and agentless nodes show what there is")
    return list(dict.fromkeys(words)) if isinstance(words, list) else words


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

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", autocompletion=complete.nodes, callback=named)]
ManyNodes = Annotated[
    list[str] | None, typer.Argument(metavar="[NODE]...", autocompletion=complete.nodes, callback=named)
]


def client(context: typer.Context) -> Client:
    """The client for this command line: the inventory named by it, by the environment, or found here."""
    served = Client.found(context.find_root().obj, owner_of(os.environ))
    context.call_on_close(lambda: _warn(served))
    return served


ENDED = {"timeout": 124, "stopped": 143, "killed": 137}
"""The exit codes of tasks that were ended and came to a good end of their own then, as a shell would have them."""


def own_code(task: dict[str, Any]) -> int:
    """The exit code of an ended task; one that has none of its own has failed, unless it says otherwise.

    One that was ended before it was done is no success, whatever its program made of the signal, nor is one whose
    outputs are not here.
    """
    code: int | None = task["exit_code"]
    if task["state"] != "completed":
        return code or (1 if code is None else ENDED.get(task["state"], 1))
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
        complain(f"warning: {warning}")


def say(*lines: str) -> None:
    """Words for a person, apart from data. What others chose of a line stays in it, and steers no terminal."""
    for line in lines:
        print(printable(line), file=sys.stderr)  # noqa: T201


def print_line(text: str, *, flush: bool = False) -> None:
    """A line of data for a person, likewise."""
    print(printable(text), flush=flush)  # noqa: T201


def tell_end(task: dict[str, Any]) -> None:
    """How a task that somebody waited for has ended, if not well: an exit code alone says too little."""
    if line := ending(task):
        say(line)
    tell_outputs(task)


def tell_outputs(task: dict[str, Any], *, here: bool = True) -> None:
    """What has come back of it; without `here` only what has not."""
    for output in task.get("outputs") or ():
        if here or output["state"] != "here":
            where = f" in {output['local']}" if output["files"] else ""
            say(f"{task['id']}  {output['path']}: {output['words']}{where}")


def print_json(value: Any, *, indent: int | None = 2, flush: bool = False) -> None:
    """Data for a script; what is no visible character is written as JSON's own escape."""
    import json

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    print(text, flush=flush)  # noqa: T201
