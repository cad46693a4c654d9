"""`agentless gpus`: all GPUs, who uses them, and how busy they are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.output import say
from agentless.cli.pager import paged
from agentless.cli.table import Column, show
from agentless.client.client import Client
from agentless.client.words import (
    gpu_column,
    gpu_number,
    gpu_place,
    gpu_reason,
    gpu_state,
    idle,
    memory_in_use,
    or_dash,
    process_words,
)


def add_to(app: typer.Typer) -> None:
    app.command()(gpus)


def gpus(
    context: typer.Context,
    node: Annotated[
        str | None,
        typer.Argument(metavar="[NODE]", help="Node name (default: all nodes)", autocompletion=complete.nodes),
    ] = None,
    free: Annotated[bool, typer.Option("--free", help="List free GPUs only")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update the list until Ctrl-C")] = False,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """List all GPUs, and who uses them."""
    style = GPUS.format(as_json, output)
    served = client(context)
    if watch:
        _watch_gpus(served, node, free=free)
    found = [gpu for gpu in served.get("/v1/gpus", node=node) if gpu["state"] == "free" or not free]
    nodes = served.get("/v1/nodes") if style.is_table else []
    with paged():
        style.show(found, GPU_COLUMNS, "No free GPUs" if free else "No GPUs")
        if style.is_table:
            _say_notes(found, [each for each in nodes if node in (None, each["name"])])


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


def _watch_gpus(served: Client, node: str | None, *, free: bool) -> None:
    from agentless.cli.nodes.watch import watch

    if node is not None:
        served.get(f"/v1/nodes/{node}")  # raises NotFound if there is none
    watch(
        served,
        lambda cluster: show(
            GPU_COLUMNS,
            [g for g in cluster.ordered_gpus() if node in (None, g["node"]) and (g["state"] == "free" or not free)],
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
    Column("POWER", lambda gpu: or_dash(gpu["power_w"], " W"), right=True, wide=True),
    Column("DRIVER", lambda gpu: gpu["driver"] or "", wide=True),
    Column("UUID", lambda gpu: gpu["uuid"], wide=True),
    Column("USED BY", _who, wraps=True),
]
