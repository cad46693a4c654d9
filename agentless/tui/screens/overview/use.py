"""How much of all GPUs was used over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentless.client.plot import Series, plot
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

    def show(self, series: tuple[Curve, Curve]) -> None:
        """Draw these."""
        self._series = series
        self.update()

    def update(self) -> None:
        """Draw for the present size."""
        width, height = self.size.width, self.size.height
        if width < 20 or height < 4:
            return
        used, memory = (next((value for value in reversed(each) if value is not None), None) for each in self._series)
        title: list[Piece] = [
            ("All GPUs ", "strong"),
            ("━ utilization", "util"),
            (f" {'-' if used is None else f'{used:.0f}%'}  ", ""),
            ("━ memory", "mem"),
            (f" {'-' if memory is None else f'{memory:.0f}%'}", ""),
        ]
        drawn = plot(
            [Series("memory", self._series[1], "mem"), Series("utilization", self._series[0], "util")],
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


def use_of(gpus: Sequence[Any], totals: Mapping[tuple[str, str], float]) -> tuple[Curve, Curve]:
    """The mean utilization of these GPUs at each time, and the share of their memory in use, both in percent.

    `totals` are the sizes of their memories, by node and UUID.
    """
    used = [gpu["utilization_pct"] for gpu in gpus]
    sized = [(gpu["memory_used_mib"], total) for gpu in gpus if (total := totals.get((gpu["node"], gpu["uuid"])))]
    memory = [[None if value is None else 100 * value / total for value in values] for values, total in sized]
    return _means(used), _means(memory)


def _means(rows: Sequence[Curve]) -> list[float | None]:
    found: list[float | None] = []
    for values in zip(*rows, strict=True):
        known = [value for value in values if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found
