"""The machine around simulated GPUs: cores, memory, disk and network of a size that suits them, as busy as they are.

Two files in the node's folder say it: `host-facts` and `host-load`, in the words of `remote/host_facts.py` and
`remote/host_load.py`. The scripts in `demo/config/templates/` print them, in place of those that read /proc and /sys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agentless.demo.processes.files import replace_file

_TICKS = 100
_BLOCK = 4096
_GIB = 1 << 30
_TWO_SOCKETS = 64
"""Cores from which on a machine has two NUMA nodes."""


class Size(NamedTuple):
    """Cores, and GiB of memory and disk."""

    cores: int
    memory: int
    disk: int


def size_for(gpus: int) -> Size:
    """A machine for so many GPUs."""
    return Size(*((96, 1024, 7000) if gpus >= 8 else (32, 256, 3500) if gpus > 1 else (16, 64, 1800)))


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy a machine is at one moment: MiB, °C and bytes a second."""

    cores: float
    memory_mib: int
    temperature_c: int
    received: float
    sent: float


def busy(size: Size, working: float) -> Busy:
    """A machine whose GPUs are used to this share, from 0 to 1: a loader works for each."""
    return Busy(
        size.cores * (0.03 + 0.42 * working),
        round((size.memory << 10) * (0.06 + 0.44 * working)),
        round(38 + 30 * working),
        0.2e6 + 310e6 * working,
        0.1e6 + 24e6 * working,
    )


class Host:
    """One machine. Its counters grow at each `move`, so that they fit what was between two of them."""

    def __init__(self, size: Size, folder: Path, now: Callable[[], float]) -> None:
        self._size, self._folder, self._now = size, folder, now
        self._at = now()
        self._booted = self._at - 20 * 86400
        self._ticks = self._received = self._sent = 0.0
        half = size.cores // 2
        nodes = (f"node 0 0-{half - 1}", f"node 1 {half}-{size.cores - 1}") if size.cores >= _TWO_SOCKETS else ()
        facts = (f"online 0-{size.cores - 1}", f"memory {size.memory << 20}", "system debian", *nodes)
        replace_file(folder / "host-facts", "\n".join(facts) + "\n")
        self.move(0.0)

    def move(self, working: float) -> None:
        """Be as busy as a machine whose GPUs are used to this share since the last call."""
        size, now, busy_now = self._size, self._now(), busy(self._size, working)
        passed, self._at = now - self._at, now
        self._ticks += busy_now.cores * passed * _TICKS
        self._received += passed * busy_now.received
        self._sent += passed * busy_now.sent
        up, total = now - self._booted, size.memory << 20
        blocks = size.disk * _GIB // _BLOCK
        lines = (
            f"up {up:.2f} 0.00",
            f"cpu {self._ticks:.0f} 0 0 {up * size.cores * _TICKS - self._ticks:.0f} 0 0 0 0",
            f"load {busy_now.cores:.2f} {busy_now.cores:.2f} {busy_now.cores:.2f}",
            f"total {total}",
            f"available {total - busy_now.memory_mib * 1024}",
            f"temperature {busy_now.temperature_c * 1000}",
            f"net eth0 {self._received:.0f} {self._sent:.0f}",
            f"disk {_BLOCK} {blocks} {blocks * 57 // 100}",
        )
        replace_file(self._folder / "host-load", "\n".join(lines) + "\n")
