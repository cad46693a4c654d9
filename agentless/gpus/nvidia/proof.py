"""Whether a container sees exactly the GPU that it was given, by what it printed."""

from __future__ import annotations

import re

from agentless.gpus.nvidia.checkup import NvidiaCheckup
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.trial import Proof

_LISTED = re.compile(r"^(?:GPU [0-9]+: .*|  MIG .*)\(UUID: ((?:GPU|MIG)-[0-9a-f-]{36})\)", re.MULTILINE)
_DEVICE = re.compile(r"^nvidia([0-9]{1,3})$", re.MULTILINE)
_NAMED = re.compile(r"(?:GPU|MIG)-[0-9a-f-]{36}")


def proof(saw: str, gpu: GpuReading, node: NvidiaCheckup) -> Proof:
    """The best proof there is: the driver in the container, its devices, or what the engine was asked for."""
    listed = set(_LISTED.findall(saw))
    devices = {int(number) for number in _DEVICE.findall(saw)}
    asked = set(_NAMED.findall(_LISTED.sub("", saw)))
    if listed:
        # A slice stands below its GPU.
        if listed == {gpu.uuid} | ({gpu.parent} if gpu.parent else set()):
            what = "slice" if gpu.parent else "GPU"
            return Proof("ok", f"nvidia-smi in the container lists its {what} and no other")
        return Proof("failed", f"nvidia-smi in the container lists {', '.join(sorted(listed))}")
    minor = node.minors.get(gpu.gpu)
    if devices:
        names = ", ".join(f"/dev/nvidia{number}" for number in sorted(devices))
        if len(devices) > 1 or (minor is not None and devices != {minor}):
            return Proof(
                "failed", f"the container has {names}" + (f", not /dev/nvidia{minor}" if minor is not None else "")
            )
        which = "the device of its GPU" if minor is not None else "one device; which GPU it is, is not known"
        return Proof("ok", f"the container has {names} and no other: {which}")
    if node.minors or node.devices:
        return Proof("failed", "the container has no device of a GPU: the toolkit gave it none")
    if asked == {gpu.uuid}:
        return Proof(
            "ok",
            "the request to the engine names its GPU and no other; devices could not be compared, because this node "
            "has no /dev/nvidia* files",
        )
    return Proof("failed", f"the request to the engine names {', '.join(sorted(asked)) or 'no GPU'}")
