"""`agentless ps`: the tasks, one line each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.output import print_json, say
from agentless.cli.table import Column, show
from agentless.cli.tasks.batch import parameters_of
from agentless.client.words import command_line, process_words, ran, state, where, why


def add_to(app: typer.Typer) -> None:
    app.command()(ps)


def ps(
    context: typer.Context,
    ended: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own.")] = False,
    batch: Annotated[str | None, typer.Option(metavar="TASK", help="Only the batch that this task is in.")] = None,
    limit: Annotated[
        int, typer.Option(min=0, max=1_000_000, metavar="N", help="With --all: this many ended ones.")
    ] = 100,
    as_json: Json = False,
) -> None:
    """List tasks: what is live on the nodes, whoever started it."""
    served = client(context)
    found = served.get("/v1/tasks", ended=ended, mine=mine, batch=batch, limit=limit)
    if as_json:
        print_json(found)
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
