"""What speaks against giving a GPU to anybody: what it, its driver and the kernel log say of its health.

Nothing is remembered here. Whoever keeps a GPU out until a person lets it in again remembers, by UUID, that something
was found. When the person does, the keys that are found at that moment are forgiven, each until it is no longer found:
an old Xid stays in the log and must not shut the GPU out again, a new one has another key and must.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agentless.model.nodes.gpu import GpuReading, GpuSample, Xid

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
"""The Xids after which the GPU must be reset, the machine restarted or the hardware looked at, in NVIDIA's words.

They are so by the immediate action in NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors), 61 by its older GPU
Debug Guidelines. Of all others it says that an application has failed and may be started again (8, 11, 13, 25, 31, 32,
39-41, 68-72, 80; 94 is a memory error that was contained in it), that they come with another one (45), or that they
are to be ignored (37, 38, 43, 44, 63, 66, 67, 92, 121, 137). Some need a reset only at times, and 154 says when: 109,
a context switch that took too long, which NVIDIA's Kubernetes device plugin counts among the errors of applications,
and 144-150 and 155, errors of NVLink 5.
"""

_RECOVERY = 154
"""The driver itself says what has to be done, `None` when nothing has; drivers from 565 on do, beside other Xids."""
_ACTION = re.compile(r" to 0x[0-9a-fA-F]+ \((.+)\)")


@dataclass(frozen=True, slots=True)
class Finding:
    """Why the GPU with the UUID `gpu` should be kept out.

    `key` is the same in every look at the same trouble, and another one when it happens again. `reason` is in words and
    does not say since when.
    """

    gpu: str
    key: str
    reason: str


def health(
    sample: GpuSample,
    before: Iterable[GpuReading],
    xids: Iterable[Xid] | None,
    *,
    temperature_limit: int | None = None,
    xids_within: float | None = None,
) -> tuple[Finding, ...]:
    """All that speaks against GPUs of one node; what is not known speaks against none.

    `before` are the GPUs it had at an earlier look, `xids` those in its kernel log, from old to new, None where it
    cannot be read. A GPU is too hot from `temperature_limit` °C on; Xids older than `xids_within` seconds do not count.
    """
    earlier = tuple(before)
    uuids = {gpu.pci_bus_id: gpu.uuid for gpu in (*earlier, *sample.gpus) if gpu.pci_bus_id}
    return (
        *(finding for gpu in sample.gpus for finding in _read(gpu, temperature_limit)),
        *_missing(sample, earlier),
        *_logged(xids or (), uuids, xids_within),
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


def _logged(xids: Iterable[Xid], uuids: Mapping[str, str], within: float | None) -> Iterator[Finding]:
    """The last of each kind on each GPU: they come in hundreds."""
    last = {
        (uuid, xid.code): xid
        for xid in xids
        if (uuid := uuids.get(xid.pci_bus_id))
        and (within is None or xid.age_seconds is None or xid.age_seconds <= within)
    }
    for (uuid, code), xid in last.items():
        if words := _words(xid):
            yield Finding(uuid, f"xid {code} {xid.logged_at}", f"Xid {code}: {words}")


def _words(xid: Xid) -> str | None:
    if xid.code != _RECOVERY:
        return _HARDWARE.get(xid.code)
    action = _ACTION.search(xid.message)
    if action is None:
        return "the recovery action changed"
    return None if action[1] == "None" else f"the driver asks for an action: {action[1]}"
