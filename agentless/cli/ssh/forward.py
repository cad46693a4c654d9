"""`agentless forward`: ports of this machine that lead to ports in a container."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from agentless import paths
from agentless.cli.arguments import TaskArgument
from agentless.cli.client import client
from agentless.cli.output import print_line, say
from agentless.cli.ssh.settings import inventory_or_none, why_unreachable


def add_to(app: typer.Typer) -> None:
    app.command()(forward)


def forward(
    context: typer.Context,
    task: TaskArgument,
    ports: Annotated[
        list[str], typer.Argument(metavar="PORT[:LOCAL]...", help="Port in the container, and here (default: the same)")
    ],
) -> None:
    """Forward ports of this machine to ports of a running task.

    Listens on loopback only, until Ctrl-C. Keeps going when the task is retried or the controller restarts. Reaches
    ports that listen on the loopback of the container, too.

    agentless forward train 8888
    agentless forward train 8888:9999 6006
    """
    import asyncio

    from agentless.client.ssh.forward import HOST, Forward, Ports

    wanted = [Ports.parse(text) for text in ports]
    if words := why_unreachable(client(context), task):
        say(f"{words}; waiting for it")

    def ready() -> None:
        for each in wanted:
            words = f"Forwarding http://{HOST}:{each.here} to port {each.there} of {task}; Ctrl-C ends it"
            print_line(words, flush=True)

    forwarding = Forward(paths.state_dir(), inventory_or_none(context), task, say)
    with contextlib.suppress(KeyboardInterrupt):  # which is how it ends
        asyncio.run(forwarding.run(wanted, ready))
