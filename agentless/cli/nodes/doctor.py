"""`agentless doctor`: checks of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentless.cli.arguments import Json, ManyNodes
from agentless.cli.client import client
from agentless.cli.formats import NAMED, Kind, complete_formats
from agentless.cli.nodes import doctor_report
from agentless.cli.nodes.doctor_script import Script, script_of, write
from agentless.cli.output import confirm_done, print_line, say
from agentless.cli.pager import paged
from agentless.cli.progress import progress
from agentless.cli.table import Column
from agentless.client.client import Client
from agentless.errors import UsageError

Run = Annotated[
    bool, typer.Option("--run", help="Also start a container on each free GPU, or a job on a Slurm cluster")
]
Pairs = Annotated[
    bool, typer.Option("--between", help="Only try whether the nodes reach each other, as tasks on several nodes do")
]
Fix = Annotated[
    bool, typer.Option("--fix", help="Print a script for each node that mends what failed, or write it; run nothing")
]
All = Annotated[bool, typer.Option("--all", "-v", help="Show every check of every node; with --fix, mend warnings too")]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT|DIR",
        help="json, yaml, name, wide, or JSON fields to show as columns; with --fix, the folder for the scripts",
        autocompletion=complete_formats,
    ),
]


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    context: typer.Context,
    nodes: ManyNodes = None,
    run: Run = False,
    between: Pairs = False,
    fix: Fix = False,
    show_all: All = False,
    as_json: Json = False,
    output: Output = None,
) -> int:
    """Check SSH, the engine and the GPUs of nodes, and Slurm clusters.

    Shows what is wrong and how to mend it. Exits with code 1 if a check fails; with --fix, with 0.
    """
    if fix and (as_json or output in NAMED):
        raise UsageError("--fix makes scripts; omit --json, and use -o with a folder, like -o ./fixes")
    if between and run:
        raise UsageError("--between and --run cannot be combined; use one of them")
    style = _CHECKS.format(as_json, None if fix else output)
    served = client(context)
    with progress("Checking nodes"):
        if between:
            found = served.post("/v1/doctor/between", {"nodes": nodes or []})
        else:
            found = served.get("/v1/doctor", node=nodes)
    if run:
        with progress("Starting a container on each free GPU"):
            found = doctor_report.merged(found, served.post("/v1/doctor/run", {"nodes": nodes or []}))
    in_full = show_all or bool(nodes)
    if fix:
        _mend(served, found, output, warnings=in_full)
        return 0
    if style.word:
        style.show(found, _COLUMNS, "No nodes in the inventory")
    elif found:
        with paged():
            doctor_report.show(found, in_full=in_full, hints=not between)
            if _names_inventory(found):
                print_line(f"Inventory: {_inventory(served)}")
    else:
        say("No nodes in the inventory")
    return int(any(check["ok"] is False for check in found))


def _names_inventory(found: list[dict[str, Any]]) -> bool:
    """Whether a failed check is mended in the inventory."""
    return any(check["ok"] is False and "inventory" in (check.get("fix") or "") for check in found)


def _inventory(served: Client) -> str:
    return str(served.get("/v1/controller")["inventory"])


def _mend(served: Client, found: list[dict[str, Any]], folder: str | None, *, warnings: bool) -> None:
    """Print the scripts, or write them into a folder."""
    inventory = _inventory(served) if _names_inventory(found) else ""
    by_node = doctor_report.by_node(found).values()
    made = (script_of(checks, warnings=warnings, inventory=inventory) for checks in by_node)
    scripts: list[Script] = [script for script in made if script]
    if not scripts:
        say("Nothing to mend" if warnings else "Nothing has failed. For warnings, too: agentless doctor --fix --all")
    if folder is not None:
        for path, script in write(Path(folder), scripts):
            then = (
                f"read it, then run it {script.place}" if script.runs else "read it; there is nothing to run as it is"
            )
            confirm_done(f"Wrote {path}: {then}")
        return
    for script in scripts:
        for line in script.text.splitlines():
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
    Column("DETAIL", doctor_report.text_of, wraps=True),
]
