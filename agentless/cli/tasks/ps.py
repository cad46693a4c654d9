"""`agentless ps`: the tasks, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.formats import TASKS, Output
from agentless.cli.output import print_line, say
from agentless.cli.pager import paged
from agentless.cli.table import Column, show
from agentless.cli.tasks.batch import members, parameters_of
from agentless.client.client import Client
from agentless.client.words import command_line, date, in_gangs, ports, process_words, ran, rank, state, where, why
from agentless.errors import UsageError

if TYPE_CHECKING:
    from agentless.tui.data.cluster import ClusterState


_MOST = 1_000_000
"""Maximum number of ended tasks that are listed, or searched for a state."""


def add_to(app: typer.Typer) -> None:
    app.command()(ps)


def ps(
    context: typer.Context,
    ended: Annotated[bool, typer.Option("--all", "-a", help="List ended tasks, too")] = False,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="List only tasks in this state, such as failed, also ended ones"),
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="List only your own tasks")] = False,
    batch: Annotated[
        str | None, typer.Option(metavar="TASK", help="List only the batch of this task", autocompletion=complete.tasks)
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, max=_MOST, metavar="N", help="With --all: list at most N ended tasks")
    ] = 100,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print task ids only")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update the list until Ctrl-C")] = False,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """List live tasks, yours and everybody else's."""
    if quiet + watch + (as_json or output is not None) > 1:
        raise UsageError("--quiet, --watch and -o cannot be combined; use one of them")
    style = TASKS.format(as_json, "name" if quiet else output)
    wanted = _checked(states)
    served = client(context)
    ended = ended or bool(wanted)
    if watch:
        _watch(served, ended=ended, mine=mine, batch=batch, states=wanted)
    found = served.get("/v1/tasks", ended=ended, mine=mine, batch=batch, limit=_MOST if wanted else limit)
    found = in_gangs(task for task in found if not wanted or task["state"] in wanted)
    none = "No tasks" if ended else "No live tasks. To list ended ones: agentless ps --all"
    with paged():
        style.show(found, columns_for(found), none)
        if style.is_table:
            _say_notes(found, limit if batch is None and not wanted else 0)


def _checked(states: list[str] | None) -> list[str]:
    """The states, which may be separated by commas; raises UsageError for one that is none."""
    if not states:
        return []
    from agentless.model.tasks.task import STATES

    found = [each.strip() for word in states for each in word.split(",")]
    if unknown := [each for each in found if each not in STATES]:
        raise UsageError(f"--state {unknown[0][:80]!r}: no such state; use one of {', '.join(STATES)}")
    return found


def _say_notes(found: list[dict[str, Any]], limit: int) -> None:
    """Print below the table what it leaves out; `limit` is the number of ended tasks at which the list was cut."""
    if sum(task["ended_at"] is not None for task in found) >= limit > 0:
        say(f"Only the newest {limit} ended tasks are listed. For more: --limit {limit * 10}")
    for task in found:
        for process in task["intruders"]:
            say(f"Foreign process on {where(task)}, beside task {task['id']}: {process_words(process)}")


def _watch(served: Client, *, ended: bool, mine: bool, batch: str | None, states: list[str]) -> None:
    from agentless.cli.nodes.watch import watch

    ids = None if batch is None else {task["batch"] for task in members(served, batch)}

    def wanted(task: dict[str, Any]) -> bool:
        shown = (ended or task["ended_at"] is None) and (not states or task["state"] in states)
        return shown and (task["mine"] or not mine) and (not ids or task["batch"] in ids)

    def print_tasks(cluster: ClusterState) -> None:
        known = sorted(cluster.tasks.values(), key=lambda task: (task["created_at"], task["id"]))
        found = in_gangs(filter(wanted, known))
        if found:
            show(columns_for(found), found)
        else:
            print_line("no live tasks")

    watch(served, print_tasks)


def columns_for(found: list[dict[str, Any]]) -> list[Column]:
    """The columns for these tasks; the owner only where one of them is somebody else's."""
    mine = all(task["mine"] for task in found)
    return [
        Column("ID", lambda task: task["id"]),
        Column("RANK", rank),
        Column("STATE", state),
        Column("WHERE", where),
        Column("TIME", ran, right=True),
        Column("NAME", lambda task: task["name"] or ""),
        Column("OWNER", lambda task: "" if mine else task["owner"]),
        Column("BATCH", lambda task: task["batch"], wide=True),
        Column("PRIORITY", lambda task: str(task["priority"]), right=True, wide=True),
        Column("CREATED", lambda task: date(task["created_at"]), wide=True),
        Column("IMAGE", lambda task: task["image"] or "", wide=True),
        Column("PORTS", ports, wide=True),
        *(parameters_of(found) if len({task["batch"] for task in found}) == 1 else []),
        Column("COMMAND", command_line, flexible=True),
        Column("REASON", why, wraps=True),
    ]
