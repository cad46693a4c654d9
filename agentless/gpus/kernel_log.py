"""Errors of GPUs in the kernel log: what the answers for all vendors have in common.

The scripts of vendors print some lines of `dmesg`, and then

    @dmesg 0                        its exit code: 1 where users may not read the log (kernel.dmesg_restrict)
    @uptime 16453676.12             /proc/uptime, seconds from boot to now
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agentless.model.command import Result
from agentless.model.nodes.gpu import GpuFault

MOMENT = r"(?:\[ *([0-9]{1,12}\.[0-9]{1,9})\](?: ?\[ *[TC][0-9]+\])? )?"
"""How a line begins: seconds from boot, and the thread or CPU that wrote it. Both may be missing."""
_LINES, _LINE = 60, 1000
"""Lines of the answer, and characters of each line; the kernel cuts lines at about that length itself."""
_UPTIME = re.compile(r"@uptime ([0-9]{1,12}\.[0-9]{1,9})")


def faults(answer: Result | None, fault: Callable[[str, float | None], GpuFault | None]) -> tuple[GpuFault, ...] | None:
    """What `fault` makes of each line and the uptime, the oldest first; None where the log cannot be read."""
    lines = [line[:_LINE] for line in answer.out.split("\n")[-_LINES:]] if answer else []
    if "@dmesg 0" not in lines:
        return None
    uptime = next((float(found[1]) for line in lines if (found := _UPTIME.fullmatch(line))), None)
    return tuple(each for line in lines if (each := fault(line, uptime)))


def moment(text: str | None, uptime: float | None) -> tuple[float | None, float | None]:
    """When a line was logged, in seconds from boot, and how many seconds ago that was."""
    logged_at = float(text) if text else None
    age = None if logged_at is None or uptime is None else uptime - logged_at
    # The two clocks drift apart, and in a container the uptime may be the container's own.
    return logged_at, age if age is not None and age >= 0 else None
