"""`agentless ssh-config`: how every ssh on this machine knows the containers."""

from __future__ import annotations

from typing import Annotated

import typer

from agentless import paths
from agentless.cli.confirm import Yes, confirm
from agentless.cli.output import print_line, say
from agentless.cli.ssh.settings import inventory_or_none
from agentless.errors import UsageError


def add_to(app: typer.Typer) -> None:
    app.command("ssh-config")(ssh_config)


def ssh_config(
    context: typer.Context,
    install: Annotated[bool, typer.Option("--install", help="Include it in ~/.ssh/config")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Undo --install")] = False,
    yes: Yes = False,
) -> None:
    """Let ssh, scp, rsync and VS Code reach running tasks.

    Prints the configuration by which OpenSSH knows each of them as TASK.agentless, and the build container of an env
    as NAME.env.agentless. With --install, your ~/.ssh/config includes it; you see the change first.

    agentless ssh-config --install
    agentless ssh-config --remove
    """
    from agentless.client.ssh import config_file, options

    if install and remove:
        raise UsageError("--install and --remove exclude each other")
    text = options.config(paths.state_dir(), inventory_or_none(context))
    if remove:
        found = config_file.remove()
        say(f"Removed the Include line from {paths.ssh_config()}" if found else f"Nothing in {paths.ssh_config()}")
    elif not install:
        for line in text.splitlines():
            print_line(line)
    else:
        if added := config_file.preview():
            say(f"This goes to the top of {paths.ssh_config()}:", "", *added.splitlines(), "")
            if not yes:
                unattended = UsageError("cannot ask without a terminal; use: agentless ssh-config --install --yes")
                confirm("Write it", "nothing was written", unattended=unattended)
        config_file.install(text)
        say(f"{'Installed' if added else 'Already installed; updated'}. To log in to a task: ssh TASK.agentless")
