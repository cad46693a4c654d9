"""Clusters with queues of their own, beside nodes."""

from __future__ import annotations

from typing import Any

from agentless.cli.formats import Format, Kind
from agentless.cli.output import print_line, say
from agentless.cli.table import Column, show
from agentless.client.client import Client
from agentless.client.http import RequestFailed
from agentless.client.words import cluster_reason, free_gpus, gpus_by_type, in_use, local, nodes_out
from agentless.errors import UsageError
from agentless.model.text import enumerated

WATCH_EVERY = 10.0
"""Seconds between two looks of `--watch`: Slurm is asked each time."""


def where_else(served: Client) -> str:
    """How to list the GPUs of clusters, to go on with a sentence; empty without any."""
    names = [each["name"] for each in served.get("/v1/clusters")]
    are = "is a cluster" if len(names) == 1 else "are clusters"
    return f"; {enumerated(names)} {are}: agentless gpus {names[0]}" if names else ""


def show_nodes_of(served: Client, name: str, error: RequestFailed, style: Format) -> None:
    """List the compute nodes of a cluster. Raises `error`, by which there is no such node, if it is no cluster."""
    nodes = _nodes_of(served, name, error)
    style.show(nodes, _NODE_COLUMNS, f"{name} has no nodes")
    _say_age(name, nodes)


def show_gpus_of(served: Client, name: str, error: RequestFailed, style: Format, *, free: bool) -> None:
    """Likewise those with GPUs, or with free ones."""
    nodes = _nodes_of(served, name, error)
    style.show(_having(nodes, free=free), _NODE_COLUMNS, "No free GPUs" if free else "No GPUs")
    _say_age(name, nodes)


def watch_gpus_of(served: Client, name: str, error: RequestFailed, *, free: bool) -> None:
    """Show them again and again, until Ctrl-C."""
    from agentless.cli.nodes.watch import watch_by

    _nodes_of(served, name, error)  # or it is no cluster

    def print_nodes() -> None:
        nodes = _nodes_of(served, name, error)
        show(_NODE_COLUMNS, _having(nodes, free=free))
        if as_of := _as_of(nodes):
            print_line(f"{name} does not answer; as of {as_of}")

    watch_by(print_nodes, WATCH_EVERY)


def check_has_plot(served: Client, name: str, error: RequestFailed) -> None:
    """Raise why there is no plot of it, or `error`."""
    _nodes_of(served, name, error)
    raise UsageError(
        f"--plot: agentless keeps no history of {name}, which is a cluster; to see what it allocates now, run: "
        f"agentless gpus {name} --watch"
    )


def _having(nodes: list[dict[str, Any]], *, free: bool) -> list[dict[str, Any]]:
    return [node for node in nodes if (node["gpus_free"] if free else node["gpus"])]


def _say_age(name: str, nodes: list[dict[str, Any]]) -> None:
    if as_of := _as_of(nodes):
        say(f"{name} does not answer. Its nodes are as of {as_of}")


def _as_of(nodes: list[dict[str, Any]]) -> str | None:
    return local(nodes[0].get("as_of")) if nodes else None


def _nodes_of(served: Client, name: str, error: RequestFailed) -> list[dict[str, Any]]:
    if error.error != "NotFound":
        raise error
    try:
        return list(served.get(f"/v1/clusters/{name}/nodes"))
    except RequestFailed as other:
        raise (error if other.error == "NotFound" else other) from None


CLUSTER_COLUMNS = [
    Column("CLUSTER", lambda cluster: cluster["name"]),
    Column("STATE", lambda cluster: cluster["state"]),
    Column("ENGINE", lambda cluster: cluster["engine"]),
    Column("NODES", lambda cluster: str(cluster["nodes"]), right=True),
    Column("FREE", free_gpus, right=True),
    Column("GPUS", lambda cluster: gpus_by_type(cluster["gpus"])),
    Column("TASKS", lambda cluster: str(cluster["tasks"]), right=True),
    Column("ADDRESS", lambda cluster: cluster["address"]),
    Column("REASON", lambda cluster: cluster_reason(cluster) or nodes_out(cluster), wraps=True),
]
CLUSTER_NODES = Kind("view.ClusterNodeView", lambda node: str(node["name"]))
_NODE_COLUMNS = [
    Column("NODE", lambda node: node["name"]),
    Column("STATE", lambda node: node["state"]),
    Column("FREE", free_gpus, right=True),
    Column("GPUS", lambda node: gpus_by_type(node["gpus"])),
    Column("CORES", lambda node: f"{node['cores_used']}/{node['cores']}", right=True),
    Column("MEMORY", lambda node: in_use(node["memory_used_mib"], node["memory_mib"]), right=True),
    Column("REASON", lambda node: node["reason"], wraps=True),
]
