"""One workflow as a graph: the drawing of `workflow show --graph`, live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from agentless.client.client import Breaker, BrokenOff
from agentless.client.words import date, lasted
from agentless.client.workflow_graph import MARKS, JobTasks, Line, done_in_words, how_far, kind_of, lines
from agentless.errors import AgentlessError
from agentless.model.tasks.task_id import first_try
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.incoming import in_app
from agentless.tui.screens.details.parts import Part, colour_of
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.lines import Piece, content
from agentless.tui.widgets.table import GAP, Table, TableColumn

STYLES = {"failed": "bad", "running": "held", "waiting": "warn", "completed": "good", "other": "dim"}
"""The style of each kind of mark."""
_BAR = (("completed", "$text-success"), ("failed", "$text-error"), ("running", "$text-primary"))


class _Graph(Table):
    """A table whose first column is the drawing."""

    def __init__(self) -> None:
        columns = (
            TableColumn(" ", lambda row: row["left"] + row["mark"] + row["right"]),
            TableColumn("JOB", self._job),
            TableColumn("STATE", lambda row: (row["words"], row["style"]), flexible=True),
            TableColumn("AFTER", lambda row: (row["follows"], "dim"), rank=1),
        )
        super().__init__(columns, lambda row: row["key"])

    def pieces(self, row: Row, style: str = "") -> list[Piece]:
        """The cells; of the drawing only the mark has the colour of the job."""
        first, *rest = super().pieces(row, style)
        at, text = len(row["left"]), first[0]
        lanes = f"dim {style}".strip()
        mark = (text[at : at + len(row["mark"])], f"{row['style']} {style}".strip())
        return [(text[:at], lanes), mark, (text[at + len(row["mark"]) :], lanes), *rest]

    def _job(self, row: Row) -> str:
        room = max(12, (self.size.width - GAP) * 2 // 5)
        name = printable(row["name"])
        return name if len(name) <= room else name[: room - 1] + "…"


class WorkflowScreen(Screen[None]):
    """The jobs of one workflow, each below those that it waits for. A job with many tasks is one row until opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "app.pop_screen", "Back", tooltip="leave this screen"),
    ]
    CSS = """
    WorkflowScreen > .title { background: $panel; height: auto; max-height: 2; text-overflow: ellipsis; }
    WorkflowScreen > .bar { height: 1; }
    WorkflowScreen > Table { height: 1fr; }
    WorkflowScreen > .note { height: auto; max-height: 3; color: $text-muted; }
    """

    def __init__(self, cluster: ClusterState, workflow: str) -> None:
        super().__init__()
        self._cluster, self._workflow = cluster, workflow
        self._row: Row = cluster.workflows.get(workflow) or {}
        self._lines: list[Line | None] = []
        self._opened: set[str] = set()
        self._table = _Graph()
        self._title = Static(markup=False, classes="title")
        self._bar = Static(markup=False, classes="bar")
        self._note = Static("Loading …", markup=False, classes="note")
        self._breaker = Breaker()

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._bar
        yield self._table
        yield self._note
        yield KeyLine()

    def on_mount(self) -> None:
        """Show what is known, and ask for all jobs."""
        self.set_focus(self._table.body)
        self._describe()
        self.run_worker(self._ask, thread=True)

    def on_unmount(self) -> None:
        self._breaker.break_off()

    @property
    def about_workflow(self) -> Row | None:
        """The workflow in its present state."""
        return self._row or None

    @property
    def about_task(self) -> Row | None:
        """The task of the chosen row; of a job with many the one that wants attention first."""
        tasks = self._table.chosen["tasks"] if self._table.chosen else ()
        urgent = ("failed", "running", "waiting", "completed", "other")
        return min(tasks, key=lambda task: urgent.index(kind_of([task])), default=None)

    @property
    def about_node(self) -> None:
        """None: it has tasks on many."""

    def cluster_changed(self, changed: set[str]) -> None:
        """Show what is known now."""
        if changed & {"tasks", "workflows"} and self.is_mounted:
            self._row = self._cluster.workflows.get(self._workflow, self._row)
            self._renew()
            self._table.show(list(self._rows()))
            self._describe()

    def on_resize(self) -> None:
        """Draw the bar for this width."""
        self._describe()

    def on_table_opened(self, event: Table.Opened) -> None:
        """Show the task, or all tasks of the job below it."""
        event.stop()
        row = self._table.chosen
        if row is None:
            return
        if len(row["tasks"]) == 1:
            self.app.push_screen(TaskDetails(self._cluster, row["tasks"][0]))
        elif row["tasks"]:
            self._opened ^= {row["key"]}
            self._table.show(list(self._rows()))

    # ------------------------------------------------------------------ inside

    def _ask(self) -> None:
        """Ask for the jobs; called in a thread."""
        client: Any = self.app.client  # type: ignore[attr-defined]
        try:
            with self._breaker.watching():
                found, note = client.get(f"/v1/workflows/{self._workflow}"), ""
        except BrokenOff:
            return
        except AgentlessError as error:
            found, note = None, str(error)
        in_app(self.app, self.take, found, note)

    def take(self, found: Row | None, note: str = "") -> None:
        """The jobs have come, or why not."""
        if self.is_mounted:
            self._note.update(content(note))
            self._note.display = bool(note)
            if found:
                self._row, self._lines = self._cluster.workflows.get(self._workflow, found), lines(found["jobs"])
            self.cluster_changed({"tasks"})
            self.app.refresh_bindings()

    def _renew(self) -> None:
        """Bring all tasks to what is known now."""
        now = self._cluster.tasks_of(self._workflow)
        for line in filter(None, self._lines):
            line.job.tasks[:] = [now.get(first_try(task["id"]), task) for task in line.job.tasks]

    def _rows(self) -> Iterator[Row]:
        for number, line in enumerate(self._lines):
            if line is None:
                yield _row(number, "", "", "", "", [], "dim")
                continue
            job, kind = line.job, line.kind
            many = len(job.tasks) > 1
            name = job.name + ((" ▾" if job.job in self._opened else " ▸") if many else "")
            yield _row(job.job, line.left, MARKS[kind], line.right, name, job.tasks, STYLES[kind]) | {
                "words": job.words,
                "follows": job.follows,
            }
            if many and job.job in self._opened:
                yield from _members(line, job)

    def _describe(self) -> None:
        row = self._row
        if not row:
            return
        self._title.update(
            content(
                f"Workflow {row['id']}  {printable(row['name'])}  ",
                (row["state"], colour_of(row["state"])),
                f"  {done_in_words(row)}  {lasted(row)}  {printable(row['owner'])}  created {date(row['created_at'])}",
            )
        )
        self._bar.update(content(*_bar(row["counts"], row.get("missing", 0), self.size.width)))


def _row(key: object, left: str, mark: str, right: str, name: str, tasks: list[Row], style: str) -> Row:
    return {
        "key": key, "left": left, "mark": mark, "right": right, "name": name, "tasks": tasks, "style": style,
        "words": "", "follows": "",
    }  # fmt: skip


def _members(line: Line, job: JobTasks) -> Iterator[Row]:
    """A row for each task of a job with many."""
    for task, parameters in zip(job.tasks, job.parameters, strict=True):
        kind, first = kind_of([task]), first_try(task["id"])
        names = [f"{key}={value}" for key, value in parameters.items()]
        names += [f"rank {task['gang']['rank']}"] if task.get("gang") else []
        name = "  " + (", ".join(names) or first)
        yield _row(first, line.below, "", "", f"{MARKS[kind]} {name}", [task], STYLES[kind]) | {"words": how_far(task)}


def _bar(counts: Row, missing: int, width: int) -> list[Part]:
    """How far it is, in colours: completed, failed, running, and the rest."""
    total = sum(counts.values()) + missing
    parts: list[Part] = []
    used = 0
    for kind, colour in _BAR:
        share = sum(count for word, count in counts.items() if kind_of([{"state": word}]) == kind)
        columns = min(width - used, -(-share * width // total)) if total else 0
        parts.append(("█" * columns, colour))
        used += columns
    return [*parts, ("░" * (width - used), "$track")]
