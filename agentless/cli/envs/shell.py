"""`agentless env shell`, `exec`, `start` and `stop`: work in the build container of an env."""

from __future__ import annotations

from typing import Any

import typer

from agentless.cli.arguments import EnvArgument, Json
from agentless.cli.client import client
from agentless.cli.command import command_of
from agentless.cli.output import Quiet, confirm_done, print_json
from agentless.cli.progress import progress
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


def start(context: typer.Context, name: EnvArgument, as_json: Json = False, _: Quiet = False) -> None:
    """Start the build container of an env.

    Creates the container from the current version if there is none. `agentless env shell` does the same.
    """
    with progress(f"Starting the build container of env {name}"):
        done = client(context).post(f"/v1/envs/{check_name(name)}/start", {})
    _say(done, "Started", "already running", as_json=as_json)


def stop(context: typer.Context, name: EnvArgument, as_json: Json = False, _: Quiet = False) -> None:
    """Stop the build container of an env, with the programs in it. Its files stay."""
    with progress(f"Stopping the build container of env {name}"):
        done = client(context).post(f"/v1/envs/{check_name(name)}/stop", {})
    _say(done, "Stopped", "already stopped", as_json=as_json)


def _say(done: dict[str, Any], verb: str, already: str, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    elif done["changed"]:
        confirm_done(f"{verb} the build container of env {done['env']} on {done['node']}")
    else:
        confirm_done(f"The build container of env {done['env']} on {done['node']} is {already}")


def _run_in(context: typer.Context, name: str, command: tuple[str, ...]) -> int:
    from agentless.client.terminal import TerminalSession, raw, standard

    window = standard()
    size = window.size() if window.size else None
    with client(context).terminal(check_name(name), command, size, of="envs") as terminal:
        if not window.size:
            return TerminalSession(terminal, window).run()
        with raw(window.keys):
            return TerminalSession(terminal, window).run()
