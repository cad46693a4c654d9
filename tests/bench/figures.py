"""The numbers of 800 GPUs over time, and what 100,000 tasks have had: what they cost. No nodes: samples are made up."""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson

from agentless.controller.process import TURN
from agentless.controller.state.event_bus import EventBus, NodeObserved
from agentless.controller.usage import metrics
from agentless.controller.usage.metrics_snapshot import MetricsSnapshot
from agentless.controller.usage.samples import Samples
from agentless.controller.usage.usage import Usage
from agentless.model.nodes.cluster import Cluster, Gpu, Node, Observation
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.nodes.node import NodeConfig
from agentless.rules.usage.periods import periods
from agentless.stores.records.history import History
from agentless.stores.records.samples import SampleStore
from tests.bench.measure import Row, milliseconds

NODES, GPUS, MINUTES, ENDED = 100, 8, 12, 100_000
_WHAT = f"the numbers of {NODES * GPUS} GPUs, sampled every 2 s"


def bench(_runs: int) -> list[Row]:
    """All in this process, with the turn that the controller gives to threads."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        with tempfile.TemporaryDirectory(prefix="agentless-bench-") as folder:
            return [*asyncio.run(_numbers(Path(folder))), asyncio.run(_usage(Path(folder)))]
    finally:
        sys.setswitchinterval(before)


class _Nodes:
    """As much of the nodes of a controller as numbers need."""

    def __init__(self) -> None:
        self.at = 1.8e9
        self.clock = SimpleNamespace(now=lambda: self.at)
        self.links = {f"node{n}": SimpleNamespace(node=SimpleNamespace(name=f"node{n}")) for n in range(NODES)}

    def link(self, name: str) -> Any:
        return self.links[name]

    def cluster(self, names: Any = None) -> Cluster:
        nodes = {}
        for name in names or self.links:
            seen = self.links[name].observation
            gpus = tuple(Gpu(reading, "free") for reading in seen.sample.gpus)
            nodes[name] = Node(NodeConfig(name, name), "online", "", gpus, seen)
        return Cluster(nodes, self.at)


async def _numbers(folder: Path) -> list[Row]:
    nodes, bus = _Nodes(), EventBus()
    homes: Any = SimpleNamespace(known={})
    samples = Samples(nodes, homes, SampleStore(folder / "samples.sqlite"), bus, nodes.clock)  # type: ignore[arg-type]
    cpu, held, idle = 0.0, [], []
    for minute in range(MINUTES):
        for _ in range(30):
            nodes.at += 2
            for name, link in nodes.links.items():
                link.observation = _observation(name, nodes.at)
            began = time.thread_time()
            for name, link in nodes.links.items():
                bus.emit(NodeObserved(name, link.observation))
            cpu += time.thread_time() - began
        began = time.process_time()
        samples.tick()
        stalls = await _beside(asyncio.get_running_loop().run_in_executor(samples._thread, lambda: None))
        cpu += time.process_time() - began
        held += stalls if minute else []
        idle += await _beside(asyncio.ensure_future(asyncio.sleep(0.2)))
    share = 100 * cpu / (60 * MINUTES)
    typical, most, other = statistics.median(held), *(statistics.quantiles(each, n=10)[-1] for each in (held, idle))
    rows = [
        Row(f"{_WHAT}: CPU", "≤ 1 % of a core", f"**{share:.2f} %**", share <= 1),
        Row(
            "the event loop is held up while a minute of them is written: 9 of 10 times",
            "≤ 5 ms",
            f"**{milliseconds(most)}** (median {milliseconds(typical)}; with nothing to write {milliseconds(other)})",
            most <= 0.005,
        ),
        await _asked(f"`GET /v1/history` of {NODES * GPUS} GPUs, 60 points of an hour", samples, [], 3600, 60),
        await _asked("`GET /v1/history` of one GPU, 3,600 points of an hour", samples, ["node1::0"], 3600, 3600),
    ]
    began = time.thread_time()
    text = metrics.text(MetricsSnapshot(nodes.cluster(), (), {}, {}, 0))
    seconds = time.thread_time() - began
    what = f"a scrape of {NODES * GPUS} GPUs, {len(text) >> 10} KiB, in a thread: CPU"
    await samples.close()
    return [*rows, Row(what, "≤ 250 ms", f"**{milliseconds(seconds)}**", seconds <= 0.25)]


async def _usage(folder: Path) -> Row:
    nodes, history = _Nodes(), History(folder / "history.sqlite")
    rows = [
        (f"t{n:06}", f"o{n % 7}", f"n{n % 50}", "b", 1, nodes.at - n, nodes.at - n + 500, 400, 300)
        for n in range(ENDED)
    ]
    history._db.execute("BEGIN")
    history._db.executemany("INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    history._db.execute("COMMIT")
    for name, link in nodes.links.items():
        link.observation = _observation(name, nodes.at)
    tasks: Any = SimpleNamespace(live={}, loads={}, history=history)
    records: Any = SimpleNamespace(known={})
    usage = Usage(tasks, nodes, records, EventBus(), nodes.clock)  # type: ignore[arg-type]
    began = time.process_time()
    found = await usage.view(periods(nodes.at - 7 * 86400, nodes.at + 500), "owner")
    seconds = time.process_time() - began
    history.close()
    assert found.total.tasks == ENDED
    what = f"`GET /v1/usage` of {ENDED:,} ended tasks: CPU"
    return Row(what, "≤ 1 s", f"**{milliseconds(seconds)}**", seconds <= 1)


async def _asked(what: str, samples: Samples, gpus: list[str], span: float, points: int) -> Row:
    took, size = [], 0
    for _ in range(5):
        began = time.process_time()
        size = len(orjson.dumps(await samples.history(gpus, span, points)))
        took.append(time.process_time() - began)
    seconds = statistics.median(took)
    return Row(f"{what}, {size >> 10} KiB: CPU", "≤ 500 ms", f"**{milliseconds(seconds)}**", seconds <= 0.5)


async def _beside(work: asyncio.Future[Any]) -> list[float]:
    """For how long the event loop was held up, again and again, until the work was done."""
    held = []
    while not work.done():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        held.append(time.perf_counter() - began - 0.001)
    return held


def _observation(node: str, at: float) -> Observation:
    readings = (
        GpuReading(
            index,
            f"GPU-5d1c9f3e-0000-4000-8000-{node:>8}{index:04}",
            memory_total_mib=81920,
            utilization_pct=random.randrange(80, 100),
            memory_used_mib=50_000 + random.randrange(50),
            temperature_c=60 + random.randrange(5),
            power_w=round(300 + 40 * random.random(), 2),
        )
        for index in range(GPUS)
    )
    return Observation(None, GpuSample(tuple(readings)), at)
