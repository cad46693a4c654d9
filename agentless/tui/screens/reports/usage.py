"""Usage by owner, node or batch as bars, and over time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from agentless.client import history
from agentless.client.panels import drawn
from agentless.client.words import or_dash, share, used_in_all
from agentless.model.usage.figures import BY
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.screens.reports.base import SpannedReport
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece, fitted

SPANS = {"24 hours": 86400.0, "7 days": 7 * 86400.0, "30 days": 30 * 86400.0}
NUMBERS, LENT = 34, 8
"""The width of the numbers behind a bar, and of one more column."""
HEIGHT = 12
"""The lines of the plot, with its title."""


class UsageReport(SpannedReport):
    """GPU-hours by owner, node or batch."""

    NAME = "usage"
    SPANS = SPANS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("L", "by", "Group", tooltip="group by another field: owner, node, batch"),
    ]

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__(cluster, "7 days")
        self._by = BY[0]

    def action_by(self) -> None:
        """Group by the next field."""
        self._by = BY[(BY.index(self._by) + 1) % len(BY)]
        self.ask()

    def fetch(self) -> Any:
        now = time.time()
        return self.get("/v1/usage", edge=history.fine_edges(now - SPANS[self.span], now), by=self._by)

    def drawn(self, found: Any, width: int) -> Sequence[Sequence[Piece]]:
        rows = found["rows"]
        title = (f"Usage by {self._by}, last {self.span}: ", "strong")
        words = (used_in_all(found), "")
        is_wide = width >= len(title[0]) + len(words[0])
        lines: list[Sequence[Piece]] = [*([[title, words]] if is_wide else [[title], [words]]), []]
        if not rows:
            return [*lines, [("No tasks ran since then", "dim")]]
        names = min(max(len(row["name"]) for row in rows), max(10, width // 3))
        lends = any(row.get("lent_gpu_hours") for row in rows)
        bar = max(4, width - names - NUMBERS - LENT * lends - 2)
        heading = f"{'GPU-HOURS':>12}{'SHARE':>8}{'TASKS':>8}{'UTIL':>6}" + f"{'LENT':>{LENT}}" * lends
        lines.append([(fitted(self._by.upper(), names + bar + 2), "dim"), (heading, "dim")])
        most = rows[0]["gpu_hours"] or 1.0
        lines += [_row(row, names, bar, most, lends=lends) for row in rows]
        if found["more"]:
            lines.append([(f"{found['more']:,} more with fewer GPU-hours", "dim")])
        return [*lines, [], *drawn(history.of_usage(found), width - 1, HEIGHT)[0]]


def _row(row: Row, names: int, bar: int, most: float, *, lends: bool) -> list[Piece]:
    lent = f"{row['lent_gpu_hours']:,.2f}" if row.get("lent_gpu_hours") else ""
    return [
        (fitted(row["name"], names) + " ", "held"),
        *look.bar(row["gpu_hours"] / most, bar, "util"),
        (f" {row['gpu_hours']:>12,.2f}{share(row):>8}{row['tasks']:>8,}", ""),
        (f"{or_dash(row['utilization_pct'], '%'):>6}" + f"{lent:>{LENT}}" * lends, "dim"),
    ]
