"""`agentless vps`: containers that stay."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any, Unpack

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json, path_words
from agentless.cli.client import client
from agentless.cli.command import WithOptionalCommand, command_of
from agentless.cli.confirm import Yes, confirm
from agentless.cli.formats import TASKS, Output
from agentless.cli.output import confirm_done, print_json, print_line, say
from agentless.cli.ssh.ssh import log_in
from agentless.cli.submit.submit import check_targets
from agentless.cli.submit.with_options import with_options
from agentless.cli.table import Column
from agentless.client.files.span_files import read_lines
from agentless.client.http import RequestFailed
from agentless.client.words import command_line, state, where, why
from agentless.errors import UsageError
from agentless.paths import current_dir
from agentless.rules.submit.options import VPS_OPTIONS, WHERE, VpsOptions
from agentless.rules.submit.task_request import Outside, task_request

_ONLY_TASKS = (
    "time_limit", "signal", "signal_before", "max_parallel", "zipped", "secret_env", "upload", "output",
    "retries", "retry_on", "backoff", "name",
)  # fmt: skip
"""Options of tasks that a VPS cannot have, since it has no end."""
_OFFERED = [option for name, option in VPS_OPTIONS.items() if name not in _ONLY_TASKS]

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="VPS name", callback=path_words, autocompletion=complete.vps)
]
_Grace = Annotated[
    float | None, typer.Option("--grace", metavar="SECONDS", help="Seconds between SIGTERM and SIGKILL (default: 10)")
]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Manage VPS: containers that stay until you remove them.")
    group.command(cls=_Create)(create)
    group.command("list")(show_list)
    group.command()(show)
    group.command()(stop)
    group.command()(start)
    group.command()(restart)
    group.command(cls=WithOptionalCommand)(ssh)
    group.command()(rm)
    app.add_typer(group, name="vps")


class _Create(WithOptionalCommand):
    """A command is possible, but rare."""

    common = {"called", "target", *(option.name for option in _OFFERED if option.common)}  # noqa: RUF012


@with_options(as_json=_OFFERED)
def create(
    context: typer.Context,
    called: _Name,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="GPUs of a node (node1::0,1), or any GPUs (1x:40G)",
            autocompletion=complete.targets,
            rich_help_panel=WHERE,
        ),
    ] = None,
    *,
    as_json: Json = False,
    **options: Unpack[VpsOptions],
) -> int:
    """Create a container that stays, and start it.

    Its host name is its name. It runs the command after --, else it just waits for you to log in. Stopping it frees
    its GPUs and keeps its files.

    agentless vps create dev 1x:40G --image pytorch/pytorch
    agentless vps ssh dev
    """
    targets = [target] if target else []
    check_targets(context, targets)
    options["name"] = called
    outside = Outside(time.time(), os.environ, read_lines, current_dir())
    asked = task_request(command_of(context), targets, options, outside, "vps")
    start = client(context).post("/v1/vps", {**asked.request(), "request": os.urandom(8).hex()})
    task = start["task"]
    if task is None:
        raise RequestFailed(start["message"], start["exit_code"])
    if as_json:
        print_json(task)
    elif start["message"]:
        say(f"{called}  {start['message']}")
    else:
        confirm_done(f"{called}  {state(task)} on {where(task)}. To log in: agentless vps ssh {called}")
    return int(start["exit_code"])


def show_list(context: typer.Context, as_json: Json = False, output: Output = None) -> None:
    """List all VPS, including stopped ones."""
    style = TASKS.format(as_json, output)
    style.show(client(context).get("/v1/vps"), _COLUMNS, "No VPS. To create one: agentless vps create NAME 1x")


def show(context: typer.Context, name: _Name, as_json: Json = False) -> None:
    """Show a VPS."""
    from agentless.cli.tasks.show import show_task

    show_task(context, _get(context, name)["id"], as_json)


def stop(context: typer.Context, name: _Name, grace: _Grace = None, as_json: Json = False) -> None:
    """Stop a VPS: its GPUs are free, and its files stay."""
    _changed(name, client(context).post(f"/v1/vps/{name}/stop", {"grace": grace}), as_json=as_json)


def start(context: typer.Context, name: _Name, as_json: Json = False) -> None:
    """Start a stopped VPS on its node, with the same GPUs.

    Fails if somebody has them, and says who.
    """
    _changed(name, client(context).post(f"/v1/vps/{name}/start"), as_json=as_json)


def restart(context: typer.Context, name: _Name, grace: _Grace = None, as_json: Json = False) -> None:
    """Stop a VPS if it runs, and start it."""
    _changed(name, client(context).post(f"/v1/vps/{name}/restart", {"grace": grace}), as_json=as_json)


def ssh(context: typer.Context, name: _Name) -> None:
    """Log in to a VPS; see agentless ssh.

    agentless vps ssh dev
    agentless vps ssh dev -- nvidia-smi
    """
    log_in(context, _get(context, name)["id"], command_of(context))


def rm(
    context: typer.Context,
    name: _Name,
    force: Annotated[bool, typer.Option("--force", help="Also if it runs")] = False,
    yes: Yes = False,
) -> None:
    """Remove a VPS with its files."""
    served = client(context)
    served.get(f"/v1/vps/{name}")
    if not yes:
        confirm(
            f"Remove VPS {name} with its files",
            "nothing was removed",
            unattended=UsageError(
                f"cannot ask for confirmation without a terminal; use: agentless vps rm {name} --yes"
            ),
        )
    served.delete(f"/v1/vps/{name}", force=force)
    confirm_done(f"{name}  removed")


def _get(context: typer.Context, name: str) -> dict[str, Any]:
    found: dict[str, Any] = client(context).get(f"/v1/vps/{name}")
    return found


def _changed(name: str, task: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(task)
    else:
        print_line(f"{name}  {state(task)}" + (f" on {where(task)}" if task["ended_at"] is None else ""))


_COLUMNS = [
    Column("NAME", lambda task: task["name"] or ""),
    Column("STATE", state),
    Column("WHERE", where),
    Column("IMAGE", lambda task: task["image"] or ""),
    Column("COMMAND", command_line),
    Column("REASON", why, wraps=True),
]
