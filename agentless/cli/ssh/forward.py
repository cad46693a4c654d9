"""`agentless forward`: ports of this machine that lead to ports in a container."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from agentless import paths
from agentless.cli.arguments import TaskArgument
from agentless.cli.client import client
from agentless.cli.output import print_line, say
from agentless.cli.ssh.settings import ENV, inventory_or_none, why_unreachable
from agentless.client.client import Client
from agentless.errors import UsageError
from agentless.model.tasks.port import Port, check_ports, parse_port


def add_to(app: typer.Typer) -> None:
    app.command()(forward)


def forward(
    context: typer.Context,
    task: TaskArgument,
    ports: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PORT[:LOCAL]]...",
            help="Port in the container, and here (default: the same); none: those of --port",
        ),
    ] = None,
) -> None:
    """Forward ports of this machine to ports of a running task.

    Listens on loopback only, until Ctrl-C. Keeps going when the task is retried or the controller restarts. Reaches
    ports that listen on the loopback of the container, too.

    agentless forward train 8888
    agentless forward train 8888:9999 6006
    """
    import asyncio

    from agentless.client.ssh.forward import HOST, Forward, listen

    wanted = [parse_port(text) for text in ports or ()]
    check_ports(wanted)
    served = client(context)
    if words := why_unreachable(served, task):
        say(f"{words}; waiting for it")
    listeners = listen(wanted or _asked(served, task), f"agentless forward {task}")
    forwarding = Forward(paths.state_dir(), inventory_or_none(context), task, say)
    with contextlib.suppress(KeyboardInterrupt):  # which is how it ends
        for each in listeners:
            words = f"Forwarding http://{HOST}:{each.port.local} to port {each.port.port} of {task}; Ctrl-C ends it"
            print_line(words, flush=True)
        asyncio.run(forwarding.run(listeners))


def _asked(served: Client, task: str) -> list[Port]:
    """The ports with which a task was submitted; raises UsageError if there are none."""
    found = [] if task.endswith(ENV) else served.get(f"/v1/tasks/{task}")["ports"]
    if not found:
        raise UsageError(f"{task} was not submitted with --port; give a port: agentless forward {task} 8888")
    return [Port(**each) for each in found]
