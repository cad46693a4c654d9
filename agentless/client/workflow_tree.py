"""A workflow as a tree of lines: each job below the last one that it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentless.client.words import ran, state, where
from agentless.model.tasks.task_id import first_try

_BEGUN = ("assigning", "running", "paused", "lost")
_FAILED = ("failed", "killed_oom", "timeout")
MARKS = {"failed": "✗", "running": "●", "waiting": "○", "completed": "✓", "other": "–"}
"""What stands in front of a job."""
_HOW = {
    "failed": "if {} fails",
    "any failed": "if any of {} fails",
    "all failed": "if all of {} fail",
    "ended": "when {} has ended",
}


@dataclass(slots=True)
class Branch:
    """A job with its tasks, and how it waits for other jobs, by their names."""

    job: str
    tasks: list[dict[str, Any]] = field(default_factory=list)
    after: dict[str, str] = field(default_factory=dict)
    below: list[Branch] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """What its mark says."""
        states = {task["state"] for task in self.tasks}
        if states & {*_FAILED}:
            return "failed"
        if states & {*_BEGUN}:
            return "running"
        if any(task["ended_at"] is None for task in self.tasks):
            return "running" if states & {"completed"} else "waiting"
        return "completed" if states == {"completed"} else "other"

    @property
    def name(self) -> str:
        """Its name, and how many tasks it has."""
        return self.job + (f" ×{len(self.tasks)}" if len(self.tasks) > 1 else "")

    @property
    def words(self) -> str:
        """How far it is."""
        if len(self.tasks) > 1:
            counts = Counter(task["state"] for task in self.tasks)
            return ", ".join(f"{count} {word}" for word, count in counts.items())
        (task,) = self.tasks
        if task["started_at"]:
            return f"{state(task)} {'in' if task['ended_at'] else 'for'} {ran(task)}, {where(task)}"
        return state(task)


def branches(jobs: Sequence[dict[str, Any]]) -> list[Branch]:
    """The jobs of a workflow that wait for no other one, with all others below them."""
    by_task = {first_try(job["task"]["id"]): job["job"] for job in jobs}
    several = Counter(job["job"] for job in jobs)
    found: dict[str, Branch] = {}
    depth: dict[str, int] = {}
    for job in jobs:  # each behind those that it waits for
        branch = found.setdefault(job["job"], Branch(job["job"]))
        branch.tasks.append(job["task"])
        for requirement in job["requires"]:
            name = by_task.get(requirement["on"], requirement["on"])
            if name != job["job"]:
                branch.after.setdefault(name, how(requirement, several[name]))
        depth[job["job"]] = 1 + max((depth.get(name, 0) for name in branch.after), default=0)
    order = {name: number for number, name in enumerate(found)}
    tops = []
    for name, branch in found.items():
        above = [each for each in branch.after if order.get(each, len(order)) < order[name]]
        if above:
            found[max(above, key=lambda each: depth[each])].below.append(branch)
        else:
            tops.append(branch)
    return tops


def how(requirement: dict[str, Any], tasks: int) -> str:
    """How a job has to end that has so many tasks: `failed`, `any failed`."""
    if requirement["state"] != "failed" or tasks < 2:
        return str(requirement["state"])
    return "any failed" if requirement.get("one_of") else "all failed"


def lines(jobs: Sequence[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Of each job the lines that lead to it, its kind, its name, and how far it is with what else it waits for."""
    found: list[tuple[str, str, str, str]] = []

    def add(branch: Branch, lead: str, below: str, parent: str) -> None:
        notes = [branch.words, *_notes(branch, parent)]
        found.append((lead, branch.kind, branch.name, "; ".join(notes)))
        if len(branch.below) == 1:  # a chain goes down, not to the right: it may be long
            add(branch.below[0], below + "↓ ", below, branch.job)
            return
        for each in branch.below:
            is_last = each is branch.below[-1]
            add(each, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  "), branch.job)

    for top in branches(jobs):
        add(top, "", "", "")
    return found


def _notes(branch: Branch, parent: str) -> list[str]:
    """What a job waits for, as far as its place in the tree does not tell."""
    others = [name for name, end in branch.after.items() if name != parent and end == "completed"]
    notes = [_HOW[end].format(name) for name, end in branch.after.items() if end != "completed"]
    return [*notes, *([f"also after {', '.join(others)}"] if others else [])]
