"""How many tasks the queue starts in a second: 2,000 wait for 400 GPUs of 50 nodes, all of which become free at once."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from agentless.client import Client
from tests.bench.houses import controller, end, request, simulated_env, simulated_nodes
from tests.bench.measure import Row

NODES, GPUS, WAITING = 50, 8, 2000
AT_ONCE = NODES * GPUS - 1  # somebody else is on the last GPU of node2
LEAST = 200
_AS_MANY = 100
"""Tasks of one submit."""
_PATIENCE = 120


def bench(_runs: int) -> list[Row]:
    """The tasks live on until their processes are ended, from outside: then the next ones start."""
    with simulated_nodes(NODES, GPUS) as root, controller(simulated_env(root)) as client:
        pid = client.get("/v1/controller")["pid"]
        held = _submit(client, [f"node{number}::0-{GPUS - 1 - (number == 2)}" for number in range(1, NODES + 1)])
        began = time.perf_counter()
        for chunk in itertools.batched(["1x"] * WAITING, _AS_MANY) if hasattr(itertools, "batched") else _chunks():
            _submit(client, chunk)
        print("submit", time.perf_counter() - began, flush=True)
        news = _News(client)
        for _ in range(min(5, WAITING // AT_ONCE)):
            news.forget()
            before, began = _cpu_seconds(pid), time.perf_counter()
            end(root, held)
            held = news.started(AT_ONCE)
            wall, used = time.perf_counter() - began, _cpu_seconds(pid) - before
            print(
                f"{AT_ONCE / wall:.0f}/s wall, {1e3 * used / AT_ONCE:.2f} ms CPU a start: {AT_ONCE / used:.0f}/s, first..last {news.span:.2f}",
                flush=True,
            )
    return []


def _chunks():
    return [["1x"] * _AS_MANY] * (WAITING // _AS_MANY)


def _submit(client: Client, targets: Iterable[str]) -> set[str]:
    body = {**request("node1", "sleep", "3600"), "targets": list(targets)}
    answers = client.post("/v1/tasks", body)
    assert not any(answer["message"] for answer in answers), answers[0]
    return {answer["task"]["id"] for answer in answers}


class _News:
    """Listens for starts."""

    def __init__(self, client: Client) -> None:
        self._running: dict[str, float] = {}
        self._changed = threading.Condition()
        self.span = 0.0
        threading.Thread(target=self._listen, args=[client], daemon=True).start()

    def forget(self) -> None:
        with self._changed:
            self._running.clear()

    def started(self, count: int) -> set[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._running) >= count, _PATIENCE), len(self._running)
            at = self._running.values()
            self.span = max(at) - min(at)
            return set(self._running)

    def _listen(self, client: Client) -> None:
        for news in client.lines("/v1/events"):
            if news["kind"] == "task" and news["event"] == "launched":
                with self._changed:
                    self._running[news["task"]["id"]] = news["at"]
                    self._changed.notify_all()


def _cpu_seconds(pid: int) -> float:
    """User and system time, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
