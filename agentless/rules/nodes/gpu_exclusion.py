"""Which GPUs are excluded, and until when: combines the findings of `rules/nodes/gpu_findings` with the records.

A finding excludes its GPU until a person resumes it, or, if the inventory says so, until it is found no longer. More
findings of the same cause change nothing. Faults that are in the kernel log when a GPU is first seen are forgiven:
they may have been repaired since, and a GPU that is still faulty shows it in its readings. The count of uncorrected ECC
errors is such a reading and counts from the start: the driver resets it, and if memory has to be remapped it stays
until the GPU is reset.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from agentless.model.moment import format_moment
from agentless.model.nodes.cluster import Gpu, Node
from agentless.model.nodes.gpu import MOST_GPUS, GpuReading, GpuSample
from agentless.model.nodes.node import HostFacts
from agentless.model.nodes.node_record import Drain, GpuRecord, HealthPolicy, NodeRecord, Trouble
from agentless.rules.nodes.cards import BY_KFD, SHIFTED
from agentless.rules.nodes.gpu_findings import Faults, Finding, Kind, find_faults, kind_of

OUT_FOR = 60.0
"""The shortest exclusion in seconds. A GPU at its temperature limit would flap otherwise."""

REMEMBERED = 2 * MOST_GPUS
"""The most recorded GPUs of a node: all that it can have, and as many that it had. The oldest stay."""
CHANGES = 2 * MOST_GPUS
"""The most UUIDs that a node may report within `CHANGES_WITHIN` seconds: all its GPUs may be replaced once."""
PARTS = 8 * MOST_GPUS
"""Likewise of parts of its GPUs, which people may configure several times."""
CHANGES_WITHIN = 3600.0


def recognised(known: Mapping[str, float], sample: GpuSample, now: float) -> tuple[Mapping[str, float], GpuSample]:
    """When each UUID was reported last, and the sample. It has no GPUs if the node keeps reporting new UUIDs.

    Records would grow with each of them, and no task could start on one.
    """
    here = {f"{each.parent}/{each.uuid}" if each.parent else each.uuid: now for each in sample.gpus}
    lately = {uuid: at for uuid, at in known.items() if now - at < CHANGES_WITHIN}
    parts = sum("/" in each for each in lately | here)
    if parts <= PARTS and len(lately | here) - parts <= CHANGES:
        return lately | here, sample
    look = f"; run {sample.lister} on the node twice and compare" if sample.lister else ""
    error = f"its GPUs keep changing their UUIDs ({CHANGES} within an hour){look}"
    return lately, GpuSample((), None, error)


def looked(
    records: Mapping[str, NodeRecord], node: str, sample: GpuSample, faults: Faults, now: float, policy: HealthPolicy
) -> NodeRecord:
    """The record of a node, updated from a sample. The same object if nothing has changed.

    The record of a GPU moves with it to another node, or to a new name of its node. If none of the GPUs is there, the
    name is another machine's now, and of the missing ones only those that are excluded stay in the record. Parts of
    GPUs are not recorded: they come and go as people configure them.
    """
    record = records.get(node, NodeRecord())
    here = {reading.uuid: reading for reading in sample.whole}
    known = dict(record.gpus)
    if here and not here.keys() & known.keys():
        # None of the GPUs is there: this is another machine, and they have not vanished.
        known = {uuid: gpu for uuid, gpu in known.items() if gpu.troubles}
    for reading in sample.whole:
        if reading.uuid not in known:
            moved = (other.gpus[reading.uuid] for other in records.values() if reading.uuid in other.gpus)
            known[reading.uuid] = next(moved, GpuRecord(_lasting(reading)))
    found = _findings(replace(record, gpus=known), sample, faults, policy)
    gpus = remembered(
        {uuid: _after(gpu, here.get(uuid), found.get(uuid, {}), faults, now, policy) for uuid, gpu in known.items()},
        here,
    )
    return record if gpus == record.gpus else replace(record, gpus=gpus)


def remembered(gpus: Mapping[str, GpuRecord], here: Container[str] = ()) -> Mapping[str, GpuRecord]:
    """The GPUs that stay in the record: all that are `here`, then excluded ones, the oldest first."""
    if len(gpus) <= REMEMBERED:
        return gpus
    places = sorted(gpus, key=lambda uuid: (uuid not in here, not gpus[uuid].troubles))
    kept = set(places[:REMEMBERED])
    return {uuid: gpu for uuid, gpu in gpus.items() if uuid in kept}


def gated(node: Node, record: NodeRecord | None) -> Node:
    """The node, with its drain and excluded GPUs from the record. Tasks keep the GPUs that they hold."""
    if record is None:
        return node
    ill = {uuid: gpu for uuid, gpu in record.gpus.items() if gpu.troubles}
    if ill:
        there = {gpu.reading.uuid for gpu in node.gpus}
        vanished = [Gpu(gpu.reading, "unknown") for uuid, gpu in ill.items() if uuid not in there]
        # If the driver reports no GPU at all, a missing one is not shown.
        gpus = (*node.gpus, *(vanished if node.observation.sample else ()))
        node = replace(node, gpus=tuple([_out(gpu, ill.get(gpu.reading.gpu)) for gpu in gpus]))
        if node.config.exclude_gpus and any(gpu.reading.uuid.startswith("AMD-") for gpu in vanished):
            why = SHIFTED.format("an AMD GPU disappeared")
            node = replace(node, gpus=tuple([_shifted(gpu, why) for gpu in node.gpus]))
    if record.drain is None:
        return node
    words = drain_words(record.drain)
    free = [replace(gpu, state="drained", reason=words) if gpu.state == "free" else gpu for gpu in node.gpus]
    if node.state == "offline":
        return replace(node, reason=f"{node.reason}; drained: {words}", gpus=tuple(free), drained=True)
    reason = f"{words}; {node.reason}" if node.reason else words
    return replace(node, state="drained", reason=reason, gpus=tuple(free), drained=True, trial=None)


def _shifted(gpu: Gpu, why: str) -> Gpu:
    is_one = gpu.reading.vendor == BY_KFD and gpu.state == "free"
    return replace(gpu, state="unknown", reason=why, closed=why) if is_one else gpu


def resumed(
    record: NodeRecord, gpu: int | None, sample: GpuSample | None, faults: Faults, policy: HealthPolicy
) -> tuple[NodeRecord, tuple[str, ...]]:
    """The record after a resume of the node with all its GPUs, or of one GPU; and the reasons that were lifted.

    Findings in `sample` are forgiven, and earlier ones unless they are over. Without a sample, all are forgiven.
    """
    gpus = dict(record.gpus)
    after, drained = undrained(record) if gpu is None else (record, ())
    lifted = [*drained]
    here = {reading.uuid: reading for reading in sample.gpus} if sample else {}
    found = _findings(record, sample, faults, policy) if sample else {}
    for uuid, known in record.gpus.items():
        if known.troubles and gpu in (None, known.reading.index):
            lifted.append(f"GPU {known.reading.index} was unhealthy: {trouble_words(known)}")
            keys = [finding.key for finding in found.get(uuid, {}).values()]
            before = [*known.forgiven, *(trouble.key for trouble in known.troubles)]
            still = [key for key in before if not kind_of(key).is_readable(here.get(uuid), faults if sample else None)]
            gpus[uuid] = replace(known, troubles=(), forgiven=tuple(dict.fromkeys(keys + still)))
    return replace(after, gpus=gpus), tuple(lifted)


def undrained(record: NodeRecord) -> tuple[NodeRecord, tuple[str, ...]]:
    """The record without the drain of its node, and the reason that was lifted; its unhealthy GPUs stay out."""
    lifted = (f"was drained: {drain_words(record.drain)}",) if record.drain else ()
    return replace(record, drain=None), lifted


def drain_words(drain: Drain) -> str:
    """Why, by whom and since when a node is drained: `new disks (by ann@laptop, 2026-05-01 12:00 UTC)`."""
    words = f"by {drain.by}, {format_moment(drain.since)}"
    return f"{drain.reason} ({words})" if drain.reason else words


def trouble_words(gpu: GpuRecord) -> str:
    """Why and since when a GPU is excluded: `2 uncorrected ECC errors (since 2026-05-01 12:00 UTC)`."""
    return "; ".join(f"{trouble.reason} (since {format_moment(trouble.since)})" for trouble in gpu.troubles)


# ---------------------------------------------------------------------- inside


def _findings(
    record: NodeRecord, sample: GpuSample, faults: Faults, policy: HealthPolicy
) -> Mapping[str, Mapping[str, Finding]]:
    """The findings on a node now, by UUID and cause."""
    found: dict[str, dict[str, Finding]] = {}
    before = [gpu.reading for gpu in record.gpus.values()]
    for finding in find_faults(sample, before, faults, temperature_limit=policy.temperature):
        found.setdefault(finding.gpu, {})[_cause(finding.key)] = finding
    return found


def _out(gpu: Gpu, record: GpuRecord | None) -> Gpu:
    if record is None or (gpu.state == "excluded" and not gpu.is_bare):
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
    where = _lasting(reading, gpu.reading) if reading else gpu.reading
    if where is gpu.reading and not (found or gpu.troubles or gpu.forgiven) and (gpu.logged or faults is None):
        return gpu  # as nearly always
    keys = {finding.key for finding in found.values()}
    forgiven = tuple(key for key in gpu.forgiven if key in keys or not kind_of(key).is_readable(reading, faults))
    if not gpu.logged and faults is not None:
        logged = {finding.key for finding in found.values() if finding.kind is Kind.LOGGED}
        forgiven += tuple(sorted(logged.difference(forgiven)))
    troubles = tuple(
        trouble
        for trouble in gpu.troubles
        if not policy.automatic
        or now - trouble.since < OUT_FOR
        or _cause(trouble.key) in found
        or not kind_of(trouble.key).is_readable(reading, faults)
    )
    there = {_cause(trouble.key) for trouble in troubles}
    troubles += tuple(
        Trouble(finding.key, finding.reason, now)
        for cause, finding in found.items()
        if cause not in there and finding.key not in forgiven
    )
    return GpuRecord(where, troubles, forgiven, gpu.logged or faults is not None)


def _cause(key: str) -> str:
    """What a key is about: `ecc` for `ecc 3`, `xid 79` for `xid 79 1204.5`. More of the same changes nothing."""
    return key.rsplit(" ", 1)[0]


def _lasting(reading: GpuReading, before: GpuReading | None = None) -> GpuReading:
    """The permanent values of a reading. An unreadable value keeps its earlier one."""
    old = before or reading
    name, bus = reading.name or old.name, reading.pci_bus_id or old.pci_bus_id
    total, removable = reading.memory_total_mib or old.memory_total_mib, reading.removable or old.removable
    known = (old.index, old.name, old.pci_bus_id, old.memory_total_mib, old.removable)
    if before and known == (reading.index, name, bus, total, removable):
        return before
    return GpuReading(
        reading.index, reading.uuid, name=name, pci_bus_id=bus, memory_total_mib=total, removable=removable
    )


def with_external(sample: GpuSample, host: HostFacts | None, record: NodeRecord, held: Container[str]) -> GpuSample:
    """The sample of a node with what is known of its external GPUs. One that no task holds may be unplugged."""
    removable = host.removable if host else ()
    if removable:
        gpus = tuple([replace(gpu, removable=gpu.pci_bus_id in removable) for gpu in sample.gpus])
        sample = replace(sample, gpus=gpus)
    external = {uuid for uuid, gpu in record.gpus.items() if gpu.reading.removable and uuid not in held}
    return replace(sample, unplugged=frozenset(external)) if external else sample
