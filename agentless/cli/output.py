"""Output for people, and for scripts."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from agentless.client.words import ending
from agentless.model.text import printable

_verbosity = {"quiet": False}


def be_quiet(wanted: bool) -> bool:
    """Whether notes and confirmations are left out from now on; errors, warnings and data never are."""
    _verbosity["quiet"] = wanted
    return wanted


def is_quiet() -> bool:
    """Whether --quiet was given."""
    return _verbosity["quiet"]


Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=be_quiet, help="Print errors and warnings only")]
"""An option of verbs whose output is only a courtesy; they need not look at its value."""


def say(*lines: str) -> None:
    """Print notes for a person on stderr. Control characters in names that others chose are made visible."""
    for line in () if is_quiet() else lines:
        print(printable(line), file=sys.stderr)  # noqa: T201


def confirm_done(text: str) -> None:
    """Print on stdout that something is done, unless --quiet was given."""
    if not is_quiet():
        print_line(text)


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
            where = f" copied to {output['local']}" if output["files"] else ""
            say(f"{task['id']}  output {output['path']}{where}: {output['words']}")


def print_json(value: Any, *, indent: int | None = 2, flush: bool = False) -> None:
    """Print data for a script; invisible characters are written as JSON escapes."""
    import json

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    print(text, flush=flush)  # noqa: T201


def print_yaml(value: Any, *, document: bool = False, flush: bool = False) -> None:
    """Print data as YAML, for a `document` with the line that begins one; invisible characters are escaped."""
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, explicit_start=document)
    if not text.replace("\n", "").isprintable():
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False, explicit_start=document)
    print(text, end="", flush=flush)  # noqa: T201


def has_colours() -> bool:
    """Whether stdout gets colours: on a terminal, unless NO_COLOR forbids or FORCE_COLOR or CLICOLOR_FORCE decides."""
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
