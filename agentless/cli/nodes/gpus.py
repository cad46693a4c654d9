"""`agentless gpus`: all GPUs, who uses them, and how busy they are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.formats import Format, Kind, Output
from agentless.cli.nodes.clusters import CLUSTER_NODES, check_has_plot, show_gpus_of, watch_gpus_of, where_else
from agentless.cli.output import print_line, say
from agentless.cli.pager import paged
from agentless.cli.table import Column, show
from agentless.client.client import Client
from agentless.client.http import RequestFailed
from agentless.client.words import (
    gpu_column,
    gpu_number,
    gpu_place,
    gpu_reason,
    gpu_sentence,
    gpu_state,
    idle,
    memory_in_use,
    or_dash,
    process_words,
    watts,
)
from agentless.errors import NotFound, UsageError
from agentless.model.scheduling.needs import Needs, parse_target


def add_to(app: typer.Typer) -> None:
    app.command()(gpus)


def gpus(
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE[::GPU]]...",
            help="Nodes, GPUs such as node1::0,1, or a Slurm cluster (default: all GPUs of nodes)",
            autocompletion=complete.targets,
        ),
    ] = None,
    free: Annotated[bool, typer.Option("--free", help="List free GPUs only")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update the list until Ctrl-C")] = False,
    plot: Annotated[bool, typer.Option("--plot", help="Plot utilization and memory over time")] = False,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start of the plot: 10min, 7d or 2026-05-01 (default: 1h)")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print a sentence per GPU, for screen readers")] = False,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """List all GPUs, and who uses them, or plot how busy they were."""
    style = GPUS.format(as_json, output)
    if plot and watch:
        raise UsageError(
            "--plot and --watch cannot be combined; the dashboard has plots that move: agentless dashboard"
        )
    if plain and (plot or watch):
        raise UsageError(f"--plain cannot be combined with {'--plot' if plot else '--watch'}; omit one of them")
    if since and not plot:
        raise UsageError("--since is for --plot; add --plot")
    served, wanted = client(context), list(map(_parsed, targets or ()))
    try:
        found = [gpu for gpu in _chosen(served, wanted) if gpu["state"] == "free" or not free]
    except RequestFailed as error:
        if len(wanted) != 1 or wanted[0].indices:
            raise
        name = str(wanted[0].node)
        if plot:
            check_has_plot(served, name, error)
        if watch:
            watch_gpus_of(served, name, error, free=free)
        show_gpus_of(served, name, error, CLUSTER_NODES.format(as_json, output), free=free)
        return
    if watch:
        _watch_gpus(served, wanted, free=free)
    if plot and found:
        _plot(served, found, since or "1h", style, are_all=not wanted and not free)
        return
    if plain and style.is_table:
        for gpu in found:
            print_line(gpu_sentence(gpu))
        return
    nodes = served.get("/v1/nodes") if style.is_table else []
    none = "No free GPUs" if free else "No GPUs"
    if style.is_table and not found and not wanted:
        none += where_else(served)
    with paged():
        style.show(found, GPU_COLUMNS, none)
        if style.is_table:
            names = {needs.node for needs in wanted}
            _say_notes(found, [each for each in nodes if not names or each["name"] in names])


def _parsed(text: str) -> Needs:
    needs = parse_target(text)
    if needs.node is None:
        raise UsageError(f"{text!r} is not a GPU; use node1::0, or node1 for all its GPUs")
    return needs


def _chosen(served: Client, wanted: list[Needs]) -> list[dict[str, Any]]:
    """The GPUs that are wanted, all without any. Raises NotFound for one that is not there."""
    if not wanted:
        return list(served.get("/v1/gpus"))
    found = {}
    for needs in wanted:
        there = {gpu_number(gpu): gpu for gpu in served.get("/v1/gpus", node=needs.node)}
        for number in needs.indices or there:
            if number not in there:
                raise NotFound(f"{needs.node} has no GPU {number}; to list its GPUs, run: agentless gpus {needs.node}")
            found[needs.node, number] = there[number]
    return list(found.values())


def _plot(served: Client, gpus: list[dict[str, Any]], since: str, style: Format, *, are_all: bool) -> None:
    from agentless.cli.usage.plots import print_gpus, readings

    found = readings(served, gpus, since, are_all=are_all)
    with paged():
        if style.is_table:
            print_gpus(found, gpus)
        else:
            style.print(found)


def _say_notes(found: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> None:
    """Print below the table what is wrong with the nodes and GPUs."""
    for each in nodes:
        if each["reason"] or each["cards"]:
            from agentless.model.nodes.node import naming

            if each["reason"]:
                say(naming(each["name"], each["reason"], f"{each['name']} is {each['state']}"))
            if each["cards"]:
                say(naming(each["name"], each["cards"]))
    for ill in dict.fromkeys(gpu["node"] for gpu in found if gpu["state"] == "unhealthy"):
        say(f"To use unhealthy GPUs of {ill} again: agentless nodes resume {ill} [--gpu N]")


def _watch_gpus(served: Client, wanted: list[Needs], *, free: bool) -> None:
    from agentless.cli.nodes.watch import watch

    def is_wanted(gpu: dict[str, Any]) -> bool:
        return not wanted or any(
            gpu["node"] == needs.node and (not needs.indices or gpu_number(gpu) in needs.indices) for needs in wanted
        )

    watch(
        served,
        lambda cluster: show(
            GPU_COLUMNS,
            [g for g in cluster.ordered_gpus() if is_wanted(g) and (g["state"] in ("free", "reserved") or not free)],
        ),
    )


def _who(gpu: dict[str, Any]) -> str:
    if not gpu["task"] or gpu["state"] == "unhealthy" or gpu["shares"] > 1:
        return "; ".join(filter(None, (gpu_reason(gpu), gpu["reserved"])))
    beside = "".join(f" + {process_words(process)}" for process in gpu["intruders"][:1])
    reserved = f"; {gpu['reserved']}" if gpu["reserved"] else ""
    owner = "" if gpu["mine"] else f" {gpu['owner']}"
    return f"{gpu['task']}{owner}{idle(gpu)}{beside}{reserved}"


GPUS = Kind("view.GpuView", gpu_place)
GPU_COLUMNS = [
    Column("NODE", lambda gpu: gpu["node"]),
    Column("GPU", lambda gpu: str(gpu_number(gpu)), right=True),
    Column("MODEL", gpu_column),
    Column("STATE", gpu_state),
    Column("UTIL", lambda gpu: or_dash(gpu["utilization_pct"], "%"), right=True),
    Column("MEMORY", memory_in_use, right=True),
    Column("TEMP", lambda gpu: or_dash(gpu["temperature_c"], "C"), right=True),
    Column("POWER", lambda gpu: watts(gpu["power_w"]), right=True, wide=True),
    Column("DRIVER", lambda gpu: gpu["driver"] or "", wide=True),
    Column("UUID", lambda gpu: gpu["uuid"], wide=True),
    Column("USED BY", _who, wraps=True),
]
