"""How values look at Python's prompt and in a notebook: a line, and a table in HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from agentless.client.words import (
    command_line,
    free_gpus,
    gpus_by_type,
    left,
    memory_in_use,
    nodes_out,
    or_dash,
    ran,
    state,
    where,
)
from agentless.model.text import printable
from agentless.model.units import counted
from agentless.model.view import ClusterView, GpuView, TaskView

MOST = 50
"""The most rows of a table."""


def task_line(task: TaskView) -> str:
    """A task: `<Task 2mxf train: running on node1::0, 2h10m>`."""
    row, words = _row(task), ""
    if task.state == "running":
        words = f" on {where(row)}, {left(row)}"
    elif task.reason:
        words = f" ({task.reason})"
    name = f" {task.name}" if task.name else ""
    return printable(f"<Task {task.id}{name}: {state(row)}{words}>")


def tasks_line(kind: str, tasks: Sequence[TaskView]) -> str:
    """Several tasks: `<Batch 2mxf: 12 tasks, 9 completed, 3 running>`."""
    counts = Counter(task.state for task in tasks)
    words = [counted(len(tasks), "task"), *(f"{count} {name}" for name, count in counts.most_common())]
    return f"<{kind} {tasks[0].batch if tasks else '-'}: {', '.join(words)}>"


def tasks_table(tasks: Iterable[TaskView]) -> str:
    """Tasks as a table, with a column for each value in which they differ."""
    every = list(tasks)
    names = list(dict.fromkeys(name for task in every for name in task.parameters))
    rows: list[list[object]] = []
    for task in every:
        row = _row(task)
        values = [task.parameters.get(name, "") for name in names]
        rows.append(
            [task.id, task.name or "", *values, state(row), where(row), ran(row), task.owner, command_line(row)]
        )
    return table(["id", "name", *names, "state", "where", "time", "owner", "command"], rows)


def gpus_table(gpus: Iterable[GpuView]) -> str:
    """GPUs as a table."""
    rows: list[list[object]] = []
    for gpu in gpus:
        number = gpu.index if gpu.number is None else gpu.number
        used, memory = or_dash(gpu.utilization_pct, "%"), memory_in_use(_row(gpu))
        rows.append([gpu.node, number, gpu.name or "", gpu.state, used, memory, gpu.owner or ""])
    return table(["node", "gpu", "model", "state", "utilization", "memory", "owner"], rows)


def clusters_table(clusters: Sequence[ClusterView]) -> str:
    """Slurm clusters as a table; empty without any."""
    rows: list[list[object]] = []
    for each in clusters:
        row = _row(each)
        why = each.reason or nodes_out(row)
        rows.append([each.name, each.state, each.nodes, free_gpus(row), gpus_by_type(each.gpus), each.tasks, why])
    return table(["cluster", "state", "nodes", "free", "gpus", "tasks", "reason"], rows) if rows else ""


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """An HTML table. All texts are escaped: others may have written them."""
    head = "".join(f"<th>{escape(printable(title))}</th>" for title in titles)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(printable(str(cell)))}</td>' for cell in row)}</tr>" for row in rows[:MOST]
    )
    more = f"<p>{len(rows) - MOST:,} more</p>" if len(rows) > MOST else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _row(view: Any) -> dict[str, Any]:
    """The fields of a published value, as the words for people take them."""
    return {name: getattr(view, name) for name in type(view).__dataclass_fields__ if not name.startswith("_")}
