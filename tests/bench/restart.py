"""How long a controller that was killed takes until it knows the truth again: 1,000 live tasks on 100 nodes."""

from __future__ import annotations

import json
import os
import signal
import statistics
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agentless.client.client import Client
from tests.bench.fleets import AGENTLESS, controller, end, request, simulated_env, simulated_nodes
from tests.bench.measure import Row, milliseconds, timed

NODES, PER_NODE = 100, 10
ENDED = 50
MOST = 3.0
_WHAT = f"`agentless ps` after `kill -9` of a controller with {NODES * PER_NODE:,} live tasks on {NODES} nodes"


def bench(runs: int) -> list[Row]:
    """The whole command: it starts a controller and has an answer of each node. Tasks end while there is none."""
    with simulated_nodes(NODES, 1) as root, controller(env := simulated_env(root)) as client:
        live = _fill(client)
        seconds = []
        for _ in range(max(3, runs // 7)):
            _kill(client)
            gone = {live.pop() for _ in range(ENDED)}
            end(root, gone)
            took, printed = timed([AGENTLESS, "ps", "--json"], env)
            assert {task["id"] for task in json.loads(printed)} == live
            assert {client.get(f"/v1/tasks/{task}")["state"] for task in gone} == {"failed"}
            seconds.append(took)
            _forget(client, gone, env)
        found = statistics.median(seconds)
        spread = f"{milliseconds(min(seconds))} … {milliseconds(max(seconds))}; n={len(seconds)}"
        for task in live:
            client.post(f"/v1/tasks/{task}/kill")
    return [Row(_WHAT, f"≤ {MOST:g} s", f"**{milliseconds(found)}** ({spread})", found <= MOST)]


def _fill(client: Client) -> set[str]:
    names = [f"node{number}" for number in range(1, NODES + 1)] * PER_NODE
    with ThreadPoolExecutor(16) as pool:
        starts = list(pool.map(lambda name: client.post("/v1/tasks", request(name, "sleep", "3600"))[0], names))
    assert not any(start["message"] for start in starts)
    return {start["task"]["id"] for start in starts}


def _kill(client: Client) -> None:
    pid = client.get("/v1/controller")["pid"]
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}/stat").exists():
        pass


def _forget(client: Client, tasks: set[str], _env: Mapping[str, str]) -> None:
    for task in tasks:
        client.delete(f"/v1/tasks/{task}")
