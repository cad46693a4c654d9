"""What the screens of details share: parts that are known, and parts that are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from agentless.client.client import Breaker, BrokenOff
from agentless.errors import AgentlessError
from agentless.tui.data.cluster import ClusterState
from agentless.tui.data.incoming import in_app
from agentless.tui.screens.details.parts import Part
from agentless.tui.widgets.curves import Curves
from agentless.tui.widgets.ending import EndingScroll
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.hanging import Hanging


class Details(Screen[None]):
    """The base: some parts are in the state of the cluster, others are asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "app.pop_screen", "Back", tooltip="leave this screen"),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
    ]
    DEFAULT_CSS = """
    Details EndingScroll { padding: 0 1; scrollbar-size-vertical: 1; }
    """
    KINDS: ClassVar[frozenset[str]] = frozenset({"tasks", "gpus", "nodes"})

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__()
        self.cluster = cluster
        self._breaker = Breaker()

    def compose(self) -> ComposeResult:
        curves = list(self.curves())
        with EndingScroll(can_focus=not curves):  # else a click beside the curves took their keys away
            yield Hanging(id="known")
            yield from curves
            asked = Hanging(id="asked")
            asked.display = False  # an empty text took a line
            yield asked
        yield KeyLine()

    def on_mount(self) -> None:
        """Show what is known, and ask for the rest."""
        self.cluster_changed(set(self.KINDS))
        self.ask()

    def ask(self) -> None:
        """Ask the controller for what the state of the cluster lacks; an earlier request is broken off."""
        self._breaker.break_off()
        self._breaker = Breaker()
        self.run_worker(partial(self._ask, self._breaker), thread=True)

    def on_unmount(self) -> None:
        self._breaker.break_off()

    def cluster_changed(self, changed: set[str]) -> None:
        """Show what is known now."""
        if changed & self.KINDS and self.is_mounted:
            self.query_one("#known", Hanging).show(self.known())

    def action_scroll(self, by: int) -> None:
        self.query_one(EndingScroll).scroll_relative(y=by, animate=False)

    def curves(self) -> Iterable[Curves]:
        """What is drawn between the parts that are known and those that are asked for."""
        return ()

    def known(self) -> list[Part]:
        """The parts that are in the state of the cluster."""
        raise NotImplementedError

    def asked(self) -> list[Part]:
        """The parts that the controller is asked for; called in a thread."""
        raise NotImplementedError

    def _ask(self, breaker: Breaker) -> None:
        try:
            with breaker.watching():
                parts = self.asked()
        except BrokenOff:
            return
        if breaker is self._breaker:
            in_app(self.app, self._show_asked, parts)

    def _show_asked(self, parts: list[Part]) -> None:
        if self.is_mounted:
            asked = self.query_one("#asked", Hanging)
            asked.display = bool(parts)
            asked.show(parts)

    def get(self, path: str, **query: object) -> Any:
        """The answer to a request, or the sentence why there is none."""
        try:
            return self.app.client.get(path, **query)  # type: ignore[attr-defined]
        except AgentlessError as error:
            return str(error)
