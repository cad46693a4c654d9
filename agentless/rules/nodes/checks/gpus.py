"""Checks of GPUs that are the same for all vendors: the driver, the toolkit of the engine, NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator

from agentless.model.nodes.check import SKIPPED, Check, ok, skipped
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.node import EngineFacts
from agentless.model.units import counted, format_indices
from agentless.rules.nodes.cards import without_driver
from agentless.rules.nodes.gpu_access import has_its_own, why_no_gpus

DRIVER = "nvidia"
"""The check of the GPU driver, whichever vendor's: it was published by this name when NVIDIA was the only one."""


def driver(node: Node) -> Check:
    """Whether the driver answers."""
    sample = node.observation.sample
    if sample is None:
        return skipped(DRIVER, node.reason)
    if sample.error is not None:
        return Check(DRIVER, "failed", "does not answer as it should", sample.error, words=sample.error)
    if cards := without_driver(node.observation.host, sample):
        return Check(DRIVER, "failed", "no driver", cards, words=cards)
    engine = node.observation.engine
    if not sample.gpus and engine and any(kit.ready for kit in engine.toolkits.values()):
        wrong = f"{node.config.engine_title} can hand out GPUs, but none is found"
        why = (
            "The node counts as one without GPUs. Perhaps nvidia-smi is not on the PATH of a login without a terminal."
        )
        return Check(DRIVER, "warning", "no GPU", wrong, "nvidia-smi -L  # shows the GPUs, if it is on the PATH", why)
    version = next((gpu.driver for gpu in sample.gpus if gpu.driver), None)
    slices = len(sample.gpus) - len(sample.whole)
    words = counted(len(sample.whole), "GPU") + (f" with {counted(slices, 'slice')}" if slices else "")
    words += f", driver {version}" if version else ""
    return ok(DRIVER, words if sample.gpus else "no GPU: CPU tasks only")


def toolkit(node: Node, broken: str, install: str) -> Check:
    """Whether the engine can hand out GPUs. `broken` is why a launch with GPUs failed, `install` is the fix."""
    sample, engine = node.observation.sample, node.observation.engine
    if sample is None or engine is None:
        return skipped("toolkit", node.reason)
    if not sample.gpus:
        return ok("toolkit", "not needed without GPUs")
    if broken:
        return Check("toolkit", "failed", "the last launch with a GPU failed", broken, words=broken)
    return _toolkit(node, engine, sample.gpus[0].vendor, install)


def numa(node: Node) -> Iterator[Check]:
    """Which GPUs are near which cores."""
    host, sample = node.observation.host, node.observation.sample
    if host is None or sample is None or not sample.gpus or len(host.numa) < 2:
        return
    by_bus = {bus: each.id for each in host.numa for bus in each.gpus}
    places: dict[int, list[int]] = {}
    for gpu in sample.whole:
        if gpu.pci_bus_id in by_bus:
            places.setdefault(by_bus[gpu.pci_bus_id], []).append(gpu.index)
    seen = "; ".join(f"node {place} has GPU {format_indices(gpus)}" for place, gpus in sorted(places.items()))
    unknown = [gpu.index for gpu in sample.whole if gpu.pci_bus_id not in by_bus]
    words = f"{len(host.numa)} NUMA nodes" + (f"; {seen}" if seen else "")
    yield ok("numa", words + (f"; not known for GPU {format_indices(unknown)}" if unknown else ""))


def _toolkit(node: Node, engine: EngineFacts, vendor: str, install: str) -> Check:
    found = engine.toolkits.get(vendor)
    if found is None and engine.error:
        return skipped("toolkit", SKIPPED)
    if has_its_own(node.observation):
        return ok("toolkit", "Docker Desktop gives GPUs in WSL2")
    if found is None or found.ready:
        by_cdi = " by CDI" if found and found.way == "cdi" and not node.config.has_podman else ""
        return ok("toolkit", f"{node.config.engine_title} can use GPUs{by_cdi}")
    if engine.error:
        return skipped("toolkit", SKIPPED)
    why = f"Without it, {node.config.engine_title} cannot give a GPU to a container."
    wrong = f"{node.config.engine_title} has no toolkit to hand out GPUs"
    return Check("toolkit", "failed", "not installed", wrong, install, why, words=why_no_gpus(node) or found.fix)
