"""How many tasks the queue starts in a second: 2,000 wait for 399 GPUs of 50 nodes, all of which become free at once.

The nodes, their container engines and the tasks share the cores of this machine with the controller: what the clock
says is bounded by them. So the processor time of the controller is taken, too: what it would start if the nodes had
machines of their own. Both are shown.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterable

from agentless.client.client import Client
from tests.bench.fleets import controller, cpu_seconds, end, request, simulated_env, simulated_nodes
from tests.bench.measure import Row

NODES, GPUS, WAITING = 50, 8, 2000
AT_ONCE = NODES * GPUS - 1
"""Somebody else is on the last GPU of the second node."""
LEAST = 200
_BATCH = 100
"""Tasks of one submit."""
_PATIENCE = 300


def bench(_runs: int) -> list[Row]:
    """First all GPUs are held by a task per node. Then five times all of them are ended, from outside."""
    with simulated_nodes(NODES, GPUS) as root, controller(simulated_env(root)) as client:
        pid = client.get("/v1/controller")["pid"]
        held = _submit(client, [f"node{number}::0-{GPUS - 1 - (number == 2)}" for number in range(1, NODES + 1)])
        for _ in range(WAITING // _BATCH):
            _submit(client, ["1x"] * _BATCH)
        starts = _Starts(client)
        walls, used = [], []
        for _ in range(WAITING // AT_ONCE):
            before, began = cpu_seconds(pid), time.perf_counter()
            end(root, held)
            held = starts.next(AT_ONCE)
            walls.append(AT_ONCE / (time.perf_counter() - began))
            used.append((cpu_seconds(pid) - before) / AT_ONCE)
    first, later = 1 / used[0], 1 / statistics.median(used[1:])
    what = f"starts per second of the controller's processor time, {WAITING:,} tasks waiting for {NODES} nodes"
    measured = (
        f"**{first:.0f}** ({1e3 * used[0]:.1f} ms each, {AT_ONCE} at once; {later:.0f} when as many have just ended; "
        f"{max(walls):.0f} by the clock beside all the nodes)"
    )
    return [Row(what, f"≥ {LEAST}", measured, first >= LEAST)]


def _submit(client: Client, targets: Iterable[str]) -> set[str]:
    body = {**request("node1", "sleep", "3600"), "targets": list(targets)}
    answers = client.post("/v1/tasks", body)
    assert not any(answer["message"] for answer in answers), answers[0]
    return {answer["task"]["id"] for answer in answers}


class _Starts:
    """Hears which tasks have been launched."""

    def __init__(self, client: Client) -> None:
        self._launched: set[str] = set()
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, args=[client], daemon=True).start()

    def next(self, count: int) -> set[str]:
        """Wait for so many more of them, and name them."""
        with self._changed:
            in_time = self._changed.wait_for(lambda: len(self._launched) >= count, _PATIENCE)
            assert in_time, f"{len(self._launched)} tasks were started within {_PATIENCE} s"
            found, self._launched = self._launched, set()
            return found

    def _listen(self, client: Client) -> None:
        for news in client.lines("/v1/events"):
            if news["kind"] == "task" and news["event"] == "launched":
                with self._changed:
                    self._launched.add(news["task"]["id"])
                    self._changed.notify_all()
