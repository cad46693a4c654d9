"""The overview: all GPUs, what waits and why, and what is wrong."""

from __future__ import annotations

from textwrap import wrap

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.widget import Widget
from textual.widgets import Static

from agentless.tui import look
from agentless.tui.board import Board, Row
from agentless.tui.gpus import state_of, who
from agentless.tui.lines import Lines, Piece, fitted, flat
from agentless.tui.tiles import Tiles
from agentless.words import printable, ran, where

MOST = 3
"""Lines that one piece of news takes at most."""
WIDE = 130
"""Columns from which on the news stand beside the GPUs, and not below."""


class Overview(Container):
    """Tiles, and the news."""

    KINDS = frozenset({"gpus", "nodes", "tasks", "controller"})
    DEFAULT_CSS = """
    Overview { layout: vertical; }
    Overview > Vertical { height: 1fr; }
    Overview > Vertical > Static { height: 1; color: $text-muted; }
    Overview > News { height: auto; max-height: 8; border-top: solid $panel; }
    Overview.-wide { layout: horizontal; }
    Overview.-wide > News { width: 52; height: 100%; max-height: 100%; border-top: none; border-left: solid $panel; }
    """

    def __init__(self, board: Board, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.board = board
        self.tiles = Tiles(board)
        self.news = News(board)
        self._line = Static(markup=False)

    def compose(self) -> ComposeResult:
        """The GPUs with a line about the chosen one, and the news."""
        with Vertical():
            yield self.tiles
            yield self._line
        yield self.news

    @property
    def about_task(self) -> Row | None:
        """The task of the chosen GPU."""
        gpu = self.tiles.chosen
        return next(iter(self.board.holders(gpu)), None) if gpu else None

    @property
    def about_node(self) -> str | None:
        """The node of the chosen GPU."""
        return str(self.tiles.chosen["node"]) if self.tiles.chosen else None

    @property
    def chosen(self) -> Row | None:
        """The chosen GPU."""
        return self.tiles.chosen

    @property
    def starting_focus(self) -> Widget:
        """What takes the keys."""
        return self.tiles

    def update(self) -> None:
        """Show what is known now."""
        self.tiles.update()
        self.news.update()
        self._describe()

    def on_resize(self, event: events.Resize) -> None:
        """Put the news where there is room."""
        self.set_class(event.size.width >= WIDE, "-wide")

    def on_tiles_chosen(self) -> None:
        """Tell of another GPU."""
        self._describe()

    def _describe(self) -> None:
        gpu = self.tiles.chosen
        if gpu is None:
            self._line.update("")
            return
        numbers = f"{look.of(gpu['utilization_pct'], '%')} {look.memory(gpu)} {look.of(gpu['temperature_c'], 'C')}"
        state, words = state_of(gpu, self.board)[0], flat(who(gpu, self.board.holders(gpu)))
        self._line.update(f"{gpu['node']}::{gpu['index']}  {look.model(gpu)}  {numbers}  {state}  {words}")


class News(Lines, can_focus=False):
    """What is wrong, then who waits."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board
        self._lines: list[list[Piece]] = []

    def update(self) -> None:
        """Show what is known now."""
        width = max(20, self.scrollable_content_region.width)
        lines: list[list[Piece]] = []
        for about, words in self._board.problems():
            first, *more = wrap(f"{about} {printable(words)}", width - 2)[:MOST]
            lines += [[("! ", "bad"), (first, "")], *([("  " + line, "")] for line in more)]
        for task in self._board.queue():
            place = look.of(task["position"], "")
            when = ran(task)
            head = f"{place:>2} {task['owner']} wants {where(task)}" + (f", {when}" if when != "-" else "")
            lines.append([(fitted(head, width), "warn")])
            lines += [[("   " + line, "dim")] for line in wrap(printable(task["reason"] or ""), width - 3)[:MOST]]
        before, self._lines = len(self._lines), lines or [[("nothing waits, nothing is wrong", "dim")]]
        if before != len(self._lines):
            self.refresh(layout=True)
        self.redraw()

    def length(self) -> int:
        """Lines in all."""
        return len(self._lines)

    def get_content_height(self, *_: object) -> int:
        """As many lines as there are."""
        return len(self._lines)

    def draw(self, y: int) -> list[Piece]:
        """One line."""
        return self._lines[y] if y < len(self._lines) else []
