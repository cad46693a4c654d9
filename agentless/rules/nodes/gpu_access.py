"""Whether the engine of a node can hand out its GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from agentless.model.nodes.cluster import Node, Observation
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.node import EngineFacts, NodeConfig


def withheld(node: Node) -> Mapping[str, str]:
    """The vendors whose GPUs no container gets here, each with why and the fix. What is not known is not withheld."""
    engine, sample = node.observation.engine, node.observation.sample
    if engine is None or sample is None or has_its_own(node.observation):
        return {}
    title = f"{node.config.engine_title} on {node.name}"
    kits = {vendor: engine.toolkits.get(vendor) for vendor in dict.fromkeys(gpu.vendor for gpu in sample.gpus)}
    return {
        vendor: f"{title} cannot give GPUs to containers; {kit.fix}"
        for vendor, kit in kits.items()
        if kit and not kit.ready
    }


def why_no_gpus(node: Node) -> str | None:
    """Why containers get no GPU of any vendor here, with the fix. None if they do, or if it is not known."""
    reasons, sample = withheld(node), node.observation.sample
    vendors = {gpu.vendor for gpu in sample.gpus} if sample else set()
    return next(iter(reasons.values())) if reasons and vendors <= reasons.keys() else None


def why_no_container(config: NodeConfig, engine: EngineFacts | None, gpu: GpuReading) -> str:
    """Why containers get this GPU of a node not, with the fix: its engine lists others for CDI. Empty if they do.

    A GPU that is split has no name of its own in such a list. Where the list is optional, its names need not be ids.
    """
    toolkit = engine.toolkits.get(gpu.vendor) if engine else None
    if engine is None or toolkit is None or toolkit.way != "cdi" or toolkit.is_optional:
        return ""
    if gpu.in_parts or not engine.cdi:
        return ""
    if any(device.endswith(f"={gpu.uuid}") for device in engine.cdi):
        return ""
    return f"{config.engine_title} on {config.name} does not find it in a CDI file; run there: {toolkit.fix}"


def has_its_own(seen: Observation) -> bool:
    """Whether the engine gives GPUs by something that it does not tell of: Docker Desktop does in WSL2."""
    return bool(seen.engine and seen.engine.desktop and seen.host and seen.host.wsl)
