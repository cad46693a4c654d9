"""The folder that the stand-in nvidia-smi reads: which GPUs a node has, and who uses them."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

STANDIN = Path(__file__).parents[2] / "agentless" / "demo" / "bin" / "nvidia-smi"


class Gpus:
    """The GPUs of one node. Files are replaced and never rewritten, since a probe may read at any moment."""

    def __init__(self, node: str, folder: Path, count: int) -> None:
        self.folder = folder
        self._node, self._count = node, count
        self._rows: list[dict[str, str]] = []
        self._apps: list[tuple[str, int, str, int]] = []
        folder.mkdir()
        folder.parent.joinpath("bin").mkdir(exist_ok=True)
        shutil.copy(STANDIN, folder.parent / "bin")
        self.reset()

    @property
    def uuids(self) -> list[str]:
        """In the order of their indices."""
        return [row["uuid"] for row in self._rows]

    def call(self, node: str) -> None:
        """Other UUIDs, by another name for the node."""
        self._node = node
        self.reset()

    def reset(self) -> None:
        """As many as at first, idle, healthy."""
        for name in ("list", "table"):
            self.folder.joinpath(name).unlink(missing_ok=True)
        self.set(self._count)
        self.set_fault(None)
        self._apps = []
        self._write_apps()

    def set(self, rows: int | Sequence[Mapping[str, str]]) -> None:
        """A number of idle GPUs, or per GPU the readings that differ from an idle one."""
        given: Sequence[Mapping[str, str]] = [{}] * rows if isinstance(rows, int) else rows
        self._rows = [{**_idle(self._node, index), **row} for index, row in enumerate(given)]
        fields = list({field: None for row in [_idle(self._node, 0), *self._rows] for field in row})
        lines = [fields, *([row.get(field, "[N/A]") for field in fields] for row in self._rows)]
        self._replace("gpus.csv", "".join(",".join(line) + "\n" for line in lines))

    def say(self, listed: str, table: str) -> None:
        """What nvidia-smi prints with -L and without arguments, as a real driver said it."""
        self._replace("list", listed)
        self._replace("table", table)

    def use(self, index: int, pid: int, name: str, memory_mib: int) -> None:
        """List a process as a user of a GPU, for as long as it lives."""
        self._apps.append((self.uuids[index], pid, name, memory_mib))
        self._write_apps()

    def set_fault(self, text: str | None) -> None:
        """What the stand-in does instead of its work, see there; None for its work."""
        if text is None:
            self.folder.joinpath("fault").unlink(missing_ok=True)
        else:
            self._replace("fault", text)

    def _write_apps(self) -> None:
        lines = [("gpu_uuid", "pid", "process_name", "used_gpu_memory"), *self._apps]
        self._replace("apps.csv", "".join(",".join(map(str, line)) + "\n" for line in lines))

    def _replace(self, name: str, text: str) -> None:
        new = self.folder / f".{name}"
        new.write_text(text)
        os.replace(new, self.folder / name)


def _idle(node: str, index: int) -> dict[str, str]:
    """An idle GPU in nvidia-smi's field names; its UUID depends on nothing but the two names."""
    return {
        "index": str(index),
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}.lab')}",
        "name": "NVIDIA H100 80GB HBM3",
        "driver_version": "550.54.15",
        "pci.bus_id": f"00000000:{index + 1:02X}:00.0",
        "memory.total": "81559",
        "memory.used": "1",
        "memory.free": "81080",
        "utilization.gpu": "0",
        "utilization.memory": "0",
        "temperature.gpu": "31",
        "power.draw": "69.53",
        "power.limit": "700.00",
        "fan.speed": "[N/A]",
        "clocks.sm": "345",
        "clocks.mem": "2619",
        "pstate": "P0",
        "ecc.errors.uncorrected.volatile.total": "0",
        "mig.mode.current": "Disabled",
        "compute_mode": "Default",
    }
