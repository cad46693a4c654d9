"""How a task gets AMD GPUs: the devices of exactly these, or what ROCm reads in a process without a container."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentless.model.nodes.engine import EngineName, Injection, Lookup, Way

VISIBLE = "AMD_VISIBLE_DEVICES"
"""What AMD's container runtime reads, if it is the engine's default."""
_NONE = "none"
ROCR = "ROCR_VISIBLE_DEVICES"
_NO_GPU = "-1"
"""The first index that is none ends ROCm's list, so nothing is in it."""
_UNIQUE = re.compile(r"AMD-([0-9a-f]{16})")


def injection(engine: EngineName, devices: Sequence[str], way: Way | None) -> Injection:
    """Which render node a GPU has is looked up on the node by the launch: its number may change at a reboot.

    ROCm knows a whole GPU by its unique id. Others have a place in its list, which is looked up as well.
    """
    if engine == "systemd":
        named = [match[1] for device in devices if (match := _UNIQUE.fullmatch(device))]
        if len(named) == len(devices):
            return Injection((), {ROCR: ",".join(f"GPU-{each}" for each in named) or _NO_GPU})
        return Injection((), {}, Lookup("amd-give.sh.j2", {"devices": tuple(devices), "engine": engine, "cdi": False}))
    hidden = {VISIBLE: _NONE}
    if not devices:
        return Injection((), hidden)
    values = {"devices": tuple(devices), "engine": engine, "cdi": way == "cdi"}
    return Injection((), hidden, Lookup("amd-give.sh.j2", values))
