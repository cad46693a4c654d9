"""Whether the engine of a node can hand out its GPUs."""

from __future__ import annotations

from agentless.model.nodes.cluster import Node, Observation


def why_no_gpus(node: Node) -> str | None:
    """Why containers get no GPU here, with the fix. None if they do, or if it is not known."""
    engine, sample = node.observation.engine, node.observation.sample
    if engine is None or sample is None or not sample.gpus:
        return None
    toolkit = engine.toolkits.get(sample.gpus[0].vendor)
    if toolkit is None or toolkit.ready or has_its_own(node.observation):
        return None
    return f"{node.config.engine_title} on {node.name} cannot give GPUs to containers; {toolkit.fix}"


def has_its_own(seen: Observation) -> bool:
    """Whether the engine gives GPUs by something that it does not tell of: Docker Desktop does in WSL2."""
    return bool(seen.engine and seen.engine.desktop and seen.host and seen.host.wsl)
