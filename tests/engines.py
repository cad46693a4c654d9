"""Engines and GPU vendors as the controller wires them, for tests that have no controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentless.engines.dialect import Dialect
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.docker.engine import DockerEngine
from agentless.engines.podman.dialect import PODMAN
from agentless.engines.systemd.engine import Systemd
from agentless.gpus.amd.vendor import Amd
from agentless.gpus.nvidia.faults import meaning
from agentless.gpus.nvidia.topology import closeness
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.gpus.vendors import GpuVendors
from agentless.model.containers.signature import Signer
from agentless.model.nodes.complaint import Blame, Known
from agentless.model.nodes.gpu import GpuFault, GpuTopology
from agentless.model.nodes.node import NodeConfig
from agentless.paths import template_dir
from agentless.render import Renderer

VENDORS = GpuVendors((Nvidia(), Amd()))
RENDERER = Renderer([template_dir()])
"""The packaged templates."""


def docker_engine(node: NodeConfig, renderer: Renderer, signer: Signer) -> DockerEngine:
    return DockerEngine(node, renderer, signer, VENDORS)


def podman_engine(node: NodeConfig, renderer: Renderer, signer: Signer) -> DockerEngine:
    return DockerEngine(node, renderer, signer, VENDORS, PODMAN)


def systemd_engine(node: NodeConfig, renderer: Renderer, signer: Signer) -> Systemd:
    return Systemd(node, renderer, signer, VENDORS, dialect_of(node))


def dialect_of(node: NodeConfig) -> Dialect:
    return PODMAN if node.has_podman else DOCKER


def of_devices(node: NodeConfig) -> tuple[Known, ...]:
    return VENDORS.complaints(dialect_of(node).name)


def explain(complaint: str, node: NodeConfig) -> str:
    """The sentence that the engine of a node makes of a complaint."""
    return dialect_of(node).explain(complaint, node, of_devices(node))


def blame(complaint: str, node: NodeConfig | None = None) -> Blame:
    """The reason that the engine of a node finds in a complaint."""
    node = node or NodeConfig("node1", "h")
    return dialect_of(node).blame(complaint, of_devices(node))


def xid(bus: str, code: int, message: str = "", at: float | None = None, age: float | None = None) -> GpuFault:
    """An Xid as the probe gives it."""
    return GpuFault(bus, f"Xid {code}", message, at, age, meaning(code, message))


def joined(links: Mapping[Any, str], numa: Mapping[int, int] | None = None) -> GpuTopology:
    """A topology by the words of its links."""
    return GpuTopology({pair: closeness(kind) for pair, kind in links.items()}, numa or {})
