"""Checks of GPUs that are the same for all vendors: the driver, the toolkit of the engine, NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentless.model.nodes.check import SKIPPED, Check, ok, skipped
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.node import EngineFacts
from agentless.model.units import counted, format_indices
from agentless.rules.nodes.cards import without_driver
from agentless.rules.nodes.gpu_access import has_its_own, why_no_gpus

DRIVER = "nvidia"
"""The check of the driver, where no vendor's GPU is known: its name when NVIDIA was the only one."""


def drivers(node: Node) -> tuple[Check, ...]:
    """Whether the drivers answer: a check by the name of each vendor that has GPUs there."""
    sample = node.observation.sample
    vendors = tuple(dict.fromkeys(gpu.vendor or DRIVER for gpu in sample.gpus)) if sample else ()
    wrong = _no_answer(node, vendors[0] if len(vendors) == 1 else DRIVER)
    if wrong or sample is None:
        return (wrong or skipped(DRIVER, node.reason),)
    found = {each: [gpu for gpu in sample.gpus if (gpu.vendor or DRIVER) == each] for each in vendors}
    return tuple(ok(each, _gpus(gpus)) for each, gpus in found.items()) or (ok(DRIVER, "no GPU: CPU tasks only"),)


def _gpus(gpus: Sequence[GpuReading]) -> str:
    """The GPUs of a vendor, and their driver."""
    version = next((gpu.driver for gpu in gpus if gpu.driver), None)
    slices = sum(gpu.parent is not None for gpu in gpus)
    words = counted(len(gpus) - slices, "GPU") + (f" with {counted(slices, 'slice')}" if slices else "")
    return words + (f", driver {version}" if version else "")


def _no_answer(node: Node, name: str) -> Check | None:
    """What is wrong with a driver, or None."""
    sample = node.observation.sample
    if sample is None:
        return None
    if sample.error is not None:
        return Check(name, "failed", "does not answer as it should", sample.error, words=sample.error)
    if cards := without_driver(node.observation.host, sample):
        return Check(name, "failed", "no driver", cards, words=cards)
    engine = node.observation.engine
    if not sample.gpus and engine and any(kit.ready for kit in engine.toolkits.values()):
        wrong = f"{node.config.engine_title} can hand out GPUs, but none is found"
        why = (
            "The node counts as one without GPUs. Perhaps nvidia-smi is not on the PATH of a login without a terminal."
        )
        return Check(name, "warning", "no GPU", wrong, "nvidia-smi -L  # shows the GPUs, if it is on the PATH", why)
    return None


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
