"""What speaks against giving a GPU to anybody: what it, its driver and the kernel log say of its health.

Nothing is remembered here. Whoever keeps a GPU out until a person lets it in again remembers, by UUID, that something
was found. When the person does, the keys that are found at that moment are forgiven, each until it is no longer found:
an old fault stays in the log and must not shut the GPU out again, a new one has another key and must.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agentless.model.nodes.gpu import GpuFault, GpuReading, GpuSample


@dataclass(frozen=True, slots=True)
class Finding:
    """Why the GPU with the UUID `gpu` should be kept out.

    `key` is the same in every look at the same trouble, and another one when it happens again. `reason` is in words and
    does not say since when. `logged`: it is from the kernel log.
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
    """All that speaks against GPUs of one node; what is not known speaks against none.

    `before` are the GPUs it had at an earlier look, `faults` those in its kernel log, from old to new, None where it
    cannot be read. A GPU is too hot from `temperature_limit` °C on; faults of more than `faults_within` seconds ago do
    not count.
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
        yield Finding(gpu.uuid, "reset", "it needs a reset")
    if errors := gpu.ecc_uncorrected:
        yield Finding(gpu.uuid, f"ecc {errors}", f"{errors} uncorrected ECC error{'s' if errors > 1 else ''}")
    if temperature_limit is not None and gpu.temperature_c is not None and gpu.temperature_c >= temperature_limit:
        yield Finding(gpu.uuid, "hot", f"it has {gpu.temperature_c} °C, and the limit is {temperature_limit} °C")


def _missing(sample: GpuSample, before: Iterable[GpuReading]) -> Iterator[Finding]:
    """Those that were there. An answer that is not whole, or without any GPU, says nothing of a single one."""
    there = {gpu.uuid for gpu in sample.gpus}
    whole = bool(there) and sample.error is None
    for gpu in before:
        if gpu.uuid not in there and gpu.pci_bus_id in sample.lost:
            yield Finding(gpu.uuid, "gone", "the driver cannot reach it, it may have fallen off the bus")
        elif gpu.uuid not in there and whole:
            yield Finding(gpu.uuid, "gone", "it was there and is gone")


def _logged(faults: Iterable[GpuFault], uuids: Mapping[str, str], within: float | None) -> Iterator[Finding]:
    """The last of each kind on each GPU: they come in hundreds."""
    last = {
        (uuid, fault.name): fault
        for fault in faults
        if (uuid := uuids.get(fault.pci_bus_id))
        and (within is None or fault.age_seconds is None or fault.age_seconds <= within)
    }
    for (uuid, name), fault in last.items():
        if fault.meaning:
            yield Finding(uuid, fault.key, f"{name}: {fault.meaning}", logged=True)
