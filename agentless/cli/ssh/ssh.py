"""`agentless ssh`: the user's own ssh, into the container of a task."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from agentless import paths
from agentless.cli.arguments import TaskArgument
from agentless.cli.client import client
from agentless.cli.command import WithOptionalCommand, command_of
from agentless.cli.ssh.settings import inventory_or_none, why_unreachable
from agentless.client.ssh.proxy import SUFFIX
from agentless.errors import Refused, UsageError


def add_to(app: typer.Typer) -> None:
    app.command(cls=WithOptionalCommand)(ssh)


def ssh(
    context: typer.Context,
    task: TaskArgument,
    local: Annotated[
        list[str] | None,
        typer.Option(
            "-L",
            metavar="[HOST:]PORT:HOST:PORT",
            help="Connections to PORT here reach HOST:PORT as seen from the container",
        ),
    ] = None,
    remote: Annotated[
        list[str] | None,
        typer.Option(
            "-R",
            metavar="[HOST:]PORT:HOST:PORT",
            help="Connections to PORT in the container reach HOST:PORT as seen from here",
        ),
    ] = None,
    dynamic: Annotated[
        list[str] | None,
        typer.Option("-D", metavar="[HOST:]PORT", help="Run a SOCKS proxy here that connects from the container"),
    ] = None,
    no_command: Annotated[bool, typer.Option("-N", help="Run nothing; only forward ports")] = False,
    agent: Annotated[
        bool, typer.Option("-A", help="Let programs in the container use your SSH agent while you are connected")
    ] = False,
    terminal: Annotated[bool, typer.Option("-t", help="Give the command a terminal")] = False,
    verbose: Annotated[bool, typer.Option("-v", help="Print what ssh does")] = False,
    option: Annotated[
        list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="Any option of ssh_config(5)")
    ] = None,
) -> None:
    """Log in to the container of a running task with your own ssh.

    Needs nothing in the image but sh. Runs a command instead if you write one after --. TASK may also be NAME.env, the
    build container of an env, or a Slurm cluster, for its login node. To have plain ssh, scp and rsync reach
    containers, run: agentless ssh-config --install

    agentless ssh train
    agentless ssh train -- nvidia-smi
    agentless ssh train -L 8888:localhost:8888
    """
    words: list[str] = []
    if no_command and command_of(context):
        raise UsageError("-N runs no command; omit -N, or the command")
    for flag, values in (("-L", local), ("-R", remote), ("-D", dynamic), ("-o", option)):
        words += [word for value in values or () for word in (flag, value)]
    words += [flag for flag, wanted in (("-N", no_command), ("-A", agent), ("-t", terminal), ("-v", verbose)) if wanted]
    task = task.removesuffix(SUFFIX)
    if why := why_unreachable(client(context), task):
        raise Refused(f"{why}; only running tasks can be reached")
    log_in(context, task, command_of(context), words)


def log_in(context: typer.Context, task: str, command: Sequence[str], words: Sequence[str] = ()) -> NoReturn:
    """Become ssh, with these words of its own before the host."""
    from agentless.client.ssh.options import arguments

    program = shutil.which("ssh")
    if program is None:
        raise Refused("no ssh on this machine; install OpenSSH's client, or use: agentless shell")
    ours = arguments(paths.state_dir(), inventory_or_none(context))
    # ssh joins words by spaces, and a shell reads them again: one word may be a line of shell, several are words.
    line = [shlex.join(command)] if len(command) > 1 else command
    os.execv(program, [program, *ours, *words, "--", f"{task}{SUFFIX}", *line])  # noqa: S606
