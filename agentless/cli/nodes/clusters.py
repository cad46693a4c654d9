"""Clusters with queues of their own, beside nodes."""

from __future__ import annotations

from typing import Any

from agentless.cli.formats import Format, Kind
from agentless.cli.table import Column
from agentless.client.client import Client
from agentless.client.http import RequestFailed
from agentless.client.words import free_gpus, gpus_by_type, in_use, nodes_out


def show_nodes_of(served: Client, name: str, error: RequestFailed, style: Format) -> None:
    """List the compute nodes of a cluster. Raises `error`, by which there is no such node, if it is no cluster."""
    style.show(_nodes_of(served, name, error), _NODE_COLUMNS, f"{name} has no nodes")


def show_gpus_of(served: Client, name: str, error: RequestFailed, style: Format, *, free: bool) -> None:
    """Likewise those with GPUs, or with free ones."""
    having = [node for node in _nodes_of(served, name, error) if (node["gpus_free"] if free else node["gpus"])]
    style.show(having, _NODE_COLUMNS, "No free GPUs" if free else "No GPUs")


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
    Column("REASON", lambda cluster: cluster["reason"] or nodes_out(cluster), wraps=True),
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
