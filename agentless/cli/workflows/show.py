"""`agentless workflow list` and `show`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.output import has_colours, print_line, say
from agentless.cli.pager import paged
from agentless.cli.table import Column, cut, width
from agentless.cli.table import show as show_table
from agentless.cli.tasks.exit_code import own_code
from agentless.cli.workflows.arguments import WorkflowArgument
from agentless.client.client import Client
from agentless.client.words import date, local, ran, state, where, why
from agentless.errors import UsageError
from agentless.model.tasks.task import LIVE
from agentless.model.tasks.task_id import first_try
from agentless.model.text import printable
from agentless.model.units import counted

_KIND = Kind("view.WorkflowView", lambda workflow: str(workflow["id"]))
_COLOURS = {"failed": 31, "running": 36, "completed": 32, "waiting": 33, "other": 2}
_LEAST = 12
"""The least room for what a job comes after."""


def show_list(
    context: typer.Context,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own workflows")] = False,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """List workflows, the newest first."""
    style = _KIND.format(as_json, output)
    none = "No workflows. To run one: agentless workflow run FILE"
    served = client(context)
    style.show(served.get("/v1/workflows", mine=mine), _COLUMNS, none)
    if style.is_table:
        _say_unknown(served)


def _say_unknown(served: Client) -> None:
    """Point to `recover` if tasks of the user's workflows run that are unknown here, after the state was lost."""
    tasks = [task for task in served.get("/v1/tasks", mine=True) if task["foreign"] and task["workflow"]]
    if tasks:
        nodes = ", ".join(sorted({str(task["node"]) for task in tasks}))
        say(f"{counted(len(tasks), 'task')} on {nodes} of workflows unknown here. If you ran them: agentless recover")


def show(
    context: typer.Context,
    workflow: WorkflowArgument,
    graph: Annotated[bool, typer.Option("--graph", "-g", help="Draw what waits for what")] = False,
    text: Annotated[bool, typer.Option("--text", help="Print the file that was run")] = False,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """Show the jobs of a workflow."""
    style = _KIND.format(as_json, output)
    found = client(context).get(f"/v1/workflows/{workflow}")
    with paged():
        if text:
            print("\n".join(map(printable, found["text"].splitlines())))  # noqa: T201
        elif not style.is_table:
            style.print(found)
        elif graph:
            print_graph(found)
        else:
            print_jobs(found)


def title(job: Mapping[str, Any]) -> str:
    """The name of a job, with the values by which it differs from others of its name."""
    values = ",".join(f"{key}={value}" for key, value in job["parameters"].items())
    return f"{job['job']}[{values}]" if values else str(job["job"])


def check_jobs(workflow: Mapping[str, Any], jobs: Sequence[str]) -> list[dict[str, Any]]:
    """The tasks of these jobs, by name, by title or by some values; all without names. Raises UsageError."""
    if not jobs:
        return list(workflow["jobs"])
    missing = [name for name in jobs if not any(_is_meant(each, name) for each in workflow["jobs"])]
    if missing:
        known = ", ".join(dict.fromkeys(map(title, workflow["jobs"])))
        raise UsageError(f"the workflow has no job {missing[0][:60]!r}; jobs: {known[:500]}")
    return [each for each in workflow["jobs"] if any(_is_meant(each, name) for name in jobs)]


def _is_meant(job: Mapping[str, Any], name: str) -> bool:
    from agentless.rules.workflows.graph import parse_reference

    if name in (job["job"], title(job)):
        return True
    wanted = parse_reference(name)
    return bool(wanted.job == job["job"] and wanted.values.items() <= job["parameters"].items())


def exit_code(workflow: Mapping[str, Any]) -> int:
    """The exit code of an ended workflow: that of the first job that did not complete, unless it was not needed."""
    if workflow["state"] == "completed":
        return 0
    failed = [job["task"] for job in workflow["jobs"] if job["task"]["state"] not in ("completed", "cancelled")]
    return next(filter(None, map(own_code, failed)), 1)


def print_jobs(workflow: Mapping[str, Any]) -> None:
    """Print a workflow and a table of its jobs."""
    from agentless.client.workflow_graph import how, sizes_of

    print_line(summary(workflow))
    names = {first_try(job["task"]["id"]): job["job"] for job in workflow["jobs"]}
    sizes = sizes_of(workflow["jobs"])

    def waits_for(job: dict[str, Any]) -> str:
        ends = ((names.get(each["on"], each["on"]), each) for each in job["requires"])
        words = ((name, how(each, sizes.get(name, 1))) for name, each in ends)
        return ", ".join(dict.fromkeys(name + (f" ({end})" if end != "completed" else "") for name, end in words))

    columns = [
        Column("JOB", title, flexible=True),
        Column("ID", lambda job: job["task"]["id"]),
        Column("STATE", lambda job: state(job["task"])),
        Column("WHERE", lambda job: where(job["task"]) if job["task"]["started_at"] else ""),
        Column("TIME", lambda job: ran(job["task"]), right=True),
        Column("AFTER", waits_for, flexible=True),
        Column("REASON", lambda job: why(job["task"]), wraps=True),
    ]
    show_table(columns, workflow["jobs"])
    if missing := workflow.get("missing", 0):
        say(f"{counted(missing, 'task')} missing: removed, or lost with the state. To see more: agentless recover")
    if workflow["not_carried"]:
        say(f"If the state is lost, recover cannot go on with this workflow: {workflow['not_carried']}")
    if sys.stderr.isatty() and workflow["state"] == "failed":
        say(f"Run again what did not complete: agentless workflow retry {workflow['id']}")


def print_graph(workflow: Mapping[str, Any]) -> None:
    """Print a workflow as a graph, which fits the terminal."""
    from agentless.client.workflow_graph import MARKS, lines

    print_line(summary(workflow))
    found = lines(workflow["jobs"])
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1 << 16
    names = min(max(width(line.job.name) for line in found if line), max(12, room * 2 // 5))
    for line in found:
        if line is None:
            print_line("")
            continue
        lanes = _coloured(line.left, 2) + _coloured(MARKS[line.kind], _COLOURS[line.kind]) + _coloured(line.right, 2)
        left = room - len(line.left + line.right) - names - 5
        name, words = cut(printable(line.job.name), names), cut(printable(line.job.words), left)
        after = printable(line.job.follows)
        after = _coloured(cut(f"  {after}", left - width(words)), 2) if after and left - width(words) > _LEAST else ""
        print(f"{lanes}  {name}{' ' * (names - width(name))}  {words}{after}")  # noqa: T201


def _coloured(text: str, code: int) -> str:
    return f"\033[{code}m{text}\033[0m" if text.strip() and has_colours() else text


def summary(workflow: Mapping[str, Any]) -> str:
    """The id, the name, and how far it is: `2mxf  train: running, 3 of 12 done (1 failed)`."""
    return f"{workflow['id']}  {workflow['name']}: {workflow['state']}, {_done(workflow)}"


def _done(workflow: Mapping[str, Any]) -> str:
    from agentless.client.workflow_graph import counts_of

    counts = counts_of(workflow)
    ended = {word: count for word, count in counts.items() if word not in LIVE}
    others = ", ".join(f"{count} {word}" for word, count in ended.items() if word != "completed")
    missing = workflow.get("missing", 0)
    words = ", ".join(filter(None, (others, f"{missing} missing" if missing else "")))
    return f"{sum(ended.values())} of {sum(counts.values()) + missing} done" + (f" ({words})" if words else "")


_COLUMNS = [
    Column("ID", lambda each: each["id"]),
    Column("NAME", lambda each: each["name"], flexible=True),
    Column("STATE", lambda each: each["state"]),
    Column("JOBS", _done),
    Column("OWNER", lambda each: each["owner"]),
    Column("CREATED", lambda each: date(each["created_at"])),
    Column("ENDED", lambda each: local(each["ended_at"]) or "", wide=True),
]
