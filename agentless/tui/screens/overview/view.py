"""The overview: all nodes and GPUs, how much was used, and the news."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widget import Widget

from agentless.client.words import gpu_model, gpu_place, memory_in_use
from agentless.errors import AgentlessError
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.incoming import in_app
from agentless.tui.screens.overview.clusters import ClusterPanels
from agentless.tui.screens.overview.gpu import legend
from agentless.tui.screens.overview.map import ClusterMap
from agentless.tui.screens.overview.news import News
from agentless.tui.screens.overview.use import SPAN, Use, use_of
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import GivenLines, fitted

WIDE = 150
"""The least width for the news beside the GPUs; else they are below."""
BESIDE = 100
"""The least width for the curve beside the news that are below."""
NEWS = (5, 14)
"""The least and the most lines of news below the GPUs."""
CURVE = 6
"""The least lines of the curve."""
HIGH, TALL = 30, 10
"""From so many lines on, the curve below the news that are beside the GPUs has at least so many of them.

It has all that these news leave.
"""
POINTS = 180
MOST_POINTS = 100_000
"""Points of the curve of a GPU, and of all together: what takes longer to read than anybody waits for."""
AGAIN = 20.0
"""Seconds until the last hour is asked for again."""


class Overview(Container):
    """Nodes and GPUs at the left or on top, the news beside or below, the curve where there is space left."""

    KINDS = frozenset({"gpus", "nodes", "clusters", "tasks", "controller"})
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "app.command_palette", "Search", key_display="/", tooltip="search everything by its words"),
        Binding(
            "left_square_bracket",
            "news(-1)",
            "News",
            show=False,
            key_display="[",
            tooltip="scroll the list up",
        ),
        Binding(
            "right_square_bracket",
            "news(1)",
            "News",
            show=False,
            key_display="]",
            tooltip="scroll the list down",
        ),
    ]
    DEFAULT_CSS = """
    Overview { layout: vertical; }
    Overview > #left { height: 1fr; }
    Overview > #right { height: auto; layout: horizontal; }
    Overview > #right > News { width: 1fr; height: 100%; border-title-color: $text-muted; }
    Overview > #right > Use { width: 46; margin: 0 0 0 1; }
    Overview > #left > .legend { height: 2; }
    Overview > #left > Use { height: 1fr; }
    Overview.-wide { layout: horizontal; }
    Overview.-wide > #right { height: 100%; layout: vertical; padding: 0 0 0 1; }
    Overview.-wide > #right > News { width: 100%; height: 1fr; }
    Overview.-wide > #right > Use { width: 100%; margin: 0; dock: bottom; }
    """

    def __init__(self, cluster: ClusterState, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.cluster = cluster
        self.map = ClusterMap(cluster)
        self.clusters = ClusterPanels(cluster)
        self.news = News(cluster)
        self._below, self._beside = Use(), Use()
        self._asked = False
        self._width = 0
        self._legend = GivenLines(classes="legend")

    def compose(self) -> ComposeResult:
        with Vertical(id="left"):
            yield self.map
            yield self._legend
            yield self.clusters
            yield self._below
        with Container(id="right"):
            yield self._beside
            yield self.news

    def on_mount(self) -> None:
        """Ask for the last hour from time to time."""
        self.set_interval(AGAIN, self.ask)

    @property
    def about_task(self) -> Row | None:
        """The task of the chosen GPU."""
        gpu = self.map.chosen
        return next(iter(self.cluster.holders(gpu)), None) if gpu else None

    @property
    def about_node(self) -> str | None:
        return str(self.map.chosen["node"]) if self.map.chosen else None

    @property
    def chosen(self) -> Row | None:
        return self.map.chosen

    @property
    def starting_focus(self) -> Widget:
        return self.map

    def update(self) -> None:
        """Show what is known now: each part gets the space that the others leave."""
        width, height = self.size.width, self.size.height
        if not width or not height:
            return
        is_wide = width >= WIDE
        self.set_class(is_wide, "-wide")
        self.news.is_tall = is_wide
        beside = max(46, min(72, width * 3 // 10)) + 1 if is_wide else 0
        panels = min(len(self.cluster.clusters), height // 8)
        band = 0 if is_wide else max(NEWS[0], min(NEWS[1], height - self.map.height_of_rows(width) - panels))
        used = self._arrange(width - beside, height - band)
        curve = CURVE if width >= BESIDE else 0
        if is_wide:
            curve = max(TALL if height >= HIGH else 0, height - self.news.wanted(beside - 1))
        elif height - band - used >= CURVE:  # first the news have what the GPUs leave, then the curve
            band += max(0, min(height - band - used, self.news.wanted(width) - band))
        self._below.display = height - band - used >= CURVE
        if not (is_wide or self._below.display):
            band = height - used
        self._beside.display = curve >= CURVE and not self._below.display
        self._beside.styles.height = curve if is_wide else None
        right = self.query_one("#right")
        right.styles.width, right.styles.height = beside or "100%", band or "100%"
        self.news.update()
        for use in (self._below, self._beside):
            if use.display:
                use.say(self.cluster.load())
        self._describe()
        if self.cluster.gpus and not self._asked:
            self.ask()

    def on_show(self) -> None:
        """Ask for what has not been asked for while other views were shown."""
        self.ask()

    def on_resize(self, _: events.Resize) -> None:
        self.update()

    def on_cluster_map_chosen(self) -> None:
        """Describe the chosen GPU."""
        self._describe()

    def on_cluster_map_grouped(self) -> None:
        """Arrange all anew."""
        self.update()

    def action_news(self, by: int) -> None:
        """Scroll the news by a page."""
        self.news.scroll_relative(y=by * max(1, self.news.size.height - 1), animate=False, force=True)

    def ask(self) -> None:
        """Ask for the last hour of all GPUs."""
        if self.size and self.cluster.gpus:
            self._asked = True
            points = max(10, min(POINTS, MOST_POINTS // len(self.cluster.gpus)))
            self.run_worker(partial(self._ask, points), thread=True, exclusive=True)

    def _ask(self, points: int) -> None:
        with contextlib.suppress(AgentlessError):
            in_app(self.app, self._show, self.app.client.get("/v1/history", since=SPAN, points=points))  # type: ignore[attr-defined]

    def _arrange(self, width: int, height: int) -> int:
        """Arrange the nodes, with a legend below a heat map, and clusters; returns how many lines that takes."""
        self._width = width
        panels = self.clusters.take(width, self.size.height)
        used = self.map.take(width, max(1, height - panels))
        self._legend.display = bool(self.map.legend)
        self.map.styles.height = used - self.map.legend
        return used + panels

    def _show(self, history: Any) -> None:
        sizes = {(gpu["node"], gpu["uuid"]): gpu["memory_total_mib"] for gpu in self.cluster.whole_gpus()}
        series = use_of(history["gpus"], sizes)
        self._below.show(series)
        self._beside.show(series)

    def _describe(self) -> None:
        gpu = self.map.chosen
        if gpu is None or not self.map.cell:
            return
        numbers = f"{look.of(gpu['utilization_pct'], '%')} {memory_in_use(gpu)} {look.of(gpu['temperature_c'], 'C')}"
        state, words = look.state_of(gpu, self.cluster)[0], look.who(gpu, self.cluster)
        about = f"{gpu_place(gpu)}  {gpu_model(gpu)}  {numbers}  {state}  {words}"
        states = {gpu["state"] for gpu in self.cluster.gpus.values()}
        states |= {"unknown"} if any(map(self.cluster.is_silent, self.cluster.nodes)) else set()
        held = (gpu for gpu in self.cluster.gpus.values() if gpu["state"] == "allocated")
        states |= {"task"} if any(self.map.metric.number(gpu) is None for gpu in held) else set()
        self._legend.lines = [
            legend(self.map.metric, states, self.map.cell, self._width),
            [(fitted(printable(about), self._width), "dim")],
        ]
        self._legend.redraw()
