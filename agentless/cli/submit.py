"""`agentless submit`: argv to a TaskSpec, one request, and what became of each target."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from agentless.cli import complete
from agentless.cli.common import Json, client, own_code, print_json, say, wait_for
from agentless.cli.logs import copy_log
from agentless.client import Client
from agentless.errors import UsageError
from agentless.model.spec import TaskSpec, check_spec, parse_mount
from agentless.model.target import parse_target
from agentless.model.units import parse_duration, parse_size


class _WithCommand(TyperCommand):
    """What comes after the first `--` is the task's command, word for word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the command off before options are looked for."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta["command"] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(cls=_WithCommand)(submit)


def submit(
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET... -- COMMAND...",
            help="Where: HOST[:NUMA][::GPU,...], like node1::0 or node2::0,1. Several make one batch.",
            autocompletion=complete.targets,
        ),
    ] = None,
    more_targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", metavar="TARGET", help="The same, as an option.", autocompletion=complete.targets
        ),
    ] = None,
    image: Annotated[str | None, typer.Option(help="The container image; default: the inventory's.")] = None,
    name: Annotated[str | None, typer.Option(help="A name to refer to it by.")] = None,
    cores: Annotated[float | None, typer.Option(help="CPU cores at most, like 4 or 0.5.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory at most, like 8GB or 16GiB.")] = None,
    shm_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Size of /dev/shm.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="KEY[=VALUE]", help="A variable; without =VALUE yours.")
    ] = None,
    secret_env: Annotated[
        list[str] | None,
        typer.Option(
            "--secret-env", "-s", metavar="KEY[=VALUE]", help="The same, and its value is never shown or stored."
        ),
    ] = None,
    mount: Annotated[
        list[str] | None, typer.Option(metavar="HOST:CONT[:ro]", help="A folder of the node to see in the container.")
    ] = None,
    workdir: Annotated[str | None, typer.Option(help="Folder in the container to start in.")] = None,
    user: Annotated[str | None, typer.Option(help="User in the container, like 1000:1000.")] = None,
    network: Annotated[str | None, typer.Option(help="Docker network, like host or none.")] = None,
    privileged: Annotated[
        bool, typer.Option("--privileged", help="Full access to the node, all GPUs included.")
    ] = False,
    share: Annotated[
        bool, typer.Option("--share", help="Also on a GPU that a process outside agentless uses.")
    ] = False,
    stop_grace: Annotated[str, typer.Option(metavar="TIME", help="Between SIGTERM and SIGKILL.")] = "10s",
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label to find it by.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; the exit code is the task's.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its output until it ends; implies --wait.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script for the node; start nothing.")] = False,
    _no_queue: Annotated[
        bool, typer.Option("--no-queue", help="Refuse when a GPU is busy (there is no queue yet).")
    ] = False,
    as_json: Json = False,
) -> int:
    """Run a command on chosen nodes and GPUs.

    agentless submit node1::0 -- python train.py --lr 0.1
    """
    all_targets = [*(targets or []), *(more_targets or [])]
    if not all_targets:
        raise UsageError("no target: name a node, like node1::0; agentless gpus shows what is free")
    for text in all_targets:
        parse_target(text)
    secrets = _variables(secret_env, "--secret-env")
    spec = TaskSpec(
        command=tuple(context.meta.get("command", ())),
        image=image,
        name=name,
        cores=cores,
        memory=None if memory is None else parse_size(memory),
        shm_size=None if shm_size is None else parse_size(shm_size),
        env=_variables(env, "--env"),
        secret_env=tuple(sorted(secrets)),
        mounts=tuple(parse_mount(text) for text in mount or ()),
        workdir=workdir,
        user=user,
        network=network,
        privileged=privileged,
        stop_grace=parse_duration(stop_grace),
        share=share,
        labels=dict(_pair(text, "--label") for text in label or ()),
    )
    check_spec(spec)
    if follow and len(all_targets) > 1:
        raise UsageError("--follow shows one task; submit to one target, or use agentless logs -f for each")
    served = client(context)
    request = {"targets": all_targets, "spec": asdict(spec), "secrets": secrets, "dry_run": dry_run}
    starts = _post(served, request)
    return _report(served, starts, wait=wait, follow=follow, dry_run=dry_run, as_json=as_json)


def _post(served: Client, request: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        starts: list[dict[str, Any]] = served.post("/v1/tasks", request)
    except KeyboardInterrupt:
        say("\nInterrupted while the task was being started; it may run. See: agentless ps")
        raise
    return starts


def _report(
    served: Client, starts: list[dict[str, Any]], *, wait: bool, follow: bool, dry_run: bool, as_json: bool
) -> int:
    for start in starts:
        if start["message"]:
            say(f"agentless: {start['message']}")
    code = _worst(start["exit_code"] for start in starts)
    if dry_run:
        for start in starts:
            if start["script"] is not None:
                print(f"# on {start['target']}, to the stdin of sh:\n{start['script']}")
        return code
    tasks = [start["task"] for start in starts if start["task"]]
    # A short one may be over already.
    started = [task for task in tasks if task["ended_at"] is None or task["container"]]
    if not as_json:
        for task in started:
            _announce(task, quiet=follow or wait)
    if follow and started:
        sys.stdout.flush()
        copy_log(served, started[0]["id"], follow=True)
    if (wait or follow) and started:
        tasks = [_await(served, task) if task in started else task for task in tasks]
        code = code or _worst(own_code(task) for task in tasks)
    if as_json:
        print_json(tasks)
    return code


def _announce(task: dict[str, Any], *, quiet: bool) -> None:
    if sys.stdout.isatty() and not quiet:
        gpus = "" if not task["gpus"] else " on GPU " + ", ".join(map(str, task["gpus"]))
        print(f"{task['id']}  running on {task['node']}{gpus}")
        say(f"follow it: agentless logs -f {task['id']}    end it: agentless stop {task['id']}")
    elif not quiet:
        print(task["id"])
    else:
        say(f"{task['id']}  running on {task['target']}")


def _await(served: Client, task: dict[str, Any]) -> dict[str, Any]:
    try:
        return wait_for(served, task["id"])
    except KeyboardInterrupt:
        say(f"\nThe task goes on. See it: agentless logs -f {task['id']}    end it: agentless stop {task['id']}")
        raise


def _worst(codes: Any) -> int:
    """3 before 4 before any other: a refusal can be helped by the user."""
    found = [code for code in codes if code]
    return next((code for code in (3, 4) if code in found), found[0] if found else 0)


def _variables(texts: list[str] | None, option: str) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            if name not in os.environ:
                raise UsageError(f"{option} {name}: there is no such variable in your environment; write {name}=VALUE")
            value = os.environ[name]
        found[name] = value
    return found


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{option} {text!r}: write KEY=VALUE")
    return key, value
