"""`agentless env shell` and `exec`: work in the build container of an env."""

from __future__ import annotations

import typer

from agentless.cli.arguments import EnvArgument
from agentless.cli.client import client
from agentless.cli.command import command_of
from agentless.errors import UsageError
from agentless.model.images.env import check_name


def shell(context: typer.Context, name: EnvArgument) -> int:
    """Open a shell in the build container of an env.

    Creates the container from the current version if there is none.
    """
    return _run_in(context, name, ())


def execute(context: typer.Context, name: EnvArgument) -> int:
    """Run a command in the build container of an env.

    Keeps stdout and stderr apart, and returns the exit code of the command.

    agentless env exec torch -- pip install numpy
    """
    command = command_of(context)
    if not command:
        raise UsageError(f"No command. Write it after --, such as: agentless env exec {name} -- pip list")
    return _run_in(context, name, command)


def _run_in(context: typer.Context, name: str, command: tuple[str, ...]) -> int:
    from agentless.client.terminal import TerminalSession, raw, standard

    window = standard()
    size = window.size() if window.size else None
    with client(context).terminal(check_name(name), command, size, of="envs") as terminal:
        if not window.size:
            return TerminalSession(terminal, window).run()
        with raw(window.keys):
            return TerminalSession(terminal, window).run()
