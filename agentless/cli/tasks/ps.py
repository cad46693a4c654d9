"""`agentless ps`: the tasks, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.output import print_json, print_line, say
from agentless.cli.table import Column, show
from agentless.cli.tasks.batch import members, parameters_of
from agentless.client.client import Client
from agentless.client.words import command_line, process_words, ran, state, where, why
from agentless.errors import UsageError

if TYPE_CHECKING:
    from agentless.tui.data.cluster import ClusterState


def add_to(app: typer.Typer) -> None:
    app.command()(ps)


def ps(
    context: typer.Context,
    ended: Annotated[bool, typer.Option("--all", "-a", help="List ended tasks, too")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="List only your own tasks")] = False,
    batch: Annotated[
        str | None, typer.Option(metavar="TASK", help="List only the batch of this task", autocompletion=complete.tasks)
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, max=1_000_000, metavar="N", help="With --all: list at most N ended tasks")
    ] = 100,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print task ids only")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update the list until Ctrl-C")] = False,
    as_json: Json = False,
) -> None:
    """List live tasks, yours and everybody else's."""
    if quiet + watch + as_json > 1:
        raise UsageError("--quiet, --watch and --json exclude each other; use one of them")
    served = client(context)
    if watch:
        _watch(served, ended=ended, mine=mine, batch=batch)
    found = served.get("/v1/tasks", ended=ended, mine=mine, batch=batch, limit=limit)
    if as_json:
        print_json(found)
        return
    if quiet:
        for task in found:
            print_line(task["id"])
        return
    if not found:
        say("no live task" + ("" if ended else "; agentless ps --all lists those that have ended"))
        return
    show(columns_for(found), found)
    if batch is None and sum(task["ended_at"] is not None for task in found) >= limit > 0:
        say(f"at most the newest {limit} that have ended are listed; --limit {limit * 10} lists more")
    for task in found:
        for process in task["intruders"]:
            say(f"intruder on {where(task)}, beside task {task['id']}: {process_words(process)}")


def _watch(served: Client, *, ended: bool, mine: bool, batch: str | None) -> None:
    from agentless.cli.nodes.watch import watch

    ids = None if batch is None else {task["batch"] for task in members(served, batch)}

    def wanted(task: dict[str, Any]) -> bool:
        return (ended or task["ended_at"] is None) and (task["mine"] or not mine) and (not ids or task["batch"] in ids)

    def print_tasks(cluster: ClusterState) -> None:
        found = sorted(filter(wanted, cluster.tasks.values()), key=lambda task: (task["created_at"], task["id"]))
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
        Column("STATE", state),
        Column("WHERE", where),
        Column("TIME", ran, right=True),
        Column("NAME", lambda task: task["name"] or ""),
        Column("OWNER", lambda task: "" if mine else task["owner"]),
        *(parameters_of(found) if len({task["batch"] for task in found}) == 1 else []),
        Column("COMMAND", command_line, flexible=True),
        Column("REASON", why, wraps=True),
    ]
