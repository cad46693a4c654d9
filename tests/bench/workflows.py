"""A workflow of 1,000 jobs against the same 1,000 as a batch, on simulated nodes: what it costs that jobs wait.

One job is required by 998 others, and the last one requires all of these. The nodes share the cores of this machine
with the controller, so its own processor time is taken, too: until the log of each task has been kept, since that goes
on after the last end, and one side would have more of it left than the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from agentless import paths
from agentless.client.client import Client
from agentless.stores.files.logs import LogStore
from tests.bench.fleets import AGENTLESS, controller, cpu_seconds, simulated_env, simulated_nodes
from tests.bench.measure import Pairs, Row, paired, ratio, timed

NODES, GPUS, JOBS = 20, 8, 1000
MOST = 1.2
PAIRS = 5
_WHAT = f"a workflow of {JOBS:,} jobs of `true` on {NODES} simulated nodes : the same as a batch"
_IMAGE = "simulated/python:3.12"
_FILE = """\
defaults: {image: IMAGE, gpus: 1}
jobs:
  prepare: {command: "true 1"}
  train: {command: "true {{ matrix.n }}", matrix: {n: NUMBERS}, requires: prepare}
  evaluate: {command: "true LAST", requires: train}
"""


def bench(_runs: int) -> list[Row]:
    """Both sides end when the last task has ended; all are removed before the next one, outside the time."""
    with simulated_nodes(NODES, GPUS) as root, controller(env := simulated_env(root)) as client:
        file = root / "bench.yaml"
        file.write_text(_text(), encoding="utf-8")
        batch = ["submit", "--image", _IMAGE, "--gpus", "1", "--wait", "--", "true", f"span:{{1..{JOBS}}}"]
        ours = _Side(client, env, root, ["workflow", "run", str(file), "--wait"], ["workflow", "rm"])
        theirs = _Side(client, env, root, batch, ["rm", "--batch"])
        cpu = paired(ours, theirs, PAIRS)
    walls: Pairs = list(zip(ours.walls, theirs.walls, strict=True))[1:]
    return [ratio(_WHAT, MOST, walls), ratio("the same: processor time of the controller", MOST, cpu)]


class _Side:
    """Runs all to their end; gives the processor time of the controller, and keeps that of the clock."""

    def __init__(
        self, client: Client, env: dict[str, str], folder: Path, command: list[str], remove: list[str]
    ) -> None:
        self.walls: list[float] = []
        self._client = client
        self._run: Callable[[list[str]], tuple[float, str]] = lambda words: timed([AGENTLESS, *words], env, folder)
        self._command = command
        self._remove = remove
        self._pid = client.get("/v1/controller")["pid"]
        self._logs = LogStore(paths.state_dir(env) / "logs")

    def __call__(self) -> float:
        before = cpu_seconds(self._pid)
        self.walls.append(self._run(self._command)[0])
        tasks = [task for task in self._client.get("/v1/tasks", ended=True) if not task["foreign"]]
        assert [task["state"] for task in tasks] == ["completed"] * JOBS
        while not all(task["id"] in self._logs for task in tasks):
            time.sleep(0.1)
        used = cpu_seconds(self._pid) - before
        self._run([*self._remove, tasks[0]["batch"], "--yes"])
        return used


def _text() -> str:
    numbers = list(range(2, JOBS))
    return _FILE.replace("IMAGE", _IMAGE).replace("NUMBERS", str(numbers)).replace("LAST", str(JOBS))
