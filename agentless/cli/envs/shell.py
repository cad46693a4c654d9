"""`agentless env shell` and `exec`: work in the build container of an env."""

from __future__ import annotations

import typer

from agentless.cli.arguments import EnvArgument
from agentless.cli.client import client
from agentless.cli.command import command_of
from agentless.errors import UsageError
from agentless.model.images.env import check_name


def shell(context: typer.Context, name: EnvArgument) -> int:
    """Open a shell in the build container; its exit code is the shell's. Without one, one is made of the env."""
    return _run_in(context, name, ())


def execute(context: typer.Context, name: EnvArgument) -> int:
    """Run the command after -- in the build container. Its streams stay apart, and its exit code is the command's.

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
