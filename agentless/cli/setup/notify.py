"""`agentless notify`: lists the targets of notifications, and tries them."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from agentless.cli.app import complain
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.output import confirm_done
from agentless.cli.progress import progress
from agentless.cli.table import Column
from agentless.client.words import local
from agentless.errors import AgentlessError


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="List the targets of notifications, or send a test message.", no_args_is_help=True)
    group.command("list")(list_targets)
    group.command()(test)
    app.add_typer(group, name="notify")


def list_targets(context: typer.Context, as_json: Json = False, output: Output = None) -> None:
    """List the targets that the inventory has below notify:."""
    style = _TARGETS.format(as_json, output)
    style.show(client(context).get("/v1/notify"), _COLUMNS, "No notify targets in the inventory")


def test(
    context: typer.Context,
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="Names below notify: in the inventory")],
) -> int:
    """Send a test message, and wait until it is sent.

    Exits with code 1 if a message cannot be sent.
    """
    served, code = client(context), 0
    for target in targets:
        try:
            with progress(f"Sending a message to {target}"):
                served.post(f"/v1/notify/{quote(target, safe='')}/test")
        except AgentlessError as error:
            complain(str(error))
            code = code or error.exit_code
        else:
            confirm_done(f"{target}: sent")
    return code


def _status(target: dict[str, Any]) -> str:
    if target["problem"]:
        return f"{target['problem']}, since {local(target['failing_since'])}"
    return f"last sent {local(target['sent_at'])}" if target["sent_at"] else ""


_TARGETS = Kind("view.NotifyView", lambda target: str(target["name"]))
_COLUMNS = [
    Column("TARGET", lambda target: target["name"]),
    Column("KIND", lambda target: target["kind"]),
    Column("EVENTS", lambda target: ", ".join(target["events"]) or "as submitted"),
    Column("OWNERS", lambda target: ", ".join(target["owners"]) or "all"),
    Column("WAITING", lambda target: str(target["waiting"])),
    Column("STATUS", _status, wraps=True),
]
