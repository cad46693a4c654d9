"""Findings that exclude a GPU, from its readings, its driver and the kernel log.

This module keeps no state; `gpu_exclusion` does. When a person resumes a GPU, the keys that are found at that moment
are forgiven until they are found no longer. So an old fault in the log does not exclude the GPU again, while a new one
has another key and does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from agentless.model.nodes.gpu import GpuFault, GpuReading, GpuSample

Faults = tuple[GpuFault, ...] | None
"""The faults in the kernel log, oldest first. None if the log cannot be read."""


class Kind(Enum):
    """A kind of finding: the first word of its keys, and whether a look could read it.

    If it could be read and was not found, it is over. So a kind that is declared wrongly counts an unknown reading as
    healthy. The words are in the state file and never change.
    """

    RESET = ("reset", lambda gpu, _: gpu is not None and (gpu.unified or gpu.memory_total_mib is not None))
    ECC = ("ecc", lambda gpu, _: gpu is not None and gpu.ecc_uncorrected is not None)
    HOT = ("hot", lambda gpu, _: gpu is not None and gpu.temperature_c is not None)
    GONE = ("gone", lambda gpu, _: gpu is not None)
    LOGGED = ("", lambda _, faults: faults is not None)  # its keys begin with the vendor's name for the fault

    def __init__(self, word: str, is_readable: Callable[[GpuReading | None, Faults], bool]) -> None:
        self.word = word
        self.is_readable = is_readable


def kind_of(key: str) -> Kind:
    """The kind of a key from the state file."""
    word = key.partition(" ")[0]
    return next((kind for kind in Kind if kind.word == word), Kind.LOGGED)


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason to exclude the GPU with the UUID `gpu`.

    `reason` is in words, without a time. `occurrence` changes when the same happens again.
    """

    gpu: str
    kind: Kind
    reason: str
    occurrence: str = ""

    @property
    def key(self) -> str:
        """Identifies the finding in the state file: `hot`, `ecc 3`, `xid 79 1204.5`."""
        return f"{self.kind.word} {self.occurrence}".strip()


def find_faults(
    sample: GpuSample,
    before: Iterable[GpuReading],
    faults: Faults,
    *,
    temperature_limit: int | None = None,
    faults_within: float | None = None,
) -> tuple[Finding, ...]:
    """All findings on the GPUs of a node. An unknown value is no finding.

    `before` are the GPUs of an earlier sample. A GPU is too hot from `temperature_limit` °C on. Faults older than
    `faults_within` seconds do not count.
    """
    earlier = tuple(before)
    uuids = {gpu.pci_bus_id: gpu.uuid for gpu in (*earlier, *sample.gpus) if gpu.pci_bus_id and gpu.parent is None}
    return (
        *(finding for gpu in sample.gpus for finding in _read(gpu, temperature_limit)),
        *_missing(sample, earlier),
        *_logged(faults or (), uuids, faults_within),
    )


def _read(gpu: GpuReading, temperature_limit: int | None) -> Iterator[Finding]:
    if gpu.needs_reset:
        yield Finding(gpu.uuid, Kind.RESET, "needs a reset")
    if errors := gpu.ecc_uncorrected:
        yield Finding(gpu.uuid, Kind.ECC, f"{errors} uncorrected ECC error{'s' if errors > 1 else ''}", str(errors))
    if temperature_limit is not None and gpu.temperature_c is not None and gpu.temperature_c >= temperature_limit:
        yield Finding(gpu.uuid, Kind.HOT, f"too hot: {gpu.temperature_c} °C (limit: {temperature_limit} °C)")


def _missing(sample: GpuSample, before: Iterable[GpuReading]) -> Iterator[Finding]:
    """GPUs that have vanished. An incomplete answer, or one without any GPU, says nothing about a single one."""
    there = {gpu.uuid for gpu in sample.gpus}
    whole = bool(there) and sample.error is None
    for gpu in before:
        if gpu.uuid not in there and gpu.pci_bus_id in sample.lost:
            yield Finding(gpu.uuid, Kind.GONE, "the driver cannot reach it; it may have fallen off the bus")
        elif gpu.uuid not in there and whole and gpu.uuid not in sample.unplugged:
            yield Finding(gpu.uuid, Kind.GONE, "disappeared")


def _logged(faults: Iterable[GpuFault], uuids: Mapping[str, str], within: float | None) -> Iterator[Finding]:
    """The last fault of each kind on each GPU. The log may have hundreds."""
    last = {
        (uuid, fault.name): fault
        for fault in faults
        if (uuid := uuids.get(fault.pci_bus_id))
        and (within is None or fault.age_seconds is None or fault.age_seconds <= within)
    }
    for (uuid, name), fault in last.items():
        if fault.meaning:
            yield Finding(uuid, Kind.LOGGED, f"{name}: {fault.meaning}", fault.key)
