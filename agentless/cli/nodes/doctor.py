"""`agentless doctor`: checks of nodes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli.arguments import Json, ManyNodes
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.nodes import doctor_report
from agentless.cli.nodes.doctor_script import script_of
from agentless.cli.output import print_line, say
from agentless.cli.pager import paged
from agentless.cli.progress import progress
from agentless.cli.table import Column
from agentless.errors import UsageError

Run = Annotated[bool, typer.Option("--run", help="Also start a container on each free GPU, and look what it sees")]
Fix = Annotated[bool, typer.Option("--fix", help="Print a script for each node that mends it; runs nothing")]
All = Annotated[bool, typer.Option("--all", "-v", help="Show every check of every node")]


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    context: typer.Context,
    nodes: ManyNodes = None,
    run: Run = False,
    fix: Fix = False,
    show_all: All = False,
    as_json: Json = False,
    output: Output = None,
) -> int:
    """Check SSH, the engine and the GPUs of nodes.

    Shows what is wrong and how to mend it. Exits with code 1 if a check fails.
    """
    style = _CHECKS.format(as_json, output)
    if fix and (as_json or output):
        raise UsageError("--fix prints scripts; omit --json and -o")
    served = client(context)
    with progress("Checking nodes"):
        found = served.get("/v1/doctor", node=nodes)
    if run:
        with progress("Starting a container on each free GPU"):
            found = doctor_report.merged(found, served.post("/v1/doctor/run", {"nodes": nodes or []}))
    if fix:
        for text in filter(None, map(script_of, doctor_report.by_node(found).values())):
            print_lines(text)
    elif style.word:
        style.show(found, _COLUMNS, "No nodes in the inventory")
    elif found:
        with paged():
            doctor_report.show(found, in_full=show_all or bool(nodes))
    else:
        say("No nodes in the inventory")
    return int(any(check["ok"] is False for check in found))


def print_lines(text: str) -> None:
    """Print a text of several lines."""
    for line in text.splitlines():
        print_line(line)


def failed(checks: list[dict[str, Any]]) -> str:
    """Why a node with these checks cannot run tasks, empty if it can."""
    bad = [check for check in checks if check["ok"] is False]
    open_ = [check for check in checks if check["ok"] is None]
    return next((f"{check['check']}: {check['detail']}" for check in (*bad, *open_)), "")


_MARKS = {True: "ok", False: "FAIL", None: "-"}
_CHECKS = Kind("view.CheckView", lambda check: f"{check['node']}/{check['check']}")
_COLUMNS = [
    Column("NODE", lambda check: check["node"]),
    Column("CHECK", lambda check: check["check"]),
    Column("", lambda check: "warn" if check.get("verdict") == "warning" else _MARKS[check["ok"]]),
    Column("DETAIL", lambda check: check["detail"], wraps=True),
]
