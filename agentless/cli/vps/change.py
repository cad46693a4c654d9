"""What all verbs that change a VPS have in common: its name, and what they print."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import path_words
from agentless.cli.output import print_json, print_line, say
from agentless.client.words import state, where

VpsName = Annotated[
    str, typer.Argument(metavar="NAME", help="VPS name", callback=path_words, autocompletion=complete.vps)
]


def show_changed(name: str, task: dict[str, Any], *, as_json: bool) -> None:
    """Print what a VPS is now."""
    if as_json:
        print_json(task)
    else:
        print_line(f"{name}  {state(task)}" + (f" on {where(task)}" if task["ended_at"] is None else ""))


def show_started(name: str, started: dict[str, Any], *, as_json: bool) -> None:
    """Likewise, with what is left of an earlier container."""
    show_changed(name, started["task"], as_json=as_json)
    if started["message"]:
        say(started["message"])
