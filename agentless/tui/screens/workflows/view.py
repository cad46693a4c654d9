"""The view of workflows."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.client.words import date, lasted
from agentless.client.workflow_graph import done_in_words
from agentless.model.tasks.task import LIVE
from agentless.tui.data.cluster import ENDED_WORKFLOWS, Row
from agentless.tui.screens.view import View
from agentless.tui.widgets import look
from agentless.tui.widgets.table import TableColumn


class Workflows(View):
    """A row for each workflow: those that have not ended, then the newest that have."""

    KINDS = frozenset({"workflows", "tasks"})
    EMPTY = (
        "No workflows. A workflow is a file of jobs that start one after another.",
        "",
        "To run one:",
        "agentless workflow run FILE",
    )

    def columns(self) -> Sequence[TableColumn]:
        return (
            TableColumn("ID", lambda each: each["id"]),
            TableColumn("NAME", lambda each: each["name"]),
            TableColumn("STATE", lambda each: (each["state"], look.style_of(each["state"]))),
            TableColumn("TIME", lasted, right=True, rank=1),
            TableColumn("OWNER", lambda each: each["owner"], rank=2),
            TableColumn("CREATED", lambda each: date(each["created_at"]), lambda each: each["created_at"], rank=3),
            TableColumn("JOBS", done_in_words, _share, flexible=True),
        )

    def all_rows(self) -> list[Row]:
        found = sorted(self.cluster.workflows.values(), key=lambda each: each["id"], reverse=True)
        return [
            *(each for each in found if each["ended_at"] is None),
            *(each for each in found if each["ended_at"] is not None),
        ]

    def name_of(self, row: Row) -> object:
        """Its id."""
        return row["id"]

    def task_of(self, _: Row) -> Row | None:
        """None: it has many."""

    def node_of(self, _: Row) -> str | None:
        """None: it has tasks on many."""

    @property
    def about_workflow(self) -> Row | None:
        """The chosen one."""
        return self.chosen

    def notes(self) -> list[str]:
        """That older ones are elsewhere."""
        ended = sum(each["ended_at"] is not None for each in self.cluster.workflows.values())
        older = f"last {ended} ended workflows (older: agentless workflow list)"
        return [older] if ended >= ENDED_WORKFLOWS else []


def _share(workflow: Row) -> float:
    """How much of it has ended."""
    counts = workflow["counts"]
    ended = sum(count for word, count in counts.items() if word not in LIVE)
    return float(ended / (sum(counts.values()) + workflow.get("missing", 0)))
