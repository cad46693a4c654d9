"""`agentless queue` and `explain`: who waits, for what, and until when."""

from __future__ import annotations

from typing import Any

import typer

from agentless.cli.common import Json, TaskArgument, client, print_json, say
from agentless.cli.table import Column, show
from agentless.cli.words import local, what


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(queue)
    app.command()(explain)


def queue(context: typer.Context, as_json: Json = False) -> None:
    """Show who waits, in the order in which they come, and when they start at the latest."""
    found = client(context).get("/v1/queue")
    if as_json:
        print_json(found)
    elif found:
        show(_COLUMNS, found)
    else:
        say("nobody waits")


def explain(context: typer.Context, task: TaskArgument, as_json: Json = False) -> None:
    """Say why a task does not start: what stands in the way on each node, and when it will start."""
    found = client(context).get(f"/v1/tasks/{task}/explain")
    if as_json:
        print_json(found)
        return
    print(found["summary"])
    for obstacle in found["obstacles"]:
        print(f"  {obstacle['node']}: {obstacle['text']}")
        for line in obstacle["details"]:
            print(f"    {line}")


def _start(task: dict[str, Any]) -> str:
    if task["scheduled_for"]:
        return f"after {local(task['scheduled_for'])}"
    return local(task["expected_start"]) or "not known"


_COLUMNS = [
    Column("#", lambda task: str(task["position"] or "-"), right=True),
    Column("ID", lambda task: task["id"]),
    Column("WANTS", lambda task: task["target"]),
    Column("PRIORITY", lambda task: str(task["priority"]), right=True),
    Column("STARTS", _start),
    Column("COMMAND", what, flexible=True),
]
