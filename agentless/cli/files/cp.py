"""`agentless cp`: files and folders between here and a node, or the container of a task."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from agentless.cli import complete
from agentless.cli.app import warn
from agentless.cli.client import client
from agentless.cli.output import Quiet, say
from agentless.cli.progress import DELAY, Progress, progress
from agentless.model.text import printable
from agentless.model.units import format_duration, format_size

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
    _: Quiet = False,
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
        raise UsageError("Specify a source and a destination, such as: agentless cp node1:results .")
    *sources, destination = map(parse_location, paths)
    with progress(f"Checking {destination}") as shown:
        copier = Copier(client(context), _Meter(shown))
        copier.copy(sources, destination)
    for warning in dict.fromkeys(copier.warnings):
        warn(f"warning: {warning}")
    for note in dict.fromkeys(copier.notes):
        warn(note)
    return 1 if copier.notes else 0


class _Meter:
    """A progress line for each source, and what was copied once it is; on a terminal only."""

    def __init__(self, shown: Progress) -> None:
        self._progress = shown
        self._name, self._begun, self._shown, self._size = "", 0.0, 0.0, 0

    def begin(self, name: str) -> None:
        self._name, self._size = printable(name), 0
        self._begun = time.monotonic()
        self._shown = self._begun + DELAY - _EVERY

    def reached(self, size: int) -> None:
        self._size = size
        now = time.monotonic()
        if now - self._shown >= _EVERY:
            self._shown = now
            self._progress.update(f"{self._name}  {format_size(size)}, {self._rate(now)}")

    def end(self, moved: int) -> None:
        if sys.stderr.isatty():
            now = time.monotonic()
            size, passed = format_size(self._size), format_duration(now - self._begun)
            say(f"{self._name}  {size} in {passed}, {self._rate(now)}, {format_size(moved)} transferred")

    def _rate(self, now: float) -> str:
        return f"{format_size(int(self._size / max(now - self._begun, 0.001)))}/s"
