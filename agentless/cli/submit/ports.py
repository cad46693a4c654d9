"""The ports of a task, forwarded while a command shows the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer

from agentless import paths
from agentless.cli.output import say
from agentless.cli.ssh.settings import inventory_or_none
from agentless.model.tasks.port import Port


def take(context: typer.Context, ports: Sequence[Port]) -> Callable[[str], None]:
    """Take these ports of this machine, and give what forwards them to a task until this process ends.

    Raises Refused if one is taken already.
    """
    if not ports:
        return lambda _: None
    from agentless.client.ssh.background import forward_in_background
    from agentless.client.ssh.forward import HOST, Forward, Listener, listen

    listeners = listen(ports, "--port")

    def tell(listener: Listener) -> None:
        say(f"Port {listener.port.port} answers: http://{HOST}:{listener.port.local}")

    def begin(task: str) -> None:
        forward_in_background(Forward(paths.state_dir(), inventory_or_none(context), task, say), listeners, tell)

    return begin
