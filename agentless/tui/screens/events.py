"""The view of events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from agentless.client.words import happened, where
from agentless.tui.data.cluster import Row
from agentless.tui.data.incoming import REMEMBERED
from agentless.tui.screens.view import View
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece
from agentless.tui.widgets.table import TableColumn


class Events(View):
    """A row for each event, the newest first."""

    KINDS = frozenset({"events"})

    def columns(self) -> Sequence[TableColumn]:
        return (
            TableColumn("TIME", _when, lambda event: event["at"]),
            TableColumn("ABOUT", event_about),
            TableColumn("NAME", lambda event: event["task"]["name"] or "" if event.get("task") else "", rank=3),
            TableColumn("EVENT", event_words),
            TableColumn("WHERE", lambda event: where(event["task"]) if event.get("task") else "", rank=1),
            TableColumn("OWNER", lambda event: event["task"]["owner"] if event.get("task") else "", rank=2),
            TableColumn("CAUSE", lambda event: event.get("cause") or event.get("reason") or "", flexible=True),
        )

    def all_rows(self) -> list[Row]:
        return list(reversed(self.cluster.events))

    def notes(self) -> list[str]:
        """That there may be older events."""
        count = len(self.cluster.events)
        return [f"last {count:,} events (older: agentless events --last N)"] if count >= REMEMBERED else []

    def name_of(self, row: Row) -> object:
        return row["seq"]

    def task_of(self, row: Row) -> Row | None:
        """The task of the event, in its present state."""
        return self.cluster.tasks.get(row["task"]["id"], row["task"]) if row.get("task") else None

    def node_of(self, row: Row) -> str | None:
        return row.get("node")


def _when(event: Row) -> str:
    return datetime.fromtimestamp(event["at"], UTC).astimezone().strftime("%m-%d %H:%M:%S")


def event_about(event: Row) -> str:
    """The task or node of an event."""
    return str(event["task"]["id"] if event.get("task") else event.get("node") or event["kind"])


def event_words(event: Row) -> Piece:
    """What has happened; the event of a node is colored as what it is called, for its state may be another one."""
    if event.get("task"):
        return happened(event), look.style_of(event["task"]["state"])
    words = event.get("event") or event["state"]
    return words.capitalize(), look.style_of(words) or look.style_of(event.get("state", ""))
