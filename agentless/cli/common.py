"""What the verbs share: the client, types of arguments, output for people and for scripts."""

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


def path_words(words: Any) -> Any:
    """Check an argument whose words become parts of a URL path; raises NotFound for one that cannot.

    Duplicates are dropped.
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
        callback=path_words,
    ),
]
TaskArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TASK...",
        help="Ids, unique beginnings of ids, or names.",
        autocompletion=complete.tasks,
        callback=path_words,
    ),
]

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", autocompletion=complete.nodes, callback=path_words)]
ManyNodes = Annotated[
    list[str] | None, typer.Argument(metavar="[NODE]...", autocompletion=complete.nodes, callback=path_words)
]
EnvArgument = Annotated[str, typer.Argument(metavar="NAME", help="The env.", autocompletion=complete.envs)]


def client(context: typer.Context) -> Client:
    """The client for the inventory that the command line names, else for the usual one."""
    served = Client.found(context.find_root().obj, owner_of(os.environ))
    context.call_on_close(lambda: _warn(served))
    return served


ENDED = {"timeout": 124, "stopped": 143, "killed": 137}
"""The exit codes, as in a shell, of tasks that were ended and then returned 0."""


def own_code(task: dict[str, Any]) -> int:
    """The exit code of an ended task; a task without one has failed, unless its state says otherwise.

    A task that was stopped or killed is no success, whatever its program returned, nor is one whose outputs did not
    arrive.
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
    """Print the warnings that came with the controller's answers."""
    for warning in dict.fromkeys(served.warnings):
        complain(f"warning: {warning}")


def say(*lines: str) -> None:
    """Print lines for a person on stderr. Control characters in names that others chose are made visible."""
    for line in lines:
        print(printable(line), file=sys.stderr)  # noqa: T201


def print_line(text: str, *, flush: bool = False) -> None:
    """Print a line of data for a person, with control characters made visible."""
    print(printable(text), flush=flush)  # noqa: T201


def print_end(task: dict[str, Any]) -> None:
    """Print how an awaited task ended, unless it ended well: an exit code alone says too little."""
    if line := ending(task):
        say(line)
    print_outputs(task)


def print_outputs(task: dict[str, Any], *, here: bool = True) -> None:
    """Print which outputs arrived; without `here` only those that did not."""
    for output in task.get("outputs") or ():
        if here or output["state"] != "here":
            where = f" in {output['local']}" if output["files"] else ""
            say(f"{task['id']}  {output['path']}: {output['words']}{where}")


def print_json(value: Any, *, indent: int | None = 2, flush: bool = False) -> None:
    """Print data for a script; invisible characters are written as JSON escapes."""
    import json

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    print(text, flush=flush)  # noqa: T201
