"""`agentless dashboard`: the whole cluster on one screen, in this terminal or in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentless.client import Client
from agentless.errors import UsageError


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(dashboard)


def dashboard(
    context: typer.Context,
    web: Annotated[bool, typer.Option("--web", help="Serve it to your browser, and to nobody else.")] = False,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, metavar="PORT", show_default="a free one", help="With --web: where."),
    ] = 0,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Look, and change nothing: for a screen on the wall.")
    ] = False,
) -> None:
    """Show the whole cluster, and act from it, in this terminal or in a browser."""
    inventory = context.find_root().obj
    if web:
        from agentless.web import server

        Client.found(inventory)  # that there is none is said here, not in each browser
        server.run(app_command(inventory, read_only), port)
        return
    if port:
        raise UsageError("--port is the port for a browser; add --web")
    from agentless.tui.app import run  # type: ignore[import-untyped]

    run(context, read_only)


def app_command(inventory: Path | None, read_only: bool) -> list[str]:
    """What starts the same dashboard for one visitor; folder and environment say the rest, and are the same."""
    named = ["--inventory", str(inventory)] if inventory else []
    return [sys.executable, "-m", "agentless", *named, "dashboard", *(["--read-only"] if read_only else [])]
