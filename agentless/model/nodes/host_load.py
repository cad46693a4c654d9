"""How busy a machine is: readings beside those of its GPUs. What cannot be read is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of a folder, in MiB."""

    path: str
    used_mib: int
    total_mib: int


@dataclass(frozen=True, slots=True)
class HostLoad:
    """A machine at one moment. Rates are means since the reading before; a first reading has none.

    `load` has the load averages of 1, 5 and 15 minutes. `disk` is that of the engine's root, of `/` without an engine.
    `temperature_c` is the hottest sensor of the CPUs, else of the board. Network values are those of all physical
    interfaces together: `received_bytes` and `sent_bytes` since the machine booted, the others per second.
    """

    cores_busy: float | None = None
    load: tuple[float, float, float] | None = None
    memory_used_mib: int | None = None
    memory_available_mib: int | None = None
    disk: Disk | None = None
    temperature_c: int | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    network_in_bytes_per_second: float | None = None
    network_out_bytes_per_second: float | None = None

    @property
    def disk_used_mib(self) -> int | None:
        """Used space of the disk."""
        return self.disk.used_mib if self.disk else None
