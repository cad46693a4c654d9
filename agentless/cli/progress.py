"""Progress of what takes over a second: a spinner, a name, a bar and words on stderr, on a terminal only."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from agentless.cli import output
from agentless.model.text import printable
from agentless.model.units import format_duration

DELAY = 1.0
"""Seconds until it is shown that something is under way."""


class Progress:
    """Lines that are overwritten, each with its name. Has no effect without a terminal, or with --quiet."""

    def __init__(self) -> None:
        self.is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not output.is_quiet()
        self._lock = threading.Lock()
        self._display: Any = None
        self._lines: dict[str, Any] = {}
        self._ended = False

    def update(self, words: str, *, name: str = "", done: float = 0, total: float | None = None) -> None:
        """Show the line of this name; with a `total` it has a bar."""
        with self._lock:
            if self.is_shown and not self._ended:
                self._draw(words, name, done, total)

    def begin(self, words: str) -> None:
        """Show a first line, unless there is one."""
        with self._lock:
            if self.is_shown and not self._lines and not self._ended:
                self._draw(words, "", 0, None)

    def end(self) -> None:
        """Remove all lines."""
        with self._lock:
            self._ended = True
            if self._display is not None:
                self._display.stop()

    def _draw(self, words: str, name: str, done: float, total: float | None) -> None:
        is_first = self._display is None
        if is_first:
            self._display = _display()
        if name and "" in self._lines:
            self._display.remove_task(self._lines.pop(""))
        if name not in self._lines:
            self._lines[name] = self._display.add_task(printable(name), total=None, words="")
        self._display.update(self._lines[name], completed=done, total=total, words=printable(words))
        if is_first:
            self._display.start()
            self._display.console.show_cursor()  # a killed process would leave none
        self._display.refresh()


@contextlib.contextmanager
def progress(words: str = "") -> Iterator[Progress]:
    """Lines for the time of this block. If it takes long, `words` are shown until there is something better."""
    shown = Progress()
    timer = threading.Timer(DELAY, shown.begin, (words,))
    timer.daemon = True
    if words and shown.is_shown:
        timer.start()
    try:
        yield shown
    finally:
        timer.cancel()
        shown.end()


def _display() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Display
    from rich.table import Column
    from rich.text import Text

    class Words(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(task.fields["words"], no_wrap=True, overflow="ellipsis")

    class Bar(BarColumn):
        def render(self, task: Any) -> Any:
            return Text() if task.total is None else super().render(task)

    class Elapsed(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(format_duration(task.elapsed or 0), style="dim")

    def whole() -> Column:  # on a narrow terminal only the words are cut
        return Column(no_wrap=True)

    return Display(
        SpinnerColumn(table_column=whole()),
        TextColumn("{task.description}", markup=False, table_column=whole()),
        Words(),
        Bar(20, table_column=whole()),
        Elapsed(table_column=whole()),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )
