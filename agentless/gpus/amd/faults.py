"""Errors of AMD GPUs that amdgpu has written into the kernel log, read with `dmesg`.

Output, line by line:

    [  812.435595] amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=9, emitted seq=11
    @dmesg 0                        what `kernel_log` describes

The words are those of drivers/gpu/drm/amd/amdgpu (amdgpu_job.c, amdgpu_device.c, amdgpu_ras.c) in Linux 5.10 to 6.17.
Kernels before 5.8 print `[drm:…]` in place of the address, and cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentless.gpus import kernel_log
from agentless.model.command import Result, Section
from agentless.model.nodes.gpu import GpuFault, pci_bus_id
from agentless.model.text import printable
from agentless.ports import ScriptRenderer

SECTION = "amd.faults"
_LOGGED = re.compile(
    kernel_log.MOMENT + r"(?:\[drm[^\]]*\] )?amdgpu ([0-9a-f:.]{12,16}): (?:amdgpu: )?(.*)",
    re.IGNORECASE,
)
_KINDS: tuple[tuple[str, re.Pattern[str], str | None], ...] = (
    (
        "RAS",
        re.compile(r"[1-9][0-9]* (?:new )?uncorrectable hardware errors? detected in (?P<what>\w+)", re.IGNORECASE),
        "uncorrectable errors; see amd-smi metric --ecc, and reset it with: sudo amd-smi reset --gpureset --gpu {bus}",
    ),
    ("RAS", re.compile(r"uncorrectable hardware error.*detected", re.IGNORECASE), "an uncorrectable hardware error"),
    (
        "GPU reset",
        re.compile(r"GPU reset.*\bfail|GPU reset end with ret = -|GPU Recovery Failed", re.IGNORECASE),
        "the driver could not reset the GPU; reboot the node",
    ),
    (
        "device lost",
        re.compile(r"device lost from bus|Device wedged|GPU is not responding", re.IGNORECASE),
        "the GPU has fallen off the bus; check the card, its power and cooling, and reboot the node",
    ),
    (
        "ring test",
        re.compile(r"ring \S+ test failed", re.IGNORECASE),
        "a part of the GPU does not start; reboot the node",
    ),
    # A task that hangs a ring is reset with it; the GPU works again after that.
    ("ring timeout", re.compile(r"ring \S+ timeout", re.IGNORECASE), None),
    ("GPU reset", re.compile(r"GPU reset", re.IGNORECASE), None),
)
"""Kinds of lines, the first that fits: the name, the words, and what is wrong with the GPU then; None if nothing."""


def sections(renderer: ScriptRenderer) -> Section:
    """The section to run on the node; it needs no root, but not every node lets users read the kernel log."""
    return Section(SECTION, renderer.script("amd-faults.sh.j2"))


def parse(sections: Mapping[str, Result]) -> tuple[GpuFault, ...] | None:
    """The last faults since boot, the oldest first; None where the log cannot be read, or there is no amdgpu."""
    return kernel_log.faults(sections.get(SECTION), _fault)


def _fault(line: str, uptime: float | None) -> GpuFault | None:
    found = _LOGGED.fullmatch(line)
    bus = pci_bus_id(found[2]) if found else None
    if found is None or bus is None:
        return None
    message = printable(found[3][:200]).strip()
    kind = next(((name, meaning) for name, pattern, meaning in _KINDS if pattern.search(message)), None)
    if kind is None:
        return None
    logged_at, age = kernel_log.moment(found[1], uptime)
    return GpuFault(bus, kind[0], message, logged_at, age, kind[1] and kind[1].format(bus=bus))
