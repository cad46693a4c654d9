"""How much of all GPUs was used over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentless.client.plot import Series, plot
from agentless.tui.data.load import Load, load_of
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import GivenLines, Piece

SPAN = 3600.0
"""Seconds that are shown."""

Curve = Sequence[float | None]


class Use(GivenLines, can_focus=False):
    """The mean utilization of all GPUs, and the share of their memory that is in use, in the last hour."""

    DEFAULT_CSS = "Use { height: 1fr; overflow: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self._series: tuple[Curve, Curve] = ((), ())
        self._now = Load(None, 0.0, 0.0)

    def show(self, series: tuple[Curve, Curve]) -> None:
        """Draw these."""
        self._series = series
        self.update()

    def say(self, now: Load) -> None:
        """Write the present load above the curves."""
        if now != self._now:
            self._now = now
            self.update()

    def update(self) -> None:
        """Draw for the present size."""
        width, height = self.size.width, self.size.height
        if width < 20 or height < 4:
            return
        title: list[Piece] = [
            ("All GPUs ", "strong"),
            ("━u utilization", "util"),
            (f" {look.of(self._now.utilization, '%')}  ", ""),
            ("━m memory", "mem"),
            (f" {look.of(self._now.memory, '%')}", ""),
        ]
        drawn = plot(
            [Series("memory", self._series[1], "mem", "m"), Series("utilization", self._series[0], "util", "u")],
            width - 1,
            height - 1,
            top=100.0,
            words=lambda value: f"{value:.0f}%",
            times=lambda place: f"-{60 - 60 * place:.0f}m" if place < 1 else "now",
        )
        self.lines = [title, *drawn]
        self.redraw()

    def on_resize(self) -> None:
        self.update()


def use_of(gpus: Sequence[Any], sizes: Mapping[tuple[str, str], float | None]) -> tuple[Curve, Curve]:
    """The load of these GPUs at each time: the mean utilization, and the share of their memory, both in percent.

    `sizes` has the memory of each GPU that counts, by node and UUID.
    """
    counted = [gpu for gpu in gpus if (gpu["node"], gpu["uuid"]) in sizes]
    totals = [sizes[gpu["node"], gpu["uuid"]] for gpu in counted]
    columns = (zip(*(gpu[name] for gpu in counted), strict=True) for name in ("utilization_pct", "memory_used_mib"))
    loads = [load_of(used, memory, totals) for used, memory in zip(*columns, strict=True)]
    return [load.utilization for load in loads], [load.memory for load in loads]
