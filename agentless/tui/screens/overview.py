"""The overview: all GPUs, the problems, and the queue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from textwrap import wrap
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Static

from agentless.client.words import gpu_model, gpu_place, ran, where
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Lines, Piece, fitted
from agentless.tui.widgets.tiles import Tiles

MOST = 3
"""The most lines of one piece of news."""
LINES = 50
"""The most lines of all news; the view of the queue has every pending task."""
WIDE = 130
"""The least width for the news beside the GPUs; else they are below."""


class Overview(Container):
    """The tiles of all GPUs, and the news."""

    KINDS = frozenset({"gpus", "nodes", "tasks", "controller"})
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "left_square_bracket",
            "news(-1)",
            "News",
            show=False,
            key_display="[",
            tooltip="scroll problems and queue up",
        ),
        Binding(
            "right_square_bracket",
            "news(1)",
            "News",
            show=False,
            key_display="]",
            tooltip="scroll problems and queue down",
        ),
    ]
    DEFAULT_CSS = """
    Overview { layout: vertical; }
    Overview > Vertical { height: 1fr; }
    Overview > Vertical > Static { height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    Overview > News { height: auto; max-height: 8; border-top: solid $panel; border-title-color: $text-muted; }
    Overview.-wide { layout: horizontal; }
    Overview.-wide > News { width: 52; height: 100%; max-height: 100%; border-left: solid $panel; }
    """

    def __init__(self, cluster: ClusterState, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.cluster = cluster
        self.tiles = Tiles(cluster)
        self.news = News(cluster)
        self._line = Static(markup=False)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield self.tiles
            yield self._line
        yield self.news

    @property
    def about_task(self) -> Row | None:
        """The task of the chosen GPU."""
        gpu = self.tiles.chosen
        return next(iter(self.cluster.holders(gpu)), None) if gpu else None

    @property
    def about_node(self) -> str | None:
        return str(self.tiles.chosen["node"]) if self.tiles.chosen else None

    @property
    def chosen(self) -> Row | None:
        return self.tiles.chosen

    @property
    def starting_focus(self) -> Widget:
        return self.tiles

    def update(self) -> None:
        self.tiles.update()
        self.news.update()
        self._describe()

    def on_resize(self, event: events.Resize) -> None:
        """Show the news beside the GPUs on a wide screen, else below."""
        self.set_class(event.size.width >= WIDE, "-wide")

    def on_tiles_chosen(self) -> None:
        """Describe the chosen GPU."""
        self._describe()

    def action_news(self, by: int) -> None:
        """Scroll the news by a page."""
        self.news.scroll_relative(y=by * max(1, self.news.size.height - 1), animate=False, force=True)

    def _describe(self) -> None:
        gpu = self.tiles.chosen
        if gpu is None:
            self._line.update("")
            return
        numbers = f"{look.of(gpu['utilization_pct'], '%')} {look.memory(gpu)} {look.of(gpu['temperature_c'], 'C')}"
        state, words = look.state_of(gpu, self.cluster)[0], look.who(gpu, self.cluster.holders(gpu))
        about = f"{gpu_place(gpu)}  {gpu_model(gpu)}  {numbers}  {state}  {words}"
        self._line.update(printable(about))


class News(Lines, can_focus=False):
    """The problems, then the pending tasks."""

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__()
        self._cluster = cluster
        self._lines: list[list[Piece]] = []

    def update(self) -> None:
        """Show what is known now; a hidden widget has no width to wrap for."""
        if not self.size.width:
            return
        before, self._lines = len(self._lines), self._wrapped(self.scrollable_content_region.width)
        if before != len(self._lines):
            self.refresh(layout=True)
        more = len(self._lines) - self.size.height
        self.border_title = "Problems and queue" + (f" · {more} more lines (press ])" if more > 0 else "")
        self.redraw()

    def on_resize(self) -> None:
        """Wrap for this width."""
        self.update()

    def length(self) -> int:
        return len(self._lines)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's
        """The number of lines at this width."""
        return len(self._wrapped(width))

    def draw(self, y: int) -> list[Piece]:
        return self._lines[y] if y < len(self._lines) else []

    def _wrapped(self, width: int) -> list[list[Piece]]:
        lines = list(islice(self._all(max(20, width)), LINES + 1))
        if len(lines) > LINES:
            lines[LINES] = [("… and more; press 5 for the whole queue", "dim")]
        return lines or [[("Queue empty, no problems", "dim")]]

    def _all(self, width: int) -> Iterator[list[Piece]]:
        """The lines, wrapped only as far as they are asked for."""
        for about, words in self._cluster.problems():
            sign: Piece = ("! ", "bad")
            for line in wrap(printable(f"{about} {words}"), width - 2, max_lines=MOST, placeholder=" …"):
                yield [sign, (line, "")]
                sign = ("  ", "")
        waiting: dict[tuple[str, str], list[Row]] = {}
        for task in self._cluster.queue():
            waiting.setdefault((task["batch"], task["reason"] or ""), []).append(task)
        for (batch, reason), (task, *others) in waiting.items():
            place, when = look.of(task["position"], ""), ran(task)
            wants = f": {len(others) + 1} of {batch} pending" if others else f" needs {where(task)}"
            head = f"{place:>2} {task['owner']}{wants}" + (f", {when}" if when != "-" else "")
            yield [(fitted(head, width), "warn")]
            for line in wrap(printable(reason), width - 3, max_lines=MOST, placeholder=" …"):
                yield [("   " + line, "dim")]
