"""The client of a command line."""

from __future__ import annotations

import os

import typer

from agentless.cli.app import complain
from agentless.cli.progress import Progress, progress
from agentless.client.client import Client
from agentless.model.owner import owner_of


def client(context: typer.Context) -> Client:
    """The client for the inventory that the command line names, else for the usual one."""
    served = Client.found(context.find_root().obj, owner_of(os.environ))
    context.call_on_close(lambda: _warn(served))
    if Progress().is_shown and not served.is_running():
        with progress("Starting the controller"):
            served.get("/v1/controller")
    return served


def _warn(served: Client) -> None:
    """Print the warnings that came with the controller's answers."""
    for warning in dict.fromkeys(served.warnings):
        complain(f"warning: {warning}")
