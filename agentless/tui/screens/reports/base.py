"""What the reports share: they ask, draw the answer line by line, and ask again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from agentless.client.client import Breaker, BrokenOff
from agentless.errors import AgentlessError
from agentless.tui.data.cluster import ClusterState
from agentless.tui.data.incoming import in_app
from agentless.tui.widgets.ending import Ending
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.lines import GivenLines, Piece

AGAIN = 30.0
"""Seconds until the controller is asked again."""


class ReportLines(GivenLines, Ending, can_focus=True):
    """The lines, scrolled by keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll_down", show=False),
        Binding("k,up", "scroll_up", show=False),
    ]

    class Resized(Message):
        """There is another width to draw for, also because of the scrollbar."""

    def on_resize(self) -> None:
        """Ask for lines of this width."""
        super().on_resize()
        self.post_message(self.Resized())

    def redraw(self) -> None:
        super().redraw()
        self.keep_end()


class Report(Screen[None]):
    """A screen that shows an answer of the controller. `NAME` is its place."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "app.pop_screen", "Back", tooltip="leave this screen"),
    ]
    NAME: ClassVar[str]
    about_task = about_node = None

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__()
        self.cluster = cluster
        self.body = ReportLines()
        self._breaker = Breaker()
        self._found: Any = None

    def compose(self) -> ComposeResult:
        yield self.body
        yield KeyLine()

    def on_mount(self) -> None:
        """Ask, and again from time to time."""
        self.set_focus(self.body)
        self.set_interval(AGAIN, self.ask)
        self.ask()

    def on_unmount(self) -> None:
        self._breaker.break_off()

    def on_report_lines_resized(self) -> None:
        self.show()

    def cluster_changed(self, changed: set[str]) -> None:
        """Draw again: some of it is in the state of the cluster."""
        if changed & {"tasks", "nodes"} and self.is_mounted:
            self.show()

    def ask(self) -> None:
        """Ask the controller; an earlier request is broken off."""
        self._breaker.break_off()
        self._breaker = Breaker()
        self.run_worker(partial(self._ask, self._breaker), thread=True)

    def show(self) -> None:
        """Draw what is known now, for the present width."""
        width = self.body.scrollable_content_region.width
        if not width or not self.is_mounted:
            return
        if self._found is None or isinstance(self._found, str):
            self.body.lines = [[(self._found or "Loading …", "dim")]]
        else:
            self.body.lines = [list(line) for line in self.drawn(self._found, width)]
        self.body.redraw()

    def fetch(self) -> Any:
        """The answer of the controller; called in a thread."""
        raise NotImplementedError

    def drawn(self, found: Any, width: int) -> Sequence[Sequence[Piece]]:
        """The lines of an answer."""
        raise NotImplementedError

    def get(self, path: str, **query: object) -> Any:
        return self.app.client.get(path, **query)  # type: ignore[attr-defined]

    def _ask(self, breaker: Breaker) -> None:
        try:
            with breaker.watching():
                found = self.fetch()
        except BrokenOff:
            return
        except AgentlessError as error:
            found = str(error)
        if breaker is self._breaker:
            in_app(self.app, self._keep, found)

    def _keep(self, found: Any) -> None:
        self._found = found
        self.show()


class SpannedReport(Report):
    """A report over a time that can be chosen: `SPANS` are seconds by their names, `span` is the name of one."""

    SPANS: ClassVar[Mapping[str, float]]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("less_than_sign", "span(-1)", "Shorter", key_display="<", tooltip="show a shorter time"),
        Binding("greater_than_sign", "span(1)", "Longer", key_display=">", tooltip="show a longer time"),
    ]

    def __init__(self, cluster: ClusterState, span: str) -> None:
        super().__init__(cluster)
        self.span = span

    def action_span(self, by: int) -> None:
        names = list(self.SPANS)
        self.span = names[max(0, min(names.index(self.span) + by, len(names) - 1))]
        self.span_changed()

    def span_changed(self) -> None:
        """Ask anew; for a report whose answer covers all times, drawing is enough."""
        self.ask()
