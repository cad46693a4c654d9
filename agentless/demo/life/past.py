"""The hour before a simulation began, so that its first picture has curves: the jobs of then, and what was read."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path

from agentless.demo.gpus import Gpus
from agentless.demo.life.host import busy, size_for
from agentless.demo.life.work import KINDS, Job, Shift
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.host_load import HostLoad
from agentless.rules.usage.series import GPU, LEVELS, NODE, Block
from agentless.stores.records.samples import SampleStore

SPAN = 3600
_EVERY, _EVERY_OF_MANY = 10, 20
"""Seconds between two readings of a GPU: of few, and of more than `_FEW`."""
_FEW = 200
_HELD = int(GPU.hold)
"""A reading is written every so many seconds until the next one: a curve is drawn across no longer gap."""
_TOGETHER = 2
"""So many GPUs have the same jobs."""


def shifts_before(seed: str, now: float) -> list[Shift]:
    """The jobs of GPUs in the hour before `now`, one after another; some end before it."""
    chance = random.Random(seed)  # noqa: S311 - it is to be the same for the same seed
    found, at = list[Shift](), now - SPAN - chance.uniform(0, 900)
    while at < now:
        ended = min(now, at + chance.uniform(400, 1500))
        found.append(Shift(Job(chance.choice([*KINDS.values()]), chance.randrange(1 << 32)), at, ended))
        at = ended + chance.uniform(20, 400)
    return found


def begin(nodes: Sequence[tuple[str, Gpus]], now: float) -> None:
    """Let the GPUs of these nodes have had a past."""
    for name, gpus in nodes:
        for index in range(len(gpus.uuids)):
            gpus.begin_with(index, shifts_before(f"{name} {index // _TOGETHER}", now))


def record(nodes: Sequence[tuple[str, Gpus]], now: float, samples: Path) -> None:
    """Write that past where a controller keeps its samples, as if it had read them."""
    every = _EVERY if sum(len(gpus.uuids) for _, gpus in nodes) <= _FEW else _EVERY_OF_MANY
    store = SampleStore(samples)
    minute = LEVELS[0].block
    try:
        for first in range(int(now - SPAN) // minute, int(now) // minute + 1, 5):
            end = min(int(now) // minute + 1, first + 5)
            numbers = range(first, end)
            store.add(
                (each for name, gpus in nodes for each in _minutes(name, gpus, numbers, now, every)), end * minute
            )
    finally:
        store.close()


def _minutes(name: str, gpus: Gpus, numbers: Sequence[int], now: float, every: int) -> Iterator[tuple[str, int, Block]]:
    """What was read in these minutes before `now`: for each GPU, and for the machine."""
    size = size_for(len(gpus.uuids))
    for number in numbers:
        machine, blocks = Block(NODE), [Block() for _ in gpus.uuids]
        for second in range(0, LEVELS[0].block, every):
            at = number * LEVELS[0].block + second
            if at >= now:
                break
            seen = [gpus.reading(index, at) for index in range(len(gpus.uuids))]
            for block, each in zip(blocks, seen, strict=True):
                read = GpuReading(
                    0, "", utilization_pct=each.utilization_pct, memory_used_mib=each.memory_used_mib,
                    temperature_c=each.temperature_c, power_w=each.power_w,
                )  # fmt: skip
                for point in range(second, min(second + every, ceil(now - number * LEVELS[0].block)), _HELD):
                    block.read(point, read)
            mean = sum(each.utilization_pct for each in seen) / max(1, len(seen)) / 100
            host = busy(size, mean)
            load = HostLoad(
                cores_busy=host.cores, memory_used_mib=host.memory_mib, temperature_c=host.temperature_c,
                network_in_bytes_per_second=host.received, network_out_bytes_per_second=host.sent,
            )  # fmt: skip
            machine.read(second, load)
        yield f"node {name}", number, machine
        yield from ((gpu, number, block) for gpu, block in zip(gpus.uuids, blocks, strict=True))
