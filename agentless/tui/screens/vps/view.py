"""The view of VPS."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.client.words import command_line, ran, state, where, why
from agentless.tui.data.cluster import Row
from agentless.tui.screens.view import TaskListView
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece
from agentless.tui.widgets.table import TableColumn


class AllVps(TaskListView):
    """A row for each VPS of this controller, by name, including stopped ones."""

    KINDS = frozenset({"nodes", "tasks"})
    EMPTY = (
        "No VPS. A VPS is a container to work in: it keeps its files until you remove it.",
        "",
        "Press n to create one, or run:",
        "agentless vps create NAME 1x",
    )

    def columns(self) -> Sequence[TableColumn]:
        return (
            TableColumn("NAME", lambda vps: vps["name"]),
            TableColumn("STATE", self._state),
            TableColumn("WHERE", where),
            TableColumn("UPTIME", lambda vps: ran(vps) if vps["ended_at"] is None else "-", right=True),
            TableColumn("IMAGE", lambda vps: vps["env"] or vps["image"] or "", rank=1),
            TableColumn("OWNER", lambda vps: vps["owner"], rank=2),
            TableColumn("REASON", lambda vps: why(vps) or self._silence(vps), flexible=True),
            TableColumn("COMMAND", command_line, rank=3),
        )

    def all_rows(self) -> list[Row]:
        return self.cluster.vps()

    def name_of(self, row: Row) -> object:
        """Its name: after a restore it is another task."""
        return row["name"]

    def _silence(self, vps: Row) -> str:
        silent = vps["ended_at"] is None and self.cluster.is_silent(vps["node"])
        return f"{vps['node']} is unreachable" if silent else ""

    def _state(self, vps: Row) -> Piece:
        if self._silence(vps):
            return f"{vps['state']}?", "dim"
        # The exit code of what was stopped says nothing.
        return state(vps) if vps["state"] == "failed" else vps["state"], look.style_of(vps["state"])
