"""Whether the engine of a node can hand out its GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from agentless.model.nodes.cluster import Node


def withheld(node: Node) -> Mapping[str, str]:
    """The vendors whose GPUs no container gets here, each with why and the fix. What is not known is not withheld."""
    engine, sample = node.observation.engine, node.observation.sample
    if engine is None or sample is None:
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
