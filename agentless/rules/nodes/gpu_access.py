"""Whether the engine of a node can hand out its GPUs."""

from __future__ import annotations

from agentless.model.nodes.cluster import Node, Observation
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.node import EngineFacts, NodeConfig


def why_no_gpus(node: Node) -> str | None:
    """Why containers get no GPU here, with the fix. None if they do, or if it is not known."""
    engine, sample = node.observation.engine, node.observation.sample
    if engine is None or sample is None or not sample.gpus:
        return None
    toolkit = engine.toolkits.get(sample.gpus[0].vendor)
    if toolkit is None or toolkit.ready or has_its_own(node.observation):
        return None
    return f"{node.config.engine_title} on {node.name} cannot give GPUs to containers; {toolkit.fix}"


def why_no_container(config: NodeConfig, engine: EngineFacts | None, gpu: GpuReading) -> str:
    """Why containers get this GPU of a node not, with the fix: its engine lists others for CDI. Empty if they do.

    A GPU that is split has no name of its own in such a list.
    """
    toolkit = engine.toolkits.get(gpu.vendor) if engine else None
    if engine is None or toolkit is None or toolkit.way != "cdi" or gpu.mig or not engine.cdi:
        return ""
    if any(device.endswith(f"={gpu.uuid}") for device in engine.cdi):
        return ""
    return f"{config.engine_title} on {config.name} does not find it in a CDI file; run there: {toolkit.fix}"


def has_its_own(seen: Observation) -> bool:
    """Whether the engine gives GPUs by something that it does not tell of: Docker Desktop does in WSL2."""
    return bool(seen.engine and seen.engine.desktop and seen.host and seen.host.wsl)
