"""Findings that exclude a GPU, from its readings, its driver and the kernel log.

This module keeps no state; `gpu_exclusion` does. When a person resumes a GPU, the keys that are found at that moment
are forgiven until they are found no longer. So an old fault in the log does not exclude the GPU again, while a new one
has another key and does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agentless.model.nodes.gpu import GpuFault, GpuReading, GpuSample


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason to exclude the GPU with the UUID `gpu`.

    `key` stays the same for the same fault, and changes when it happens again. `reason` is in words, without a time.
    `logged`: it is from the kernel log.
    """

    gpu: str
    key: str
    reason: str
    logged: bool = False


def find_faults(
    sample: GpuSample,
    before: Iterable[GpuReading],
    faults: Iterable[GpuFault] | None,
    *,
    temperature_limit: int | None = None,
    faults_within: float | None = None,
) -> tuple[Finding, ...]:
    """All findings on the GPUs of a node. An unknown value is no finding.

    `before` are the GPUs of an earlier sample. `faults` are those in the kernel log, oldest first, or None if it cannot
    be read. A GPU is too hot from `temperature_limit` °C on. Faults older than `faults_within` seconds do not count.
    """
    earlier = tuple(before)
    uuids = {gpu.pci_bus_id: gpu.uuid for gpu in (*earlier, *sample.gpus) if gpu.pci_bus_id}
    return (
        *(finding for gpu in sample.gpus for finding in _read(gpu, temperature_limit)),
        *_missing(sample, earlier),
        *_logged(faults or (), uuids, faults_within),
    )


def _read(gpu: GpuReading, temperature_limit: int | None) -> Iterator[Finding]:
    if gpu.needs_reset:
        yield Finding(gpu.uuid, "reset", "needs a reset")
    if errors := gpu.ecc_uncorrected:
        yield Finding(gpu.uuid, f"ecc {errors}", f"{errors} uncorrected ECC error{'s' if errors > 1 else ''}")
    if temperature_limit is not None and gpu.temperature_c is not None and gpu.temperature_c >= temperature_limit:
        yield Finding(gpu.uuid, "hot", f"too hot: {gpu.temperature_c} °C (limit: {temperature_limit} °C)")


def _missing(sample: GpuSample, before: Iterable[GpuReading]) -> Iterator[Finding]:
    """GPUs that have vanished. An incomplete answer, or one without any GPU, says nothing about a single one."""
    there = {gpu.uuid for gpu in sample.gpus}
    whole = bool(there) and sample.error is None
    for gpu in before:
        if gpu.uuid not in there and gpu.pci_bus_id in sample.lost:
            yield Finding(gpu.uuid, "gone", "the driver cannot reach it; it may have fallen off the bus")
        elif gpu.uuid not in there and whole:
            yield Finding(gpu.uuid, "gone", "disappeared")


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
            yield Finding(uuid, fault.key, f"{name}: {fault.meaning}", logged=True)
