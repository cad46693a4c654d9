"""`agentless dashboard`: the whole cluster on one screen, in this terminal or in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentless import paths
from agentless.errors import UsageError


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(dashboard)


def dashboard(
    context: typer.Context,
    web: Annotated[bool, typer.Option("--web", help="Serve it to your browser, from this machine only.")] = False,
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, metavar="PORT", show_default="a free one", help="With --web."),
    ] = 0,
    read_only: Annotated[bool, typer.Option("--read-only", help="Look only: nothing can be done from it.")] = False,
) -> None:
    """See the whole cluster, and act from it, in this terminal or in a browser."""
    inventory = paths.find_inventory(context.find_root().obj)
    if web:
        from agentless.web import server

        server.run(app_command(inventory, read_only), port)
        return
    if port:
        raise UsageError("--port is the port for a browser; add --web")
    from agentless.tui.app import run  # type: ignore[import-untyped]

    run(inventory, read_only)


def app_command(inventory: Path, read_only: bool) -> list[str]:
    """What starts the same dashboard for one visitor; the environment says the rest, as it does here."""
    options = ["--read-only"] if read_only else []
    return [sys.executable, "-m", "agentless", "--inventory", str(inventory), "dashboard", *options]
