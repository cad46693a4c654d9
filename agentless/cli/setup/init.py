"""`agentless init`: from the hosts of ~/.ssh/config to an inventory of those that can run tasks."""

from __future__ import annotations

import contextlib
import shlex
import sys
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from agentless import paths
from agentless.cli.nodes.host_keys import Keys, confirm_keys, distinct
from agentless.cli.output import print_line, say
from agentless.cli.setup.trial import Tried, try_hosts
from agentless.cli.table import Column, show
from agentless.client.client import Client
from agentless.client.words import gpu_place
from agentless.errors import AgentlessError
from agentless.model.units import counted


class NoHostPassed(AgentlessError):
    """There is nothing to write."""


def add_to(app: typer.Typer) -> None:
    app.command()(init)


def init(
    context: typer.Context,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]...", help="[USER@]HOST[:PORT] (default: the hosts in ~/.ssh/config)"),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also write hosts that fail the checks")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Trust unknown host keys without asking")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing inventory")] = False,
) -> None:
    """Check hosts, and write an inventory of those that can run tasks.

    Takes the hosts in ~/.ssh/config unless you name some. Asks once whether to trust unknown host keys; without a
    terminal it leaves out their hosts.
    """
    from agentless.inventory.first import check_absent, first_inventory, named_hosts, write_first
    from agentless.inventory.ssh_hosts import read_ssh_hosts

    path = paths.new_inventory(context.find_root().obj)
    check_absent(path, force=force)
    known = read_ssh_hosts(paths.ssh_config())
    nodes = named_hosts(hosts or known.machines)
    say(f"Checking {counted(len(nodes), 'host')} {'' if hosts else 'of ~/.ssh/config '}...")
    tried = try_hosts(nodes, first_inventory(nodes), lambda keys: _agree(keys, yes=yes))
    left_out = {} if every else {name: (nodes[name], why) for name, why in tried.problems.items()}
    chosen = {name: host for name, host in nodes.items() if name not in left_out}
    _report(list(nodes), tried, every=every)
    if not chosen:
        raise NoHostPassed("no host passed, so nothing was written; fix one of them, or write all with --all")
    text = first_inventory(chosen, tried.image, left_out=left_out, git=() if hosts else known.git)
    write_first(path, text, force)
    if not sys.stdout.isatty():
        print_line(str(path))
    _say_next(path, len(chosen), tried)


def _agree(keys: Keys, *, yes: bool) -> bool:
    """Show unknown host keys, and ask once whether to trust them all; nobody does without a terminal."""
    shown = distinct(keys)
    say("", "Host keys that are not in your known_hosts:", "")
    with contextlib.redirect_stdout(sys.stderr):
        show(
            [
                Column("NODE", itemgetter("node")),
                Column("HOST", itemgetter("host")),
                Column("KEY", itemgetter("fingerprint")),
            ],
            shown,
        )
    say("")
    return yes or (sys.stdin.isatty() and confirm_keys(len(shown)))


def _report(nodes: list[str], tried: Tried, *, every: bool) -> None:
    """Say of each host whether it can run tasks, and why not."""
    rows = [
        {"host": node, "mark": "FAIL" if node in tried.problems else "ok", "detail": _detail(node, tried)}
        for node in nodes
    ]
    columns = [
        Column("HOST", lambda row: row["host"]),
        Column("", lambda row: row["mark"]),
        Column("DETAIL", lambda row: row["detail"], wraps=True),
    ]
    with contextlib.redirect_stdout(sys.stderr):
        show(columns, rows)
    if tried.problems and not every and len(tried.problems) < len(nodes):
        say(f"Left out: {', '.join(tried.problems)}. To write them too, add --all.")


def _detail(node: str, tried: Tried) -> str:
    """Why it fails, else its engine and its GPUs."""
    drivers = {"nvidia", *(gpu["vendor"] for gpu in tried.gpus)}
    words = [
        f"Docker {check['detail'].removeprefix('version ')}" if check["check"] == "docker" else check["detail"]
        for check in tried.checks
        if check["node"] == node and check["check"] in ("docker", *drivers)
    ]
    return tried.problems.get(node, ", ".join(words))


def _say_next(path: Path, nodes: int, tried: Tried) -> None:
    """Say what was written, and the one command to try next."""
    from agentless.inventory.first import DEFAULT_IMAGE

    have = f"on {counted(len(tried.has_image), 'node')}" if tried.image else "to be pulled: no node has one that fits"
    image = f"default image {tried.image or DEFAULT_IMAGE} ({have})"
    say("", f"Wrote {path}: {counted(nodes, 'node')}, {image}.")
    used = paths.find_inventory(None)
    if used != path:
        say(f"Note: without -i, commands in this folder use {used}.")
    command = f"agentless {'' if used == path else f'-i {shlex.quote(str(path))} '}"
    served = Client(paths.state_dir(), None)
    if served.is_running() and (other := served.get("/v1/controller")["inventory"]) != str(path):
        say(f"Note: the running controller serves {other}. Stop it first; its tasks keep running.")
        command = f"agentless controller stop && {command}"
    target = _target(tried)
    say(f"Try it: {command}{'doctor' if target is None else f'submit {target} --follow -- echo hello'}")


def _target(tried: Tried) -> str | None:
    """Where a first task can start now: a free GPU, best where the image is, or a node; None if no node passed."""
    free: list[dict[str, Any]] = [gpu for gpu in tried.gpus if gpu["state"] == "free"]
    free.sort(key=lambda gpu: gpu["node"] not in tried.has_image)
    if free:
        return gpu_place(free[0])
    passed = [check["node"] for check in tried.checks if check["node"] not in tried.problems]
    return next(iter([*tried.has_image, *passed]), None)
