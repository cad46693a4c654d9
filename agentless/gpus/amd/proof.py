"""Whether a container sees exactly the GPU that it was given, by the devices that it has."""

from __future__ import annotations

import re

from agentless.gpus.amd.checkup import AmdCheckup
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.trial import Proof

_RENDER = re.compile(r"^(?:amd )?(?:/dev/)?dri/renderD([0-9]{1,4})$|^renderD([0-9]{1,4})$", re.MULTILINE)
_KFD = re.compile(r"^(?:amd /dev/)?kfd$", re.MULTILINE)


def proof(saw: str, gpu: GpuReading, node: AmdCheckup) -> Proof:
    """By the render nodes in the container, and the node's own list of which is whose."""
    there = sorted({int(one or other) for one, other in _RENDER.findall(saw)})
    names = ", ".join(f"/dev/dri/renderD{number}" for number in there)
    expected = _expected(gpu, node)
    if not there:
        return Proof("failed", "the container has no render node of a GPU")
    if not _KFD.search(saw):
        return Proof("failed", f"the container has {names}, but no /dev/kfd, so nothing can compute on it")
    if expected and there != sorted(expected):
        wanted = ", ".join(f"/dev/dri/renderD{number}" for number in sorted(expected))
        return Proof("failed", f"the container has {names}, not {wanted}")
    if not expected and len(there) > 1:
        return Proof("failed", f"the container has {names}, but one GPU was given")
    which = "the render node of this GPU" if expected else "one render node; whose it is, is not known"
    return Proof("ok", f"the container has /dev/kfd, {names} and no other: {which}")


def _expected(gpu: GpuReading, node: AmdCheckup) -> set[int]:
    """The render nodes of a GPU: all of its partitions, or that of one."""
    own = node.renders.get(gpu.parent or gpu.uuid)
    if own is None:
        return set()
    place = next((place for minor, place in node.parts if minor == own), None)
    if place is None:
        return {own}
    same = {minor: at >> 28 & 0xF for minor, at in node.parts if at & 0xFFFF == place & 0xFFFF}
    return {minor for minor, part in same.items() if gpu.part is None or part == gpu.part}
