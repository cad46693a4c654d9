"""Short tasks at once on one node of eight GPUs, against as many `docker run` at once over an open SSH connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from agentless.client.client import Client
from tests.bench.fleets import AGENTLESS, controller, forget, real_env, real_nodes
from tests.bench.measure import Row, Side, paired, ratio, timed
from tests.lab import IMAGE, Lab, Node

GPUS, BURST = 8, 20
MOST = 1.3
_SSH = "ssh", "-o", "ControlMaster=auto", "-o", "ControlPersist=60s"


def bench(runs: int) -> list[Row]:
    """Each side ends when all have ended. What they leave behind is removed outside the time."""
    runs = max(3, runs // 3)
    with real_nodes("node1", gpus=GPUS) as lab, controller(real_env(lab)) as client:
        folder = lab.root / "work"
        folder.mkdir()
        ours = partial(_ours, lab, client, folder)
        eight = [[f"node1::{gpu}", "--image", IMAGE, "--", "true"] for gpu in range(GPUS)]
        at_once = _docker(lab, GPUS)
        burst = _docker(lab, BURST)
        many = ["1x", "--image", IMAGE, "--", "true"]
        sweep = ["submit", "1x", "--image", IMAGE, "--wait", "--", "true", f"span:{{1..{BURST}}}"]
        return [
            ratio(
                f"{GPUS} `run` at once : {GPUS} `docker run` at once over ssh",
                MOST,
                paired(ours([["run", *each] for each in eight]), at_once, runs),
            ),
            ratio(
                f"{GPUS} `submit -f` at once : the same",
                MOST,
                paired(ours([["submit", "-f", *each] for each in eight]), at_once, runs),
            ),
            ratio(
                f"{BURST} `submit --wait`, {GPUS} at a time : {BURST} `docker run`, {GPUS} at a time over ssh",
                MOST,
                paired(ours([["submit", "--wait", *many]] * BURST), burst, runs),
            ),
            ratio(f"a sweep of {BURST} with `--wait` : the same", MOST, paired(ours([sweep]), burst, runs)),
        ]


def _ours(lab: Lab, client: Client, folder: Path, commands: Sequence[Sequence[str]]) -> Side:
    def side() -> float:
        seconds = _at_once([[AGENTLESS, *words] for words in commands], real_env(lab), folder)
        for task in client.get("/v1/tasks", ended=True):
            forget(client, task["id"])
        return seconds

    return side


def _docker(lab: Lab, count: int) -> Side:
    """So many, of which eight run at a time, each with a GPU of its own."""
    node = lab.nodes["node1"]
    ssh = [*_SSH, "-o", f"ControlPath={lab.root}/%C", "-F", f"{lab.home}/.ssh/config", "node1"]
    commands = [[*ssh, _docker_run(node, number)] for number in range(count)]

    def side() -> float:
        timed([*ssh, "true"], lab.env())
        seconds = _at_once(commands, lab.env(), lab.root)
        timed([*ssh, "docker rm $(docker ps -aq) >/dev/null"], lab.env())
        return seconds

    return side


def _docker_run(node: Node, number: int) -> str:
    options = f"--pull never --name burst{number} --gpus device={node.gpu_uuids[number % GPUS]}"
    return f"docker run {options} --stop-timeout 10 {IMAGE} true"


def _at_once(commands: Sequence[Sequence[str]], env: dict[str, str], folder: Path) -> float:
    """Run all, eight at a time; the seconds until the last has ended."""
    run: Callable[[Sequence[str]], object] = partial(timed, env=env, cwd=folder)
    with ThreadPoolExecutor(GPUS) as pool:
        began = time.perf_counter()
        list(pool.map(run, commands))
        return time.perf_counter() - began
