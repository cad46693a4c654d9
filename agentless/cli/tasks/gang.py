"""Gangs on the command line: the id of the first member means all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from agentless.client.client import Client
from agentless.errors import UsageError

RankOption = Annotated[
    int | None, typer.Option("--rank", min=0, metavar="N", help="Of a task with --nodes: only the node with this rank")
]


def one_of_each(tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tasks, of each gang only the first member."""
    return [task for task in tasks if not task.get("gang") or task["gang"]["rank"] == 0]


def members_of(served: Client, task: str) -> dict[str, str]:
    """The members that this id or name means, each with its rank; empty if it means one task only."""
    gang = served.get(f"/v1/tasks/{task}").get("gang")
    return {member: str(rank) for rank, member in enumerate(gang["members"])} if gang and gang["rank"] == 0 else {}


def gang_tasks(served: Client, task: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks among which the members of its gang are; empty for a task on one node."""
    return served.get("/v1/tasks", batch=task["id"], ended=True) if task.get("gang") else []


def with_rank(served: Client, task: str, rank: int | None) -> str:
    """The task itself, or the member of its gang with this rank."""
    if rank is None:
        return task
    found = served.get(f"/v1/tasks/{task}")
    gang, nodes = found.get("gang"), found.get("job_nodes", 1)
    if nodes > 1:
        raise UsageError(
            f"task {task} is one job on {nodes} nodes, with one log, and its shell is on rank 0; omit --rank"
        )
    if not gang:
        raise UsageError(f"task {task} runs on one node; omit --rank")
    if rank >= gang["size"]:
        raise UsageError(f"--rank {rank}: task {task} has ranks 0 to {gang['size'] - 1}")
    member: str = gang["members"][rank]
    return member
