"""Which GPU is kept out, and until when: what `rules/nodes/gpu_findings` finds, put together with what is remembered.

A finding keeps its GPU out until a person resumes it, or, if the admin wants that, until it is found no longer. Once it
is out, more of the same changes nothing. What the kernel log says at the first look at a GPU is forgiven: nobody knows
what was done since, and a GPU that still needs help shows so in its readings. The count of uncorrected ECC errors is
such a reading and counts from the first look on: it begins anew when the driver does, and where memory is to be
remapped it stands until the GPU is reset.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import replace

from agentless.model.moment import format_moment
from agentless.model.nodes.cluster import Gpu, Node
from agentless.model.nodes.gpu import MOST_GPUS, GpuFault, GpuReading, GpuSample
from agentless.model.nodes.node_record import Drain, GpuRecord, HealthPolicy, NodeRecord, Trouble
from agentless.rules.nodes.gpu_findings import Finding, find_faults

OUT_FOR = 60.0
"""Seconds that a GPU is kept out at least, so that one at the limit of its temperature does not go in and out."""

REMEMBERED = 2 * MOST_GPUS
"""GPUs of a node that are remembered: all that it can have, and as many that it had. Of those the first stay."""
CHANGES = 2 * MOST_GPUS
"""UUIDs that a node may name within `CHANGES_WITHIN` seconds: all its GPUs may be other ones once."""
CHANGES_WITHIN = 3600.0

Faults = tuple[GpuFault, ...] | None


def recognised(known: Mapping[str, float], sample: GpuSample, now: float) -> tuple[Mapping[str, float], GpuSample]:
    """When each UUID was named last, and the sample; one without GPUs when a node names others all the time.

    What is kept of a GPU would grow with each of them, and nobody could start anything on one.
    """
    here = {reading.uuid: now for reading in sample.gpus}
    lately = {uuid: at for uuid, at in known.items() if now - at < CHANGES_WITHIN}
    if len(lately | here) <= CHANGES:
        return lately | here, sample
    look = f"; run {sample.lister} there twice" if sample.lister else ""
    error = f"its GPUs change their UUIDs all the time, {CHANGES} of them within an hour{look}"
    return lately, GpuSample((), None, error)


def looked(
    records: Mapping[str, NodeRecord], node: str, sample: GpuSample, faults: Faults, now: float, policy: HealthPolicy
) -> NodeRecord:
    """The record of a node after a look at it; the same one when nothing has changed.

    What is remembered of a GPU comes along when it moves to another node, or when its node gets another name. Of those
    that are not there when none is, since another machine has the name, only what keeps them out is remembered.
    """
    record = records.get(node, NodeRecord())
    here = {reading.uuid: reading for reading in sample.gpus}
    known = dict(record.gpus)
    if here and not here.keys() & known.keys():
        # None of them is there: this is another machine than before, and theirs have not vanished.
        known = {uuid: gpu for uuid, gpu in known.items() if gpu.troubles}
    for reading in sample.gpus:
        if reading.uuid not in known:
            moved = (other.gpus[reading.uuid] for other in records.values() if reading.uuid in other.gpus)
            known[reading.uuid] = next(moved, GpuRecord(_lasting(reading)))
    found = _findings(replace(record, gpus=known), sample, faults, policy)
    gpus = remembered(
        {uuid: _after(gpu, here.get(uuid), found.get(uuid, {}), faults, now, policy) for uuid, gpu in known.items()},
        here,
    )
    return record if gpus == record.gpus else replace(record, gpus=gpus)


def remembered(gpus: Mapping[str, GpuRecord], here: abc.Container[str] = ()) -> Mapping[str, GpuRecord]:
    """Those of these GPUs to remember: all that are `here`, then those that are kept out, the first known first."""
    if len(gpus) <= REMEMBERED:
        return gpus
    places = sorted(gpus, key=lambda uuid: (uuid not in here, not gpus[uuid].troubles))
    kept = set(places[:REMEMBERED])
    return {uuid: gpu for uuid, gpu in gpus.items() if uuid in kept}


def gated(node: Node, record: NodeRecord | None) -> Node:
    """The node with what keeps it, or GPUs of it, out. What holds a GPU holds it all the same."""
    if record is None:
        return node
    ill = {uuid: gpu for uuid, gpu in record.gpus.items() if gpu.troubles}
    if ill:
        there = {gpu.reading.uuid for gpu in node.gpus}
        vanished = [Gpu(gpu.reading, "unknown") for uuid, gpu in ill.items() if uuid not in there]
        # Without a word of the driver on any GPU, nothing is shown of one that it does not name.
        gpus = (*node.gpus, *(vanished if node.observation.sample else ()))
        node = replace(node, gpus=tuple([_out(gpu, ill.get(gpu.reading.uuid)) for gpu in gpus]))
    if record.drain is None:
        return node
    words = drain_words(record.drain)
    free = [replace(gpu, state="drained", reason=words) if gpu.state == "free" else gpu for gpu in node.gpus]
    if node.state == "offline":
        return replace(node, reason=f"{node.reason}; drained: {words}", gpus=tuple(free), drained=True)
    reason = f"{words}; {node.reason}" if node.reason else words
    return replace(node, state="drained", reason=reason, gpus=tuple(free), drained=True, trial=None)


def resumed(
    record: NodeRecord, gpu: int | None, sample: GpuSample | None, faults: Faults, policy: HealthPolicy
) -> tuple[NodeRecord, tuple[str, ...]]:
    """The node let in again with all its GPUs, or only the one of this index; and in words what had kept them out.

    What is found in `sample` is forgiven, and what was found before unless it is over; all of that without a sample.
    """
    lifted, gpus = [], dict(record.gpus)
    if record.drain and gpu is None:
        lifted.append(f"was drained: {drain_words(record.drain)}")
    here = {reading.uuid: reading for reading in sample.gpus} if sample else {}
    found = _findings(record, sample, faults, policy) if sample else {}
    for uuid, known in record.gpus.items():
        if known.troubles and gpu in (None, known.reading.index):
            lifted.append(f"GPU {known.reading.index} was kept out: {trouble_words(known)}")
            keys = [finding.key for finding in found.get(uuid, {}).values()]
            before = [*known.forgiven, *(trouble.key for trouble in known.troubles)]
            still = [key for key in before if not _is_readable(key, here.get(uuid), faults if sample else None)]
            gpus[uuid] = replace(known, troubles=(), forgiven=tuple(dict.fromkeys(keys + still)))
    return NodeRecord(record.drain if gpu is not None else None, gpus), tuple(lifted)


def drain_words(drain: Drain) -> str:
    """Why a node is drained, who has done it and when: `new disks (by ann@laptop, 2026-05-01 12:00 UTC)`."""
    words = f"by {drain.by}, {format_moment(drain.since)}"
    return f"{drain.reason} ({words})" if drain.reason else words


def trouble_words(gpu: GpuRecord) -> str:
    """What keeps a GPU out, and since when: `2 uncorrected ECC errors (since 2026-05-01 12:00 UTC)`."""
    return "; ".join(f"{trouble.reason} (since {format_moment(trouble.since)})" for trouble in gpu.troubles)


# ---------------------------------------------------------------------- inside


def _findings(
    record: NodeRecord, sample: GpuSample, faults: Faults, policy: HealthPolicy
) -> Mapping[str, Mapping[str, Finding]]:
    """What speaks against GPUs of a node now, by UUID and kind."""
    found: dict[str, dict[str, Finding]] = {}
    before = [gpu.reading for gpu in record.gpus.values()]
    for finding in find_faults(sample, before, faults, temperature_limit=policy.temperature):
        found.setdefault(finding.gpu, {})[_kind(finding.key)] = finding
    return found


def _out(gpu: Gpu, record: GpuRecord | None) -> Gpu:
    if record is None or gpu.state == "excluded":
        return gpu
    reason = trouble_words(record) + (f"; {gpu.reason}" if gpu.holder else "")
    return replace(gpu, state="unhealthy", reason=reason)


def _after(
    gpu: GpuRecord,
    reading: GpuReading | None,
    found: Mapping[str, Finding],
    faults: Faults,
    now: float,
    policy: HealthPolicy,
) -> GpuRecord:
    keys = {finding.key for finding in found.values()}
    forgiven = tuple(key for key in gpu.forgiven if key in keys or not _is_readable(key, reading, faults))
    if not gpu.logged and faults is not None:
        logged = {finding.key for finding in found.values() if finding.logged}
        forgiven += tuple(sorted(logged.difference(forgiven)))
    troubles = tuple(
        trouble
        for trouble in gpu.troubles
        if not policy.automatic
        or now - trouble.since < OUT_FOR
        or _kind(trouble.key) in found
        or not _is_readable(trouble.key, reading, faults)
    )
    there = {_kind(trouble.key) for trouble in troubles}
    troubles += tuple(
        Trouble(finding.key, finding.reason, now)
        for kind, finding in found.items()
        if kind not in there and finding.key not in forgiven
    )
    where = _lasting(reading, gpu.reading) if reading else gpu.reading
    return GpuRecord(where, troubles, forgiven, gpu.logged or faults is not None)


def _kind(key: str) -> str:
    """`ecc` for `ecc 3`, `xid 79` for `xid 79 1204.5`: what is not counted anew while it keeps a GPU out."""
    return key.rsplit(" ", 1)[0]


def _is_readable(key: str, reading: GpuReading | None, faults: Faults) -> bool:
    """Whether the look would have shown this finding: when it is not there, it is over."""
    match key.partition(" ")[0]:
        case "ecc":
            return reading is not None and reading.ecc_uncorrected is not None
        case "hot":
            return reading is not None and reading.temperature_c is not None
        case "reset":
            return reading is not None and reading.memory_total_mib is not None
        case "gone":
            return reading is not None
        case _:  # a fault, by its vendor's name
            return faults is not None


def _lasting(reading: GpuReading, before: GpuReading | None = None) -> GpuReading:
    """Of a reading what stays as it is. What cannot be read now is as it was."""
    old = before or reading
    return GpuReading(
        reading.index,
        reading.uuid,
        name=reading.name or old.name,
        pci_bus_id=reading.pci_bus_id or old.pci_bus_id,
        memory_total_mib=reading.memory_total_mib or old.memory_total_mib,
    )
