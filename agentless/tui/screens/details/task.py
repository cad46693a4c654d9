"""A task in full."""

from __future__ import annotations

from typing import Any

from agentless.client.words import (
    WAITING,
    asked_for,
    command_line,
    happened,
    local,
    members,
    ports,
    preempted,
    process_words,
    ran,
    state,
    tries,
    where,
    whole,
)
from agentless.client.workflow_graph import neighbours
from agentless.model.moment import format_moment
from agentless.model.text import printable
from agentless.model.units import format_duration, format_size
from agentless.tui.data.actions import path_of
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.screens.details.base import Details
from agentless.tui.screens.details.parts import Part, colour_of, explained, labelled


class TaskDetails(Details):
    """A task: its request, why it is pending, its events, and its script."""

    def __init__(self, cluster: ClusterState, task: Row) -> None:
        super().__init__(cluster)
        self._row = task

    @property
    def about_task(self) -> Row:
        """The task in its present state."""
        return self.cluster.tasks.get(self._row["id"], self._row)

    @property
    def about_node(self) -> str | None:
        node: str | None = self.about_task["node"]
        return node

    def cluster_changed(self, changed: set[str]) -> None:
        """Show it again, and ask again if the task has changed."""
        before, self._row = self._row, self.about_task
        super().cluster_changed(changed)
        if before["state"] != self._row["state"] or before["position"] != self._row["position"]:
            self.ask()

    def known(self) -> list[Part]:
        task = whole(self.about_task, self.cluster.tasks.values())
        gpus = ", ".join(task["gpu_uuids"])
        fields = [
            ("owner", task["owner"]),
            ("target", asked_for(task)),
            ("where", where(task) if task["node"] else ""),
            ("GPUs", gpus),
            ("time", ran(task) if task["started_at"] else ""),
            ("command", command_line(task)),
            ("image", task["image"]),
            ("variables", ", ".join(task["env_names"])),
            ("cores", task["cores"]),
            ("memory", format_size(task["memory_bytes"]) if task["memory_bytes"] else None),
            ("time limit", format_duration(task["time_limit"]) if task["time_limit"] else None),
            ("priority", task["priority"] or None),
            ("batch", task["batch"] if task["batch"] != task["id"] else None),
            *self._siblings(),
            ("parameters", ", ".join(f"{key}={value}" for key, value in task["parameters"].items())),
            ("ports", ports(task)),
            ("forwarded", ", ".join(self.app.forwards.of(task))),  # type: ignore[attr-defined]
            ("labels", ", ".join(f"{key}={value}" for key, value in task["labels"].items())),
            ("try", tries(task)),
            ("preemptible", "gives way to tasks that need its place" if task.get("preemptible") else None),
            ("preempted", preempted(task)),
            ("preempts", ", ".join(task.get("victims") or ())),
            ("created", local(task["created_at"])),
            ("started", local(task["started_at"])),
            ("ended", local(task["ended_at"])),
            ("expected start", local(task["expected_start"])),
            ("container", (task["container"] or "")[:12]),
            ("reason", task["reason"]),
        ]
        title = printable(f"{task['id']}  {task['name'] or ''}")
        parts: list[Part] = [(f"{title.strip()}  ", "bold"), (state(task), colour_of(task["state"])), "\n\n"]
        parts += labelled(fields)
        for process in task["intruders"]:
            parts += [("intruder  ", "$text-error"), f"{printable(process_words(process))}\n"]
        return parts

    def _siblings(self) -> list[tuple[str, str]]:
        """The other members of its gang, and its place in a workflow."""
        task, known = self.about_task, self.cluster
        found = [("" if number else "gang", row) for number, row in enumerate(members(task, known.tasks.values()))]
        if task.get("workflow"):
            name = known.workflows.get(task["workflow"], {}).get("name", "")
            before, behind = neighbours(task, known.tasks_of(task["workflow"]).values())
            found.append(("workflow", f"{task['workflow']} {name}, job {task['job']}; press w for its graph"))
            found += [("requires", before), ("needed by", behind)]
        return found

    def asked(self) -> list[Part]:
        task = self.about_task
        parts: list[Part] = []
        if task["state"] in WAITING:
            parts += [("\nWhy it is pending\n", "bold"), *explained(self.get(f"{path_of(task)}/explain"))]
        parts += [("\nEvents\n", "bold"), *_events(self.get(f"{path_of(task)}/events"))]
        parts += [("\nScript run on the node\n", "bold"), *_script(self.get(f"{path_of(task)}/script"))]
        return parts


def _events(found: Any) -> list[Part]:
    if isinstance(found, str):
        return [f"  {found}\n"]
    parts: list[Part] = []
    for event in found:
        parts += [
            (f"  {format_moment(event['at'], 'seconds')}  ", "dim"),
            (happened(event), colour_of(event["task"]["state"])),
            f"  {printable(event['cause'])}\n",
        ]
    return parts


def _script(found: Any) -> list[Part]:
    if isinstance(found, str):
        return [f"  {found}\n"]
    # Values in it may have line breaks: the bar marks what belongs to the script.
    lines = "".join(f"  │ {line}\n" for line in found["script"].split("\n"))
    return [(f"  # {found['node']}, {found['address']}\n", "dim"), lines]
