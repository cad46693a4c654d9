"""`agentless doctor`: checks of nodes."""

from __future__ import annotations

from typing import Any

import typer

from agentless.cli.arguments import Json, ManyNodes
from agentless.cli.client import client
from agentless.cli.output import print_json
from agentless.cli.table import Column, show


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(context: typer.Context, nodes: ManyNodes = None, as_json: Json = False) -> int:
    """Check nodes: can they be reached, does Docker work, is there a GPU, may Docker hand it out."""
    served = client(context)
    found = served.get("/v1/doctor", node=nodes)
    bad = [check for check in found if check["ok"] is False]
    if as_json:
        print_json(found)
        return int(bool(bad))
    marks = {True: "ok", False: "FAIL", None: "-"}
    show(
        [
            Column("NODE", lambda check: check["node"]),
            Column("CHECK", lambda check: check["check"]),
            Column("", lambda check: marks[check["ok"]]),
            Column("DETAIL", lambda check: check["detail"], wraps=True),
        ],
        found,
    )
    return int(bool(bad))


def failed(checks: list[dict[str, Any]]) -> str:
    """Why a node with these checks cannot run tasks, empty if it can. Without a control group it can."""
    bad = [check for check in checks if check["check"] != "limits" and check["ok"] is False]
    open_ = [check for check in checks if check["ok"] is None]
    return next((f"{check['check']}: {check['detail']}" for check in (*bad, *open_)), "")
