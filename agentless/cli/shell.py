"""`agentless shell`: a terminal in the container of a task."""

from __future__ import annotations

import typer

from agentless.cli.command import WithCommand, command_of
from agentless.cli.common import TaskArgument, client
from agentless.talk import Talk, raw, standard


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(cls=WithCommand)(shell)


def shell(context: typer.Context, task: TaskArgument) -> int:
    """Open a shell in a running task's container, or run the command after --.

    On a terminal if this is one, else with its streams apart, like ssh HOST COMMAND. Its exit code is the command's.
    """
    window = standard()
    with client(context).terminal(task, command_of(context), window.size() if window.size else None) as terminal:
        if not window.size:
            return Talk(terminal, window).run()
        with raw(window.keys):
            return Talk(terminal, window).run()
