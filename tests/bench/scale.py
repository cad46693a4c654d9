"""What a controller takes with 100 nodes of 8 GPUs each, which it samples every 2 s."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agentless.demo
from agentless.client.client import Client
from agentless.controller.nodes.link.cache import NodeCache
from agentless.controller.nodes.link.sampler import HOST_EVERY, Sampler
from agentless.controller.state.event_bus import EventBus, NodeObserved
from agentless.controller.usage.samples import Samples
from agentless.demo.gpus import Gpus
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import join_sections
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.node import HostFacts
from agentless.paths import template_dir
from agentless.remote import host_load
from agentless.render import Renderer
from agentless.stores.records.samples import SampleStore
from tests.bench.fleets import controller, cpu_seconds, simulated_env, simulated_nodes
from tests.bench.measure import Row

NODES, GPUS = 100, 8
SETTLE, WATCHED = 15.0, 60.0
MOST_CPU, MOST_MB = 5.0, 150.0
PAIRS, TAKEN = 15, 1000


def bench(_runs: int) -> list[Row]:
    """One look of a minute; the nodes are another process."""
    with simulated_nodes(NODES, GPUS) as root, controller(simulated_env(root)) as client:
        pid = client.get("/v1/controller")["pid"]
        time.sleep(SETTLE)
        began, before = time.perf_counter(), cpu_seconds(pid)
        time.sleep(WATCHED)
        share = 100 * (cpu_seconds(pid) - before) / (time.perf_counter() - began)
        megabytes = _resident_mb(pid)
        every = _sampled_every(client)
    what = f"a controller with {NODES} nodes of {GPUS} GPUs, each sampled every {every:.1f} s: "
    return [
        Row(what + "CPU", f"≤ {MOST_CPU:g} % of a core", f"**{share:.1f} %** over {WATCHED:.0f} s", share <= MOST_CPU),
        Row(what + "memory", f"≤ {MOST_MB:g} MB", f"**{megabytes:.0f} MB** resident", megabytes <= MOST_MB),
        _machines(share / 100 / NODES * every),
    ]


def _machines(sample: float) -> Row:
    """How much of the CPU of a `sample` (seconds) is spent on the machine, whose link costs nothing of its own."""
    with tempfile.TemporaryDirectory(prefix="agentless-bench-") as folder:
        gpus, machine = _frames(Path(folder))
        turns = [gpus + machine, *[gpus] * (HOST_EVERY - 1)]
        pairs = [(_seconds(Path(folder), turns), _seconds(Path(folder), [gpus] * HOST_EVERY)) for _ in range(PAIRS)]
    extra = statistics.median(ours - theirs for ours, theirs in pairs) / TAKEN
    share = 100 * extra / (sample - extra)
    words = f"**{share:.1f} %** ({1e6 * extra:.0f} of {1e6 * sample:.0f} µs for a sample)"
    return Row("what CPU, memory, disk and network of its nodes add to its CPU", "≤ 10 %", words, share <= 10)


def _frames(folder: Path) -> tuple[bytes, bytes]:
    """What a simulated node sends of its GPUs, and of its machine."""
    Gpus(GPUS, "A100", folder)
    env = {
        "PATH": f"{Path(agentless.demo.__file__).parent / 'bin'}:/usr/bin:/bin",
        "AGENTLESS_STANDIN_DIR": str(folder),
    }
    renderer = Renderer([template_dir()])
    scripts = (Nvidia().sections(renderer), [host_load.section(renderer, "/")])
    gpus, machine = (
        subprocess.run(["sh"], input=join_sections(each).encode(), env=env, capture_output=True, check=True).stdout
        for each in scripts
    )
    return gpus, machine


def _seconds(folder: Path, turns: Sequence[bytes]) -> float:
    """CPU time for `TAKEN` of these frames, from their bytes to the curves of the minute."""
    clock, bus, nodes = SimpleNamespace(at=1.8e9), EventBus(), SimpleNamespace()
    clock.now = lambda: clock.at
    homes: Any = SimpleNamespace(known={})
    samples = Samples(nodes, homes, SampleStore(folder / "samples.sqlite"), bus, clock)  # type: ignore[arg-type]
    cache = NodeCache("node1", clock, lambda: bus.emit(NodeObserved("node1", cache.observation)), lambda _: None)
    cache.observe(Observation(error=None, host=HostFacts(64, 1 << 19)))
    sampler = Sampler(None, Nvidia(), None, None, cache)  # type: ignore[arg-type]
    began = time.thread_time()
    for turn in range(TAKEN):
        clock.at += 2
        sampler._take(turns[turn % len(turns)])
    took = time.thread_time() - began
    assert samples._minute
    return took


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6


def _sampled_every(client: Client) -> float:
    """Seconds: on average a sample is half as old as the time between two. Raises when a node is not sampled."""
    nodes = client.get("/v1/nodes")
    assert [node["state"] for node in nodes] == ["online"] * NODES, [node["reason"] for node in nodes]
    return 2 * statistics.mean(time.time() - datetime.fromisoformat(node["sampled_at"]).timestamp() for node in nodes)
