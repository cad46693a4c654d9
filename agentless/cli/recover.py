"""`agentless recover`: take back the tasks that the nodes carry and nobody here remembers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentless.cli.common import Json, client, print_json, say
from agentless.cli.ps import columns_for
from agentless.cli.table import show
from agentless.errors import Refused


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(recover)


def recover(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take them in without asking.")] = False,
    as_json: Json = False,
) -> int:
    """Rebuild a lost state from the nodes: each container carries its whole task.

    Shows what it has found before anything is written. What runs is not touched.
    """
    served = client(context)
    found = served.get("/v1/recovery")
    for node, reason in found["silent"].items():
        say(f"{node} does not tell its tasks ({reason}); run agentless recover again when it does")
    tasks = found["tasks"]
    if tasks and not as_json:
        show(columns_for(tasks), tasks)
    if tasks and not yes:
        if not sys.stdin.isatty():
            raise Refused("nothing was written; agentless recover --yes takes these tasks in")
        if not typer.confirm(f"Take {len(tasks)} in", default=True, err=True):
            raise Refused("nothing was written")
    if tasks:
        tasks = served.post("/v1/recovery", {"tasks": [task["id"] for task in tasks]})
    if as_json:
        print_json(tasks)
    elif tasks:
        say(f"recovered {len(tasks)}; agentless ps --all lists them")
    else:
        say("nothing to recover: every task of yours on the nodes is remembered here")
    return 4 if found["silent"] else 0
