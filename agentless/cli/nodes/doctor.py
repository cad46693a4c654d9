"""`agentless doctor`: checks of nodes."""

from __future__ import annotations

from typing import Any

import typer

from agentless.cli.arguments import Json, ManyNodes
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.progress import progress
from agentless.cli.table import Column


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(context: typer.Context, nodes: ManyNodes = None, as_json: Json = False, output: Output = None) -> int:
    """Check SSH, the engine and the GPUs of nodes.

    Exits with code 1 if a check fails.
    """
    style = _CHECKS.format(as_json, output)
    served = client(context)
    with progress("Checking nodes"):
        found = served.get("/v1/doctor", node=nodes)
    style.show(found, _COLUMNS, "No nodes in the inventory")
    return int(any(check["ok"] is False for check in found))


def failed(checks: list[dict[str, Any]]) -> str:
    """Why a node with these checks cannot run tasks, empty if it can. Without a control group it can."""
    bad = [check for check in checks if check["check"] != "limits" and check["ok"] is False]
    open_ = [check for check in checks if check["ok"] is None]
    return next((f"{check['check']}: {check['detail']}" for check in (*bad, *open_)), "")


_MARKS = {True: "ok", False: "FAIL", None: "-"}
_CHECKS = Kind("view.CheckView", lambda check: f"{check['node']}/{check['check']}")
_COLUMNS = [
    Column("NODE", lambda check: check["node"]),
    Column("CHECK", lambda check: check["check"]),
    Column("", lambda check: _MARKS[check["ok"]]),
    Column("DETAIL", lambda check: check["detail"], wraps=True),
]
