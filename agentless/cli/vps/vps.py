"""`agentless vps`: containers that stay."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any, ClassVar, Unpack

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.command import WithOptionalCommand, command_of
from agentless.cli.confirm import Yes, confirm
from agentless.cli.formats import TASKS, Output
from agentless.cli.output import Quiet, confirm_done, print_json, say
from agentless.cli.progress import progress
from agentless.cli.ssh.ssh import log_in
from agentless.cli.submit.submit import check_targets
from agentless.cli.submit.with_options import with_options
from agentless.cli.table import Column
from agentless.cli.vps.change import VpsName, show_changed, show_started
from agentless.cli.vps.snapshots import restore, snapshot, snapshots
from agentless.client.files.span_files import read_lines
from agentless.client.http import RequestFailed
from agentless.client.words import command_line, local, ports, state, where, why
from agentless.errors import Refused, UsageError
from agentless.model.images.snapshot import parse_snapshot
from agentless.paths import current_dir
from agentless.rules.submit.options import CONTAINER, OPTIONS, WHERE, Options, options_of
from agentless.rules.submit.task_request import Outside, task_request

_OFFERED = options_of("vps")

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
    group.command()(snapshot)
    group.command()(snapshots)
    group.command()(restore)
    group.command()(resize)
    group.command("set")(change_terms)
    group.command()(rm)
    app.add_typer(group, name="vps")


class _Create(WithOptionalCommand):
    """A command is possible, but rare."""

    common: ClassVar[set[str]] = {
        *("called", "target", "snapshot", "public_key_file", "snapshot_on_stop"),
        *(option.name for option in _OFFERED if option.common),
    }


@with_options(as_json=_OFFERED)
def create(
    context: typer.Context,
    called: VpsName,
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
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SNAPSHOT",
            help="Begin with a snapshot of a VPS, such as dev:2",
            rich_help_panel=CONTAINER,
        ),
    ] = None,
    as_json: Json = False,
    **options: Unpack[Options],
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
    if snapshot is not None:
        if options.get("image") or options.get("container"):
            raise UsageError("--from cannot be combined with --image or --container; use one of them")
        options["container"] = str(parse_snapshot(snapshot))
    outside = Outside(time.time(), os.environ, read_lines, current_dir())
    asked = task_request(command_of(context), targets, options, outside, "vps")
    start = client(context).post("/v1/vps", {**asked.request(), "request": os.urandom(8).hex()})
    task = start["task"]
    if task is None:
        raise RequestFailed(start["message"], start["exit_code"])
    if as_json:
        print_json(task)
    elif start["message"]:
        say(*(f"{called}  {line}" for line in start["message"].splitlines()))
    elif task["state"] == "pending":
        reason = why(task) or "waiting for resources"
        say(f"{called}  pending: {reason}. To see what it waits for: agentless explain {called}")
    else:
        confirm_done(f"{called}  {state(task)} on {where(task)}. To log in: agentless vps ssh {called}")
        if task["ports"]:
            say(f"To forward {ports(task)}: agentless forward {called}")
    return int(start["exit_code"])


def show_list(context: typer.Context, as_json: Json = False, output: Output = None) -> None:
    """List all VPS, including stopped ones."""
    style = TASKS.format(as_json, output)
    style.show(client(context).get("/v1/vps"), _COLUMNS, "No VPS. To create one: agentless vps create NAME 1x")


def show(context: typer.Context, name: VpsName, as_json: Json = False) -> None:
    """Show a VPS."""
    from agentless.cli.tasks.show import show_task

    show_task(context, _get(context, name)["id"], as_json)


def stop(context: typer.Context, name: VpsName, grace: _Grace = None, as_json: Json = False) -> None:
    """Stop a VPS: its GPUs are free, and its files stay."""
    show_changed(name, client(context).post(f"/v1/vps/{name}/stop", {"grace": grace}), as_json=as_json)


def start(
    context: typer.Context,
    name: VpsName,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="If its GPUs are taken or its node is away, use others")
    ] = False,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Start a stopped VPS on its node, with the same GPUs.

    Fails if somebody has them, and says who. With --anywhere it is started on other GPUs or another node then, in a
    new container from a snapshot. Folders of the node that are mounted do not move.
    """
    with progress(f"Starting {name}"):
        started = client(context).post(f"/v1/vps/{name}/start", {"anywhere": anywhere})
    show_started(name, started, as_json=as_json)


def restart(
    context: typer.Context, name: VpsName, grace: _Grace = None, as_json: Json = False, _: Quiet = False
) -> None:
    """Stop a VPS if it runs, and start it."""
    with progress(f"Restarting {name}"):
        started = client(context).post(f"/v1/vps/{name}/restart", {"grace": grace})
    show_started(name, started, as_json=as_json)


def resize(
    context: typer.Context,
    name: VpsName,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]", help="Other GPUs, such as 2x or node1::0,1", autocompletion=complete.targets
        ),
    ] = None,
    cores: Annotated[float | None, typer.Option(metavar="N", help="CPU cores; 0 for no limit")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory, such as 16G; 0 for no limit")] = None,
    yes: Yes = False,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Give a VPS other cores, memory or GPUs.

    Cores and memory change while it runs. For other GPUs, or to lift a limit, it is stopped and started in a new
    container with the same files; programs that run in it end.

    agentless vps resize dev --memory 32G
    agentless vps resize dev 2x
    """
    if cores is None and memory is None and target is None:
        raise UsageError("nothing to change; use --cores, --memory or a target, such as 2x")
    size = None if memory is None else OPTIONS["memory"].read(memory)
    if not yes and (target is not None or 0 in (cores, size)):
        confirm(
            f"Stop {name} and start it in a new container with the same files; programs that run in it end",
            "nothing was changed",
            unattended=UsageError(f"programs that run in {name} would end; to do that, add --yes"),
        )
    with progress(f"Resizing {name}"):
        change = {"cores": cores, "memory": size, "target": target}
        started = client(context).post(f"/v1/vps/{name}/resize", change)
    show_started(name, started, as_json=as_json)


def change_terms(
    context: typer.Context,
    name: VpsName,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop it this long after its start: 7d; 0 for never")
    ] = None,
    idle_stop: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop it after this time without use: 4h; 0 for never")
    ] = None,
    snapshot_on_stop: Annotated[
        int | None, typer.Option(metavar="N", help="Take a snapshot whenever it stops, and keep the last N; 0 for none")
    ] = None,
    as_json: Json = False,
) -> None:
    """Change when a VPS stops by itself, and its snapshots on stop.

    agentless vps set dev --expires 14d
    """
    given: dict[str, Any] = {"expires": expires, "idle_stop": idle_stop, "snapshot_on_stop": snapshot_on_stop}
    change = {key: OPTIONS[key].read(value) for key, value in given.items() if value is not None}
    if not change:
        raise UsageError("nothing to change; use --expires, --idle-stop or --snapshot-on-stop")
    show_changed(name, client(context).post(f"/v1/vps/{name}/terms", change), as_json=as_json)


def ssh(context: typer.Context, name: VpsName) -> None:
    """Log in to a VPS; see agentless ssh.

    agentless vps ssh dev
    agentless vps ssh dev -- nvidia-smi
    """
    task = _get(context, name)
    if task["ended_at"] is not None:
        raise Refused(f"VPS {name} is {task['state']}; to start it, run: agentless vps start {name}")
    log_in(context, task["id"], command_of(context))


def rm(
    context: typer.Context,
    name: VpsName,
    force: Annotated[bool, typer.Option("--force", help="Also if it runs; do not ask")] = False,
    yes: Yes = False,
) -> None:
    """Remove a VPS with its files.

    Its snapshots stay. To remove them: agentless env rm NAME.vps
    """
    served = client(context)
    served.get(f"/v1/vps/{name}")
    if not (yes or force):
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


_COLUMNS = [
    Column("NAME", lambda task: task["name"] or ""),
    Column("STATE", state),
    Column("WHERE", where),
    Column("IMAGE", lambda task: task["env"] or task["image"] or ""),
    Column("COMMAND", command_line),
    Column("STOPS", lambda task: local(task["stops_at"]) or ""),
    Column("REASON", why, wraps=True),
]
