"""What a controller takes with 100 nodes of 8 GPUs each, which it samples every 2 s."""

from __future__ import annotations

import statistics
import time
from datetime import datetime
from pathlib import Path

from agentless.client.client import Client
from tests.bench.fleets import controller, cpu_seconds, simulated_env, simulated_nodes
from tests.bench.measure import Row

NODES, GPUS = 100, 8
SETTLE, WATCHED = 15.0, 60.0
MOST_CPU, MOST_MB = 5.0, 150.0


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
    ]


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6


def _sampled_every(client: Client) -> float:
    """Seconds: on average a sample is half as old as the time between two. Raises when a node is not sampled."""
    nodes = client.get("/v1/nodes")
    assert [node["state"] for node in nodes] == ["online"] * NODES, [node["reason"] for node in nodes]
    return 2 * statistics.mean(time.time() - datetime.fromisoformat(node["sampled_at"]).timestamp() for node in nodes)
