"""`agentless nodes`: list the nodes of the inventory, or show one in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from agentless.cli.arguments import Json, ManyNodes, NodeArgument
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.nodes.clusters import CLUSTER_COLUMNS, CLUSTER_NODES, show_nodes_of
from agentless.cli.nodes.drain import drain, resume
from agentless.cli.nodes.gpus import GPU_COLUMNS
from agentless.cli.nodes.host_keys import trust
from agentless.cli.output import print_line
from agentless.cli.pager import paged
from agentless.cli.table import Column, show, wrapped
from agentless.client.http import RequestFailed
from agentless.client.words import (
    cores_in_use,
    engine_version,
    host_lines,
    in_use,
    local,
    numa_lines,
    or_dash,
    rate,
    ssh_sessions,
)
from agentless.model.units import counted


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        help="List nodes; show, trust, drain or resume them.",
        epilog="Alias: nodes list. Some nodes only: nodes NODE...",
        invoke_without_command=True,
    )
    group.callback()(nodes)
    group.command("list", hidden=True)(show_list)
    group.command("show")(show_node)
    group.command()(trust)
    group.command()(drain)
    group.command()(resume)
    app.add_typer(group, name="nodes")


def nodes(context: typer.Context, as_json: Json = False, output: Output = None) -> None:
    """List the nodes in the inventory."""
    if context.invoked_subcommand is None:
        _list(context, [], as_json, output)


def show_list(context: typer.Context, nodes: ManyNodes = None, as_json: Json = False, output: Output = None) -> None:
    """List the nodes in the inventory."""
    before = context.parent.params if context.parent else {}
    _list(context, nodes or [], as_json or before["as_json"], output or before["output"])


def _list(context: typer.Context, nodes: Sequence[str], as_json: bool, output: str | None) -> None:
    style = _NODES.format(as_json, output)
    served = client(context)
    try:
        found = [served.get(f"/v1/nodes/{node}") for node in nodes] or served.get("/v1/nodes")
    except RequestFailed as error:
        if len(nodes) != 1:
            raise
        show_nodes_of(served, nodes[0], error, CLUSTER_NODES.format(as_json, output))
        return
    style.show(found, _COLUMNS, "No nodes in the inventory")
    if style.is_table and not nodes and (clusters := served.get("/v1/clusters")):
        print_line("")
        show(CLUSTER_COLUMNS, clusters)


def show_node(context: typer.Context, node: NodeArgument, as_json: Json = False, output: Output = None) -> None:
    """Show the details of one node."""
    style = _NODES.format(as_json, output)
    served = client(context)
    try:
        found = served.get(f"/v1/nodes/{node}")
    except RequestFailed as error:
        show_nodes_of(served, node, error, CLUSTER_NODES.format(as_json, output))
        return
    found["gpu_list"] = served.get("/v1/gpus", node=node)
    with paged():
        if style.is_table:
            _print(found, wide=style.word == "wide")
        else:
            style.print(found)


def _print(found: dict[str, Any], *, wide: bool) -> None:
    lines = {
        "node": found["name"],
        "state": found["state"],
        "reason": found["reason"],
        "address": f"{found['address']} by {found['connection']}",
        "reached": found["address_in_use"],
        **host_lines(found),
        "docker": _engine(found),
        "driver": found["driver"],
        "cards": found["cards"],
        "labels": ", ".join(f"{key}={value}" for key, value in found["labels"].items()),
        "sampled": local(found["sampled_at"]),
        "ssh": found["sessions"] and ssh_sessions(found["sessions"]),
    }
    for key, value in lines.items():
        if value not in (None, ""):
            first, *others = wrapped(str(value), 10)
            print_line(f"{key:>8}  {first}")
            for line in others:
                print_line(f"{'':>8}  {line}")
    for number, line in enumerate(numa_lines(found)):
        print_line(f"{'' if number else 'NUMA':>8}  {line}")
    if found["gpu_list"]:
        print_line("")
        for gpu in found["gpu_list"]:
            # It stands above.
            gpu["reason"] = "" if gpu["reason"] == found["reason"] else gpu["reason"]
        show(GPU_COLUMNS[1:], found["gpu_list"], wide=wide)


def _engine(found: dict[str, Any]) -> str | None:
    """The engine, and what about it is not as usual."""
    if not found["docker"]:
        return None
    missing = ", ".join(found["missing_cgroups"])
    groups = f"cgroup v{found['cgroup_version']}" + (f" without {missing}" if missing else "")
    words = (
        found["docker"],
        "rootless" if found["rootless"] else "",
        "containerd's image store" if found["image_store"] == "containerd" else "",
        groups if found["cgroup_version"] else "",
        f"{counted(len(found['cdi_devices']), 'CDI device')}" if found["cdi_devices"] else "",
    )
    return ", ".join(filter(None, words))


_NODES = Kind("view.NodeView", lambda node: str(node["name"]))
_COLUMNS = [
    Column("NODE", lambda node: node["name"]),
    Column("STATE", lambda node: node["state"]),
    Column("FREE", lambda node: f"{node['gpus_free']}/{node['gpus']}", right=True),
    Column("CORES", cores_in_use, right=True),
    Column("MEMORY", lambda node: in_use(node["memory_used_mib"], node["memory_mib"]), right=True),
    Column("DOCKER", engine_version),
    Column("DRIVER", lambda node: or_dash(node["driver"]), rank=2),
    Column("TASKS", lambda node: or_dash(node["tasks"]), right=True, wide=True, rank=1),
    Column("LOAD", lambda node: or_dash(node["load_1m"]), right=True, wide=True, rank=4),
    Column("DISK", lambda node: in_use(node["disk_used_mib"], node["disk_total_mib"]), right=True, wide=True, rank=3),
    Column("TEMP", lambda node: or_dash(node["temperature_c"], "C"), right=True, wide=True, rank=7),
    Column("IN", lambda node: rate(node["network_in_bytes_per_second"]), right=True, wide=True, rank=8),
    Column("OUT", lambda node: rate(node["network_out_bytes_per_second"]), right=True, wide=True, rank=8),
    Column("ADDRESS", lambda node: node["address"], wide=True, rank=6),
    Column("BY", lambda node: node["connection"], wide=True, rank=9),
    Column(
        "LABELS", lambda node: ",".join(f"{key}={value}" for key, value in node["labels"].items()), wide=True, rank=5
    ),
    Column("REASON", lambda node: node["reason"], wraps=True),
]
