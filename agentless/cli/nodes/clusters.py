"""Clusters with queues of their own, beside nodes."""

from __future__ import annotations

from typing import Any

from agentless.cli.formats import Kind
from agentless.cli.table import Column
from agentless.client.client import Client
from agentless.client.words import in_use


def nodes_of(served: Client, name: str) -> list[dict[str, Any]] | None:
    """The compute nodes of a cluster; None if this is the name of none."""
    if name not in {each["name"] for each in served.get("/v1/clusters")}:
        return None
    return list(served.get(f"/v1/clusters/{name}/nodes"))


def _free(node: dict[str, Any]) -> str:
    every = sum(node["gpus"].values())
    return f"{every - node['gpus_used']}/{every}"


def _types(node: dict[str, Any]) -> str:
    return ",".join(f"{count}x{kind}" if kind else f"{count}x" for kind, count in node["gpus"].items()) or "-"


CLUSTER_COLUMNS = [
    Column("CLUSTER", lambda cluster: cluster["name"]),
    Column("STATE", lambda cluster: cluster["state"]),
    Column("ENGINE", lambda cluster: cluster["engine"]),
    Column("TASKS", lambda cluster: str(cluster["tasks"]), right=True),
    Column("ADDRESS", lambda cluster: cluster["address"]),
    Column("REASON", lambda cluster: cluster["reason"], wraps=True),
]
CLUSTER_NODES = Kind("view.ClusterNodeView", lambda node: str(node["name"]))
CLUSTER_NODE_COLUMNS = [
    Column("NODE", lambda node: node["name"]),
    Column("STATE", lambda node: node["state"]),
    Column("FREE", _free, right=True),
    Column("GPUS", _types),
    Column("CORES", lambda node: f"{node['cores_used']}/{node['cores']}", right=True),
    Column("MEMORY", lambda node: in_use(node["memory_used_mib"], node["memory_mib"]), right=True),
    Column("REASON", lambda node: node["reason"], wraps=True),
]
