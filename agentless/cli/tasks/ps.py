"""`agentless ps`: the tasks, one line each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.formats import TASKS, Output
from agentless.cli.output import say
from agentless.cli.pager import paged
from agentless.cli.table import Column
from agentless.cli.tasks.batch import parameters_of
from agentless.client.words import command_line, date, process_words, ran, state, where, why


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
    output: Output = None,
) -> None:
    """List tasks: what is live on the nodes, whoever started it."""
    style = TASKS.format(as_json, output)
    found = client(context).get("/v1/tasks", ended=ended, mine=mine, batch=batch, limit=limit)
    none = "No tasks" if ended else "No live tasks. To list ended ones: agentless ps --all"
    with paged():
        style.show(found, columns_for(found), none)
        if style.is_table:
            _say_notes(found, limit if batch is None else 0)


def _say_notes(found: list[dict[str, Any]], limit: int) -> None:
    """Print below the table what it leaves out; `limit` is the number of ended tasks at which the list was cut."""
    if sum(task["ended_at"] is not None for task in found) >= limit > 0:
        say(f"Only the newest {limit} ended tasks are listed. For more: --limit {limit * 10}")
    for task in found:
        for process in task["intruders"]:
            say(f"Intruder on {where(task)}, next to task {task['id']}: {process_words(process)}")


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
        Column("BATCH", lambda task: task["batch"], wide=True),
        Column("PRIORITY", lambda task: str(task["priority"]), right=True, wide=True),
        Column("CREATED", lambda task: date(task["created_at"]), wide=True),
        Column("IMAGE", lambda task: task["image"] or "", wide=True),
        *(parameters_of(found) if len({task["batch"] for task in found}) == 1 else []),
        Column("COMMAND", command_line, flexible=True),
        Column("REASON", why, wraps=True),
    ]
