"""Errors of NVIDIA GPUs that the driver has written into the kernel log (Xids), read with `dmesg`.

Output, line by line:

    [16450076.435595] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off the bus.
    @dmesg 0                        what `kernel_log` describes

Plain `dmesg` prints the same in util-linux, BusyBox and others: seconds from boot, as the kernel has them. Only some
know `-T` and `--time-format`, and those times are wrong once the clock was set. A kernel setting leaves the times out
(printk.time), another one adds the caller's thread or CPU (CONFIG_PRINTK_CALLER). For a GPU in MIG mode, its instances
follow the address. The oldest drivers write no `PCI:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentless.gpus import kernel_log
from agentless.model.command import Result, Section
from agentless.model.nodes.gpu import GpuFault, pci_bus_id
from agentless.model.text import printable
from agentless.ports import ScriptRenderer

_XID = re.compile(kernel_log.MOMENT + r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)]*\): ([0-9]{1,5})(?:, *(.*))?")

_HARDWARE: Mapping[int, str] = {
    46: "the GPU stopped processing",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    64: "memory remapping failure",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "NVLink training failed",
    140: "unrecovered ECC error",
    143: "GPU initialization error",
    151: "key rotation error",
    156: "resource retirement event",
    158: "GPU fatal timeout",
}
"""The Xids after which the GPU must be reset, the machine restarted or the hardware checked, in NVIDIA's words.

The source is the immediate action in NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors); for 61 its older GPU
Debug Guidelines. According to the catalog, the others are

- failures of an application, which may be started again: 8, 11, 13, 25, 31, 32, 39-41, 68-72, 80, and 94, a memory
  error that was contained in the application;
- side effects of another Xid: 45;
- to be ignored: 37, 38, 43, 44, 63, 66, 67, 92, 121, 137;
- sometimes a reason for a reset, which 154 then reports: 109, a context switch that took too long (NVIDIA's Kubernetes
  device plugin counts it among the errors of applications), and 144-150 and 155, errors of NVLink 5.
"""

_RECOVERY = 154
"""The Xid in which drivers from 565 on report what has to be done, beside other Xids; `None` if nothing."""
_ACTION = re.compile(r" to 0x[0-9a-fA-F]+ \((.+)\)")


def sections(renderer: ScriptRenderer) -> tuple[Section, ...]:
    """The section to run on the node; it needs no root, but not every node lets users read the kernel log."""
    return (Section("xid", renderer.script("nvidia-faults.sh.j2")),)


def parse(sections: Mapping[str, Result]) -> tuple[GpuFault, ...] | None:
    """The last 50 Xids since boot, the oldest first; None where the log cannot be read. What is no Xid is left out."""
    return kernel_log.faults(sections.get("xid"), _xid)


def _xid(line: str, uptime: float | None) -> GpuFault | None:
    found = _XID.fullmatch(line)
    bus = pci_bus_id(found[2] if "." in found[2] else f"{found[2]}.0") if found else None
    if found is None or bus is None:
        return None
    message = printable((found[4] or "")[:200]).strip()
    logged_at, age = kernel_log.moment(found[1], uptime)
    code = int(found[3])
    return GpuFault(bus, f"Xid {code}", message, logged_at, age, meaning(code, message))


def meaning(code: int, message: str) -> str | None:
    """What is wrong with the GPU after an Xid, None if it needs no repair."""
    if code != _RECOVERY:
        return _HARDWARE.get(code)
    action = _ACTION.search(message)
    if action is None:
        return "the recovery action changed"
    return None if action[1] == "None" else f"the driver requires an action: {action[1]}"
