"""`agentless shell`: a terminal in the container of a task."""

from __future__ import annotations

import contextlib

import typer

from agentless.cli.common import TaskArgument, client
from agentless.cli.submit.command import WithCommand, command_of
from agentless.client.terminal import Talk, raw, standard
from agentless.client.wire import RequestFailed
from agentless.errors import AgentlessError, NoAnswer


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(cls=WithCommand)(shell)


def shell(context: typer.Context, task: TaskArgument) -> int:
    """Open a shell in a running task's container, or run the command after --.

    On a terminal if this is one, else with its streams apart, like ssh HOST COMMAND. Its exit code is the command's.

    agentless shell train -- nvidia-smi
    """
    window = standard()
    with client(context).terminal(task, command_of(context), window.size() if window.size else None) as terminal:
        try:
            with raw(window.keys) if window.size else contextlib.nullcontext():
                return Talk(terminal, window).run()
        except AgentlessError as error:
            words = str(error)
            if error.exit_code == NoAnswer.exit_code:
                words += ", and the terminal with it; the task runs on"
            raise RequestFailed(f"{words}; open another one: agentless shell {task}", error.exit_code) from None
