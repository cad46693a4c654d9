"""`agentless dashboard` and `agentless top`: the whole cluster, in this terminal or in a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from agentless.cli.client import client
from agentless.client.client import Client
from agentless.errors import UsageError


def add_to(app: typer.Typer) -> None:
    app.command()(dashboard)
    app.command()(top)


def dashboard(
    context: typer.Context,
    web: Annotated[bool, typer.Option("--web", help="Serve the dashboard to your browser only")] = False,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, metavar="PORT", show_default="a free port", help="Port for --web"),
    ] = 0,
    read_only: Annotated[bool, typer.Option("--read-only", help="Read-only: allow no changes")] = False,
) -> None:
    """Open the dashboard in this terminal or in a browser."""
    inventory = context.find_root().obj
    if web:
        from agentless.web import server

        Client.found(inventory)  # a missing inventory is an error here, not in each browser
        server.run(app_command(inventory, read_only), port)
        return
    if port:
        raise UsageError("--port is the port for a browser; add --web")
    _show(context, read_only=read_only)


def top(context: typer.Context) -> None:
    """Show all GPUs, updated live."""
    _show(context, read_only=True, only="overview")


def app_command(inventory: Path | None, read_only: bool) -> list[str]:
    """The command that starts the same dashboard for one visitor, in the same folder and environment."""
    named = ["--inventory", str(inventory)] if inventory else []
    return [sys.executable, "-m", "agentless", *named, "dashboard", *(["--read-only"] if read_only else [])]


def _show(context: typer.Context, *, read_only: bool, only: str | None = None) -> None:
    in_browser = "TEXTUAL_DRIVER" in os.environ
    if not in_browser and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a dashboard needs a terminal; agentless gpus, ps and events --follow write to a pipe")
    if not in_browser and not sys.stderr.isatty():
        sys.__stderr__ = open(os.dup(1), "w")  # type: ignore[misc]  # noqa: SIM115 - what Textual draws on
    from agentless.tui.app import Dashboard

    place = os.environ.get("AGENTLESS_PLACE", "") if in_browser else ""
    app = Dashboard(client(context), read_only=read_only, only=only, place=place)
    app.run()
    if app.return_code:
        raise typer.Exit(app.return_code)
