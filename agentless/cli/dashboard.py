"""`agentless dashboard` and `agentless top`: the whole cluster on a screen."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentless.cli.common import client
from agentless.errors import UsageError


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(dashboard)
    app.command()(top)


ReadOnly = Annotated[bool, typer.Option("--read-only", help="Look, and change nothing: for a screen on the wall.")]


def dashboard(context: typer.Context, read_only: ReadOnly = False) -> None:
    """Show the whole cluster, and act from it: GPUs, nodes, tasks, the queue, logs, a form to submit."""
    _run(context, read_only=read_only)


def top(context: typer.Context) -> None:
    """Show all GPUs at one look, as they change."""
    _run(context, read_only=True, only="overview")


def _run(context: typer.Context, *, read_only: bool, only: str | None = None) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a dashboard needs a terminal; agentless gpus, ps and events --follow write to a pipe")
    from agentless.tui.app import Dashboard

    Dashboard(client(context), read_only=read_only, only=only).run()
