"""The GPUs of a simulated node, as the tables that the stand-in `nvidia-smi` prints."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from agentless.demo.life.loads import Loads
from agentless.demo.life.work import Job, Reading, Shift, job_of
from agentless.demo.processes.files import replace_file

Model = Literal["A100", "RTX 4090", "RTX 3090"]


class _Model(NamedTuple):
    memory: int  # MiB
    power: int  # W
    clock: int  # MHz
    memory_clock: int  # MHz
    fan: bool


_MODELS: dict[Model, _Model] = {
    "A100": _Model(81920, 400, 1410, 1593, False),
    "RTX 4090": _Model(24564, 450, 2520, 10501, True),
    "RTX 3090": _Model(24576, 350, 1695, 9751, True),
}
_DRIVER = "550.54.15"


class Gpus:
    """`count` GPUs of one model in `folder`. A file is replaced and never rewritten: a probe may read at any moment.

    Each folder has GPUs of its own, because a launch sees all claims of this machine, also those of other simulations.
    With `loads` they move as those say, at each `move`; without, a GPU that works always says the same.
    """

    def __init__(self, count: int, model: Model, folder: Path, loads: Loads | None = None) -> None:
        self.uuids = [f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'{folder.as_uri()}#{i}')}" for i in range(count)]
        self._model, self._folder, self._loads = model, folder, loads
        self._busy: Collection[str] = ()
        self._foreign: dict[str, tuple[int, str, int]] = {}
        self._odd: dict[str, dict[str, object]] = {}
        self._vanished: set[int] = set()
        self._write_gpus()
        self._write_processes()

    def has(self, uuid: str) -> bool:
        """Whether there is such a GPU, or such a slice of one."""
        return uuid in self.uuids or uuid in self._slices()

    def divide(self, index: int, profiles: Sequence[str]) -> None:
        """Put a GPU into MIG mode, with slices of these profiles."""
        names = [
            f"MIG-{uuid.uuid5(uuid.NAMESPACE_URL, f'{self.uuids[index]}/{part}')}" for part in range(len(profiles))
        ]
        rows = [
            {
                "gpu": index,
                "part": part,
                "uuid": name,
                "profile": profile,
                "gi": part + 1,
                "ci": 0,
                "memory.total": int(profile.rpartition(".")[2].partition("gb")[0]) * 998,
                "memory.used": 9,
            }
            for part, (name, profile) in enumerate(zip(names, profiles, strict=True))
        ]
        others = [row for row in self._slices().values() if row["gpu"] != str(index)]
        replace_file(self._folder / "mig.csv", _table([*others, *rows]))
        self._write_gpus()

    def busy(self, held: Collection[str] | Mapping[str, Job]) -> None:
        """Show these as working for containers. Processes of containers are not listed: see `use`."""
        if held != self._busy:
            self._busy = held
            self._hold()
            self._write_gpus()

    def begin_with(self, index: int, shifts: list[Shift]) -> None:
        """Let a GPU have had these jobs. Only with loads."""
        if self._loads:
            self._loads.begin_with(self.uuids[index], shifts)

    def reading(self, index: int, at: float | None = None) -> Reading:
        """What a GPU says by its loads, now or at another time."""
        model = _MODELS[self._model]
        loads = self._loads or Loads(lambda: 0.0)
        return loads.reading(self.uuids[index], model.memory, model.power, at)

    def move(self) -> float:
        """Show the loads of this moment. Returns the mean utilization, from 0 to 1."""
        if self._loads and (slices := self._slices()):
            for each in slices.values():
                part = self._loads.reading(each["uuid"], int(each["memory.total"]), 0)
                each["memory.used"] = str(part.memory_used_mib)
            replace_file(self._folder / "mig.csv", _table([*slices.values()]))
        self._write_gpus()
        used = [self.reading(index).utilization_pct for index in range(len(self.uuids))]
        return sum(used) / max(1, len(used)) / 100

    def use(self, index: int, pid: int, program: str, memory: int) -> None:
        """List a process as a user of a GPU with `memory` MiB, for as long as it lives.

        It counts as one outside any container, since that is what its cgroup says of every process here.
        """
        self._foreign[self.uuids[index]] = (pid, program, memory)
        self._hold()
        self._write_gpus()
        self._write_processes()

    def show(self, index: int, values: dict[str, object]) -> None:
        """From now on a GPU has these values, by the names of `--query-gpu`; none: those it has by itself."""
        self._odd[self.uuids[index]] = values
        self._write_gpus()

    def sicken(self, index: int) -> None:
        """From now on a GPU has errors in its memory that could not be corrected."""
        self.show(index, {"ecc.errors.uncorrected.volatile.total": 2})

    def vanish(self, index: int) -> None:
        """Name a GPU no more; the others keep their indices until a reboot."""
        self._vanished.add(index)
        self._write_gpus()

    def come_back(self, index: int) -> None:
        """Name it again."""
        self._vanished.discard(index)
        self._write_gpus()

    def log(self, line: str) -> None:
        """Add a line to the kernel log."""
        with (self._folder / "dmesg").open("a") as log:
            log.write(line + "\n")

    def hang(self) -> None:
        """From now on nvidia-smi does not answer, as after a GPU has fallen off its bus."""
        replace_file(self._folder / "fault", "hang\n")

    def heal(self) -> None:
        """Answer again; those that hang already go on doing so."""
        self._folder.joinpath("fault").unlink(missing_ok=True)

    def write_part(self, uuids: Sequence[str], folder: Path) -> None:
        """The tables of these GPUs only, counted from 0, as a container sees them."""
        folder.mkdir(parents=True, exist_ok=True)
        slices = self._slices()
        whole = dict.fromkeys(self.uuids[int(slices[each]["gpu"])] if each in slices else each for each in uuids)
        replace_file(folder / "gpus.csv", _table([self._row(number, gpu) for number, gpu in enumerate(whole)]))
        if parts := [slices[each] for each in uuids if each in slices]:
            numbers = {str(self.uuids.index(gpu)): number for number, gpu in enumerate(whole)}
            replace_file(folder / "mig.csv", _table([{**part, "gpu": numbers[part["gpu"]]} for part in parts]))

    def _hold(self) -> None:
        if self._loads:
            jobs = {gpu: job_of([program], gpu) for gpu, (_, program, _) in self._foreign.items()}
            self._loads.hold(jobs | (dict(self._busy) if isinstance(self._busy, Mapping) else {}))

    def _slices(self) -> dict[str, dict[str, str]]:
        """The slices of all GPUs by UUID, as the stand-in reads them; anybody may write that file."""
        with suppress(FileNotFoundError), (self._folder / "mig.csv").open() as file:
            return {row["uuid"]: row for row in csv.DictReader(file)}
        return {}

    def _write_gpus(self) -> None:
        there = [(i, gpu) for i, gpu in enumerate(self.uuids) if i not in self._vanished]
        replace_file(self._folder / "gpus.csv", _table([self._row(i, gpu) for i, gpu in there]))

    def _write_processes(self) -> None:
        lines = ["gpu_uuid,pid,process_name,used_gpu_memory"]
        lines += [f"{gpu},{pid},{program},{memory}" for gpu, (pid, program, memory) in self._foreign.items()]
        replace_file(self._folder / "apps.csv", "\n".join(lines) + "\n")

    def _is_divided(self, index: int) -> bool:
        return any(row["gpu"] == str(index) for row in self._slices().values())

    def _row(self, number: int, gpu: str) -> dict[str, object]:
        model = _MODELS[self._model]
        index = self.uuids.index(gpu)
        used, load = 4, 0
        if gpu in self._busy:
            used, load = model.memory * 3 // 5 + 137 * index, 93 + index % 6
        elif gpu in self._foreign:
            used, load = self._foreign[gpu][2] + 4, 38
        celsius, watts = 31 + load // 3 + index % 3, model.power * (0.12 + 0.0075 * load)
        if self._loads:
            now = self.reading(index)
            parts = [int(each["memory.used"]) for each in self._slices().values() if each["gpu"] == str(index)]
            used = used if gpu in self._foreign else sum(parts) or now.memory_used_mib
            load, celsius, watts = now.utilization_pct, now.temperature_c + index % 3, now.power_w
        return {
            "index": number,
            "uuid": gpu,
            "name": f"Simulated {self._model}",
            "driver_version": _DRIVER,
            "pci.bus_id": f"00000000:{index + 1:02X}:00.0",
            "memory.total": model.memory,
            "memory.used": used,
            "memory.free": model.memory - used,
            "utilization.gpu": load,
            "utilization.memory": load // 2,
            "temperature.gpu": celsius,
            "power.draw": f"{watts:.2f}",
            "power.limit": f"{model.power}.00",
            "fan.speed": 30 + load // 3 if model.fan else "[N/A]",
            "clocks.sm": model.clock if load else 210,
            "clocks.mem": model.memory_clock if load else 405,
            "pstate": "P0" if load else "P8",
            "ecc.errors.uncorrected.volatile.total": "[N/A]" if model.fan else 0,
            "mig.mode.current": "[N/A]" if model.fan else "Disabled",
            "compute_mode": "Default",
            **({"mig.mode.current": "Enabled", "utilization.gpu": "[N/A]"} if self._is_divided(index) else {}),
            **self._odd.get(gpu, {}),
        }


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    header = list(rows[0]) if rows else ["index"]
    return "".join(",".join(map(str, line)) + "\n" for line in (header, *(row.values() for row in rows)))
