"""`agentless show`: all that is known of one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from agentless.cli.arguments import Json, TaskArgument
from agentless.cli.client import client
from agentless.cli.formats import TASKS, Output
from agentless.cli.output import print_line
from agentless.cli.pager import paged
from agentless.cli.tasks.gang import gang_tasks
from agentless.client.client import Client
from agentless.client.words import (
    asked_for,
    command_line,
    happened,
    job_of,
    local,
    members,
    ports,
    preempted,
    process_words,
    ran,
    requirements,
    state,
    tries,
    variables,
    where,
    whole,
)
from agentless.errors import UsageError
from agentless.model.moment import format_moment
from agentless.model.tasks.task_id import numbered
from agentless.model.units import counted, format_duration, format_size

_LOGINS = ("ssh-opened", "ssh-closed")
_LOGINS_SHOWN = 6
"""Events about logins that are shown: a copy of many files may be as many logins."""


def add_to(app: typer.Typer) -> None:
    app.command("show")(show_task)


def show_task(context: typer.Context, task: TaskArgument, as_json: Json = False, output: Output = None) -> None:
    """Show the details and the history of one task."""
    style = TASKS.format(as_json, output)
    served = client(context)
    found = served.get(f"/v1/tasks/{task}")
    with paged():
        if not style.is_table:
            style.print(found)
            return
        spec = served.get(f"/v1/tasks/{found['id']}/spec")
        events = served.get(f"/v1/tasks/{numbered(found['id'])}/events")
        tasks = gang_tasks(served, found)
        for key, value in _described(whole(found, tasks), spec).items():
            if value not in (None, ""):
                print_line(f"{key:>10}  {value}")
        for key, value in _in_workflow(served, found).items():
            print_line(f"{key:>10}  {value}")
        for row in members(found, tasks):
            print_line(f"{'member':>10}  {row}")
        print_line("")
        shown, hidden = without_old_logins(events)
        for event in shown:
            print_line(f"{format_moment(event['at'], 'seconds')}  {happened(event)}: {event['cause']}")
        if hidden:
            print_line(f"{counted(hidden, 'earlier login')} by ssh not shown: agentless events {found['id']}")


def without_old_logins(events: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """The events without those of all but the last logins, and how many logins that leaves out."""
    logins = [at for at, event in enumerate(events) if event["event"] in _LOGINS]
    hidden = frozenset(logins[:-_LOGINS_SHOWN])
    count = sum(events[at]["event"] == _LOGINS[0] for at in hidden)
    return [event for at, event in enumerate(events) if at not in hidden], count


def _described(found: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """The values to show, by label. Those without a value are left out."""
    from agentless.model.tasks.spec import Mount, Volume

    memory, shm = found["memory_bytes"], spec["shm_size"]
    return {
        "id": found["id"],
        "name": found["name"],
        "state": state(found),
        "reason": found["reason"],
        "target": asked_for(found),
        "where": where(found) if found["gpu_uuids"] or found["container"] else None,
        "nodes": found.get("compute_nodes"),
        "gpus": ", ".join(found["gpu_uuids"]),
        "image": found["image"],
        "command": command_line(found),
        "cores": found["cores"],
        "memory": format_size(memory) if memory else None,
        "shm size": format_size(shm) if shm else None,
        "variables": ", ".join(variables(spec)),
        "uploads": ", ".join(f"{each['source']}:{each['target']}" for each in spec["uploads"]),
        "outputs": "; ".join(
            f"{each['path']}: {each['words']}" + (f" in {each['local']}" if each["files"] else "")
            for each in found["outputs"]
        ),
        "mounts": ", ".join(str(Mount(**mount)) for mount in spec["mounts"]),
        "volumes": ", ".join(str(Volume(**volume)) for volume in spec["volumes"]),
        "ssh": _who_enters(spec),
        "ports": ports(found),
        "notify": _or_none(spec.get("notify")),
        "labels": ", ".join(f"{key}={value}" for key, value in found["labels"].items()),
        "batch": found["batch"],
        "owner": found["owner"],
        "queue": found["position"] and f"number {found['position']}" + (", moved manually" if found["moved"] else ""),
        "starts": _starts(found),
        "priority": found["priority"] or None,
        "created": local(found["created_at"]),
        "started": local(found["started_at"]),
        "ended": local(found["ended_at"]),
        "ran": ran(found) if found["started_at"] else None,
        "time limit": None if found["time_limit"] is None else format_duration(found["time_limit"]),
        **_ends(spec["terms"]),
        "after": requirements(found.get("requires") or ()),
        "waits for": requirements(found.get("waits_for") or ()) if found["state"] == "blocked" else None,
        "overflow": _or_none(spec["terms"].get("overflow")),
        "gives way": _gives_way(spec["terms"]),
        "scheduled": local(found["scheduled_for"]),
        "try": tries(found),
        "preempted": preempted(found),
        "preempts": ", ".join(found.get("victims") or ()),
        "retried as": found["retried_as"],
        "exit code": found["exit_code"],
        "job": job_of(found),
        "container": None if job_of(found) else found["container"] and found["container"][:12],
        "intruders": "; ".join(map(process_words, found["intruders"])),
    }


def _starts(found: dict[str, Any]) -> str | None:
    """When a task in a queue is expected to start; None for any other."""
    if found["state"] not in ("pending", "submitted"):
        return None
    return f"{local(found['expected_start'])}, {ran(found)}" if found["expected_start"] else "unknown"


def _in_workflow(served: Client, task: dict[str, Any]) -> dict[str, str]:
    """The job of a workflow that a task is, and the jobs before and after it."""
    if not task.get("workflow") or task["foreign"]:
        return {}
    from agentless.client.workflow_graph import neighbours

    workflow = served.get(f"/v1/workflows/{task['workflow']}")
    before, behind = neighbours(task, (job["task"] for job in workflow["jobs"]))
    found = {"workflow": f"{workflow['id']} ({workflow['name']}), job {task['job']}"}
    return found | {key: jobs for key, jobs in (("requires", before), ("needed by", behind)) if jobs}


def _or_none(chosen: Sequence[str] | None) -> str | None:
    """What a task chooses itself: words, or `none`; None if it chooses nothing."""
    return None if chosen is None else ", ".join(chosen) or "none"


def _gives_way(terms: dict[str, Any]) -> str | None:
    """On which terms a preemptible task gives way; None for any other."""
    if not terms.get("preemptible"):
        return None
    least = f"after {format_duration(terms['min_run'])}" if terms["min_run"] else "at any time"
    return f"{least}; then it {'ends' if terms['on_preempt'] == 'end' else 'goes back to the queue'}"


def _ends(terms: dict[str, Any]) -> dict[str, str | None]:
    """When a VPS stops by itself, and what happens then."""
    expires, idle, kept = terms["expires"], terms["idle_stop"], terms["snapshot_on_stop"]
    return {
        "expires": f"{format_duration(expires)} after its start" if expires else None,
        "idle stop": f"after {format_duration(idle)} without use" if idle else None,
        "snapshots": f"on stop; the last {kept} are kept" if kept else None,
    }


def _who_enters(spec: dict[str, Any]) -> str:
    """Who else may enter a VPS by ssh."""
    from agentless.model.tasks.public_key import parse_public_keys

    if spec["no_ssh"]:
        return "nobody (--no-ssh)"
    try:
        return ", ".join(map(str, parse_public_keys(spec["public_keys"])))
    except UsageError as error:
        return f"nobody else: {error}"
