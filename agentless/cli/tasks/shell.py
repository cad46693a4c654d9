"""`agentless shell`: a terminal in the container of a task."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from agentless.cli.arguments import TaskArgument
from agentless.cli.client import client
from agentless.cli.command import WithCommand, WithOptionalCommand, command_of
from agentless.cli.tasks.gang import RankOption, with_rank
from agentless.client.http import RequestFailed
from agentless.client.terminal import TerminalSession, raw, standard
from agentless.errors import AgentlessError, NoAnswer, UsageError


def add_to(app: typer.Typer) -> None:
    app.command(cls=WithOptionalCommand)(shell)
    app.command("exec", cls=_Exec, hidden=True)(execute)


class _Exec(WithCommand):
    """A command that may be written without `--`, since nothing else comes after the task."""

    after_options = ("COMMAND...",)
    allow_interspersed_args = False


def shell(context: typer.Context, task: TaskArgument, rank: RankOption = None) -> int:
    """Open a shell in the container of a running task.

    Runs a command instead if you write one after --, as agentless exec does, and returns its exit code. Uses a
    terminal if you have one; otherwise stdout and stderr stay separate, as with ssh.

    agentless shell train
    agentless shell train -- nvidia-smi
    agentless exec train nvidia-smi
    """
    return _run_in(context, with_rank(client(context), task, rank), command_of(context))


def execute(
    context: typer.Context,
    task: TaskArgument,
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    _: Annotated[bool, typer.Option("-i", "--interactive", hidden=True)] = False,
    __: Annotated[bool, typer.Option("-t", "--tty", hidden=True)] = False,
) -> int:
    """Run a command in the container of a running task.

    agentless exec train nvidia-smi
    """
    command = (*(words or ()), *command_of(context))
    if not command:
        raise UsageError(f"no command; write it after the task: agentless exec {task} nvidia-smi")
    return _run_in(context, task, command)


def _run_in(context: typer.Context, task: str, command: tuple[str, ...]) -> int:
    window = standard()
    with client(context).terminal(task, command, window.size() if window.size else None) as terminal:
        try:
            with raw(window.keys) if window.size else contextlib.nullcontext():
                return TerminalSession(terminal, window).run()
        except AgentlessError as error:
            words = str(error)
            if error.exit_code == NoAnswer.exit_code:
                words += "; this closed the terminal, and the task keeps running"
            raise RequestFailed(f"{words}. To open another one: agentless shell {task}", error.exit_code) from None
