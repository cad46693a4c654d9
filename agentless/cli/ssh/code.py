"""`agentless code`: VS Code in a container."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from agentless import paths
from agentless.cli.arguments import TaskArgument
from agentless.cli.client import client
from agentless.cli.confirm import confirm
from agentless.cli.output import say
from agentless.cli.ssh.settings import ENV, inventory_or_none, why_unreachable
from agentless.client.ssh.proxy import SUFFIX
from agentless.errors import Refused, UsageError


def add_to(app: typer.Typer) -> None:
    app.command()(code)


def code(
    context: typer.Context,
    task: TaskArgument,
    folder: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="Folder in the container (default: the task's)")
    ] = None,
) -> None:
    """Open VS Code in the container of a running task.

    Needs VS Code with its extension Remote - SSH on this machine, and in the container bash and a network connection,
    by which VS Code installs its server.

    agentless code dev
    agentless code dev /work
    """
    task = task.removesuffix(SUFFIX)
    served = client(context)
    if why := why_unreachable(served, task):
        raise Refused(f"{why}; only running tasks can be reached")
    if folder is None and not task.endswith(ENV):
        workdir = served.get(f"/v1/tasks/{task}/spec")["workdir"] or ""
        folder = workdir if workdir.startswith("/") else None
    if folder is not None and not folder.startswith("/"):
        raise UsageError(f"{folder!r}: use an absolute path in the container, like /work")
    _install_if_wanted(context)
    host = f"{task}{SUFFIX}"
    words = ["code", "--remote", f"ssh-remote+{host}", *([folder] if folder else [])]
    program = shutil.which("code")
    if program is None:
        raise Refused(
            f"no program 'code' on this machine; in VS Code with the extension Remote - SSH, press F1, choose "
            f"'Remote-SSH: Connect to Host...' and type {host}" + (f", then open the folder {folder}" if folder else "")
        )
    os.execv(program, words)  # noqa: S606


def _install_if_wanted(context: typer.Context) -> None:
    """Have ssh know the containers, which VS Code runs; asks, or raises Refused."""
    from agentless.client.ssh import config_file, options

    if config_file.is_installed():
        return
    first = Refused("VS Code does not know the containers yet; first run: agentless ssh-config --install")
    if not sys.stdin.isatty():
        raise first
    say(f"VS Code reaches containers by {paths.ssh_config()}. This goes to the top of it:", "")
    say(*config_file.preview().splitlines(), "")
    confirm("Write it", str(first), unattended=first)
    config_file.install(options.config(paths.state_dir(), inventory_or_none(context)))
