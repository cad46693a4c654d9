"""`agentless cp`: files and folders between here and a node, or the container of a task."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from agentless.cli import complete
from agentless.cli.client import client
from agentless.cli.output import say
from agentless.model.text import printable
from agentless.model.units import format_size

_EVERY = 0.2
"""Seconds between two updates of the progress line."""


def add_to(app: typer.Typer) -> None:
    app.command()(cp)


def cp(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... DESTINATION",
            help="NODE:PATH, TASK:PATH or a local path. Either all sources or the destination must be local",
            autocompletion=complete.places,
        ),
    ],
) -> int:
    """Copy files and folders to and from nodes and tasks.

    Uses rsync if both ends have it: it skips files that are there, and resumes interrupted copies.

    agentless cp node1:runs/last/model.pt .
    agentless cp data src node1:/scratch/me
    """
    from agentless.client.files.copier import Copier
    from agentless.errors import UsageError
    from agentless.model.files.location import parse_location

    if len(paths) < 2:
        raise UsageError("from where to where? Write a source and a destination, like node1:results and .")
    *sources, destination = map(parse_location, paths)
    copier = Copier(client(context), _Meter())
    copier.copy(sources, destination)
    for warning in dict.fromkeys(copier.warnings):
        say(f"agentless: warning: {warning}")
    for note in dict.fromkeys(copier.notes):
        say(f"agentless: {note}")
    return 1 if copier.notes else 0


class _Meter:
    """A progress line on the terminal for each source."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._name, self._begun, self._shown, self._size = "", 0.0, 0.0, 0

    def begin(self, name: str) -> None:
        self._name, self._size = printable(name), 0
        self._begun = self._shown = time.monotonic()

    def reached(self, size: int) -> None:
        self._size = size
        now = time.monotonic()
        if self._shows and now - self._shown >= _EVERY:
            self._shown = now
            self._print(self._words(now))

    def end(self, moved: int) -> None:
        if self._shows:
            self._print(f"{self._words(time.monotonic())}, {format_size(moved)} over the link\n")

    def _words(self, now: float) -> str:
        passed = max(now - self._begun, 0.001)
        return f"{self._name}  {format_size(self._size)} in {passed:.1f} s, {format_size(int(self._size / passed))}/s"

    def _print(self, text: str) -> None:
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)  # noqa: T201
