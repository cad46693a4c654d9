"""`agentless shell`: a terminal in the container of a task."""

from __future__ import annotations

import contextlib

import typer

from agentless.cli.arguments import TaskArgument
from agentless.cli.client import client
from agentless.cli.command import WithCommand, command_of
from agentless.client.http import RequestFailed
from agentless.client.terminal import TerminalSession, raw, standard
from agentless.errors import AgentlessError, NoAnswer


def add_to(app: typer.Typer) -> None:
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
                return TerminalSession(terminal, window).run()
        except AgentlessError as error:
            words = str(error)
            if error.exit_code == NoAnswer.exit_code:
                words += "; this closed the terminal, and the task keeps running"
            raise RequestFailed(f"{words}. To open another one: agentless shell {task}", error.exit_code) from None
