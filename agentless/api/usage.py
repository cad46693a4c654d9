"""Usage, as a value, a table, and a frame of pandas."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from agentless.api.shown import table
from agentless.errors import UsageError
from agentless.model.usage.figures import UsageView


@dataclass(frozen=True, slots=True)
class Usage(UsageView):
    """GPU usage in a time span: in `total`, and in rows by owner, node or batch (`by`), largest first."""

    def frame(self) -> Any:
        """The rows as a pandas `DataFrame`, by name; raises UsageError if pandas is not installed."""
        try:
            import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]  # noqa: PLC0415
        except ImportError:
            raise UsageError("pandas is not installed; run: pip install pandas") from None
        rows = [asdict(row) for row in self.rows]
        return pd.DataFrame(rows).set_index("name") if rows else pd.DataFrame()

    def _repr_html_(self) -> str:
        """A table for a notebook."""
        titles = [self.by, "GPU-hours", "share", "tasks", "utilization"]
        percent = ["" if row.share is None else f"{100 * row.share:.1f}%" for row in self.rows]
        rows = [
            [row.name, f"{row.gpu_hours:,.2f}", share, row.tasks, row.utilization_pct]
            for row, share in zip(self.rows, percent, strict=True)
        ]
        return table(titles, rows)
