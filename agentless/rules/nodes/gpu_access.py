"""Whether the engine of a node can hand out its GPUs."""

from __future__ import annotations

from agentless.model.nodes.cluster import Node


def why_no_gpus(node: Node) -> str | None:
    """Why containers get no GPU here, with the fix. None if they do, or if it is not known."""
    engine, sample = node.observation.engine, node.observation.sample
    if engine is None or sample is None or not sample.gpus:
        return None
    toolkit = engine.toolkits.get(sample.gpus[0].vendor)
    if toolkit is None or toolkit.ready:
        return None
    return f"{node.config.engine_title} on {node.name} cannot give GPUs to containers; {toolkit.fix}"


def unlisted(node: Node) -> str | None:
    """The GPUs that Docker cannot give by CDI because no file on the node lists their UUIDs. None if there are none."""
    engine, sample = node.observation.engine, node.observation.sample
    if engine is None or sample is None or not engine.cdi:
        return None
    ways = {vendor: toolkit.way for vendor, toolkit in engine.toolkits.items()}
    names = {device.partition("=")[2] for device in engine.cdi}
    missing = [str(gpu.index) for gpu in sample.gpus if ways.get(gpu.vendor) == "cdi" and gpu.uuid not in names]
    if not missing:
        return None
    fix = next(toolkit.fix for toolkit in engine.toolkits.values() if toolkit.way == "cdi")
    gpus = ", ".join(missing)
    return f"{node.config.engine_title} on {node.name} finds no CDI device for GPU {gpus}; on the node, run: {fix}"
