"""`agentless queue`: the pending tasks, what they need, and when they start."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json, TaskArgument
from agentless.cli.client import client
from agentless.cli.formats import TASKS, Kind, Output
from agentless.cli.output import print_json, print_line
from agentless.cli.table import Column
from agentless.cli.tasks.gang import one_of_each
from agentless.client.words import command_line, date, starts, where, why


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        help="List pending tasks in order; move tasks by hand. Moved tasks are marked *.", invoke_without_command=True
    )
    group.callback()(queue)
    group.command()(move)
    group.command()(top)
    app.add_typer(group, name="queue")


def queue(
    context: typer.Context,
    shares: Annotated[
        bool, typer.Option("--shares", help="Show recent usage per owner; owners with less come first")
    ] = False,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """List the pending tasks in order, with their latest start. Tasks moved by hand are marked *."""
    if context.invoked_subcommand is not None:
        return
    style = (_SHARES if shares else TASKS).format(as_json, output)
    if shares:
        owners = client(context).get("/v1/shares")
        style.show(owners, _share_columns(owners), "No recent GPU use, no pending tasks")
    else:
        found = client(context).get("/v1/queue")
        found = one_of_each(found) if style.is_table else found
        style.show(found, _columns_for(found), "Queue empty")


def move(
    context: typer.Context,
    task: TaskArgument,
    position: Annotated[int | None, typer.Argument(metavar="[POSITION]", help="New position; 1 is first")] = None,
    before: Annotated[
        str | None, typer.Option(metavar="TASK", help="Move directly before this task", autocompletion=complete.tasks)
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="TASK", help="Move directly after this task", autocompletion=complete.tasks)
    ] = None,
    as_json: Json = False,
) -> None:
    """Move a pending task to a position, or next to another task.

    It starts after the tasks ahead of it there, and before all others.
    """
    _move(context, task, {"position": position, "before": before, "after": after}, as_json=as_json)


def top(context: typer.Context, task: TaskArgument, as_json: Json = False) -> None:
    """Move a pending task to the top of the queue."""
    _move(context, task, {"position": 1}, as_json=as_json)


def _move(context: typer.Context, task: str, where: dict[str, Any], *, as_json: bool) -> None:
    found = client(context).post(f"/v1/tasks/{task}/move", where)
    if as_json:
        print_json([found])
    else:
        print_line(f"{found['id']}  number {found['position']} in the queue")


def _request(task: dict[str, Any]) -> str:
    gang = task.get("gang")
    return f"{where(task)} on {gang['size']} nodes" if gang else where(task)


def _columns_for(found: list[dict[str, Any]]) -> list[Column]:
    mine, alike = all(task["mine"] for task in found), not any(task["priority"] for task in found)
    return [
        Column("#", lambda task: f"{task['position'] or '-'}{'*' if task['moved'] else ''}", right=True),
        Column("ID", lambda task: task["id"]),
        Column("NAME", lambda task: task["name"] or ""),
        Column("OWNER", lambda task: "" if mine else task["owner"]),
        Column("REQUEST", _request),
        Column("PRIORITY", lambda task: "" if alike else str(task["priority"]), right=True),
        Column("STARTS", lambda task: starts(task) or "unknown"),
        Column("BATCH", lambda task: task["batch"], wide=True),
        Column("CREATED", lambda task: date(task["created_at"]), wide=True),
        Column("IMAGE", lambda task: task["image"] or "", wide=True),
        Column("COMMAND", command_line, flexible=True),
        Column("REASON", why, wraps=True),
    ]


_SHARES = Kind("view.ShareView", lambda share: str(share["owner"]))


def _share_columns(owners: list[dict[str, Any]]) -> list[Column]:
    lends = any(share.get("lent_gpu_hours") for share in owners)
    return [
        Column("OWNER", lambda share: share["owner"], flexible=True),
        Column("GPU-HOURS", lambda share: f"{share['gpu_hours']:.2f}", right=True),
        Column("LENT", lambda share: f"{share['lent_gpu_hours']:.2f}" if lends else "", right=True),
        Column("RUNNING", lambda share: str(share["running"]), right=True),
        Column("GPUS", lambda share: str(share["gpus"]), right=True),
        Column("PENDING", lambda share: str(share["waiting"]), right=True),
        Column("WEIGHTED", lambda share: f"{share['counted']:.2f}", right=True),
    ]
