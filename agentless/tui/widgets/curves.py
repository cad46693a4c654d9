"""Plots over time that share a range and a cursor, drawn anew while time goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from agentless.client.client import Breaker, BrokenOff
from agentless.client.panels import Area, Shown, drawn, least_height
from agentless.errors import AgentlessError
from agentless.model.moment import format_moment
from agentless.model.units import format_duration
from agentless.tui.data.incoming import in_app
from agentless.tui.widgets.lines import GivenLines, Piece

RANGES: Mapping[str, float] = {"10 min": 600.0, "1 h": 3600.0, "1 d": 86400.0, "7 d": 604800.0, "30 d": 2592000.0}
"""What can be looked at, in seconds."""
POINTS = 480
"""Points of a curve: about as many as a wide plot has dots."""
SOONEST, LATEST = 2.0, 60.0
"""Seconds until the curves are asked for again, at least and at most."""


class Curves(GivenLines, can_focus=True):
    """Plots, as many beside each other as fit, with one range and one cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("less_than_sign", "range(-1)", "Shorter", key_display="<", tooltip="plots of a shorter time"),
        Binding("greater_than_sign", "range(1)", "Longer", key_display=">", tooltip="plots of a longer time"),
        Binding("left", "cursor(-1)", "Earlier", show=False, tooltip="earlier values of the plots"),
        Binding("right", "cursor(1)", "Later", show=False, tooltip="later values of the plots"),
    ]
    DEFAULT_CSS = "Curves { height: 1fr; overflow: hidden; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._range, self._several = "", False
        self._shown: Shown | str = ""
        self._at: float | None = None
        self._areas: list[Area] = []
        self._breaker: Breaker | None = None
        self._due = 0.0

    def ranges(self) -> Mapping[str, float]:
        """The names of what can be looked at, in seconds; the first one is shown at first."""
        return RANGES

    def fetch(self, span: float, points: int) -> Shown | str:
        """The plots of the last so many seconds, or why there are none; called in a thread."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Ask, and again when there are new values to see."""
        self._range, self._several = next(iter(self.ranges())), len(self.ranges()) > 1
        self.set_interval(SOONEST, self._go_on)
        self.ask()

    def on_unmount(self) -> None:
        if self._breaker:
            self._breaker.break_off()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.update()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether there is another range to show: a task that has just started has one."""
        return self._several if action == "range" else super().check_action(action, parameters)

    def on_click(self, event: events.Click) -> None:
        """Set the cursor where the mouse is."""
        for area in self._areas:
            if area.x <= event.x < area.x + area.columns and area.y <= event.y - 1 < area.y + area.rows:
                self._choose(event.x - area.x, area.columns)

    def action_range(self, by: int) -> None:
        """Show a shorter or a longer time."""
        names = list(self.ranges())
        place = max(0, min(len(names) - 1, names.index(self._range) + by))
        if names[place] != self._range:
            self._range = names[place]
            self.ask()
            self.update()

    def action_cursor(self, by: int) -> None:
        """Move the cursor by a column; to the right of all values it vanishes."""
        if self._areas and isinstance(self._shown, Shown):
            columns = max(area.columns for area in self._areas)
            place = self._shown.column(self._at, columns)
            self._choose((columns if place is None else place) + by, columns)

    # ------------------------------------------------------------------ asking

    def ask(self) -> None:
        """Ask for the chosen range; an earlier request is broken off."""
        self.on_unmount()
        self._breaker, self._due = Breaker(), inf
        self.run_worker(partial(self._ask, self._breaker, self.ranges()[self._range]), thread=True)

    def _ask(self, breaker: Breaker, span: float) -> None:
        try:
            with breaker.watching():
                found: Shown | str = self.fetch(span, POINTS)
        except BrokenOff:
            return
        except AgentlessError as error:
            found = str(error)
        in_app(self.app, self._show, breaker, found, span)

    def _show(self, breaker: Breaker, found: Shown | str, span: float) -> None:
        if breaker is not self._breaker or not self.is_mounted:
            return
        self._breaker, self._shown = None, found
        if self._several != (several := len(self.ranges()) > 1):
            self._several = several
            self.refresh_bindings()
        if isinstance(found, str) or found.is_live:
            self._due = time.monotonic() + max(SOONEST, min(LATEST, span / POINTS))
        self.update()

    def _go_on(self) -> None:
        if time.monotonic() >= self._due and self.is_on_screen:
            self.ask()

    # ----------------------------------------------------------------- drawing

    def update(self) -> None:
        """Draw for the present size."""
        width, height = self.size.width, self.size.height
        if not width:
            return
        lines: list[list[Piece]] = [self._head(width)]
        self._areas = []
        if isinstance(self._shown, str):
            lines.append([(self._shown, "warn")])
        elif self._shown.plots:
            self.styles.min_height = least_height(self._shown, width) + 1
            more, self._areas = drawn(self._shown, width, height - 1, self._at)
            lines += more
        else:
            lines.append([("No readings in this time", "dim")])
        self.lines = lines
        self.redraw()

    def _head(self, width: int) -> list[Piece]:
        """The ranges, and the moment of the cursor."""
        pieces: list[Piece] = [
            (f"[{name}]", "chosen") if name == self._range else (f" {name} ", "dim") for name in self.ranges()
        ]
        if isinstance(self._shown, Shown) and self._at is not None and self._shown.column(self._at, 1) is not None:
            ago = f", {format_duration(self._shown.end - self._at)} ago" if self._shown.is_live else ""
            words, style = f"{format_moment(self._at, 'seconds')}{ago}", "cursor"
        else:
            words, style = "< > time   " * self._several + "← → values", "dim"
        room = width - sum(len(text) for text, _ in pieces) - 2
        return [*pieces, (("  " + words.rjust(room)) if len(words) <= room else "", style)]

    def _choose(self, column: int, columns: int) -> None:
        if isinstance(self._shown, Shown):
            self._at = None if column >= columns else self._shown.moment(max(0, column), columns)
            self.update()
