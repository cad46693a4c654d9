"""A full look at a node with 200 containers, compared with what is remembered, against a bare `docker ps -a`."""

from __future__ import annotations

import asyncio
import shlex
import time
from dataclasses import replace

from agentless.controller.clock import SystemClock
from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.node_link import NodeLink
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import Command
from agentless.model.containers.claim import labels_of, task_of
from agentless.model.containers.signature import Signer
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.node import EngineFacts
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Placement, Task
from agentless.model.tasks.task_id import new_task_id
from agentless.paths import template_dir
from agentless.render import Renderer
from agentless.rules.tasks.reconcile import container_of, reconcile
from tests.bench.fleets import real_nodes, session_to
from tests.bench.measure import Row, paired, ratio
from tests.engines import docker_engine, systemd_engine
from tests.lab import IMAGE, Node, requirements
from tests.listener import Listener

ENDED, LIVE = 190, 10
MOST = 2.0
_WHAT = f"reconcile a node with {ENDED} ended and {LIVE} running containers : `docker ps -a` over the same session"
_AT_ONCE = 8
SIGNER = Signer("bench", b"bench")


def bench(runs: int) -> list[Row]:
    """What a connected controller does each minute. The first look after its start inspects all: the second row."""
    first = _WHAT.replace("reconcile", "reconcile for the first time")
    if missing := requirements():
        return [Row(what, f"≤ {MOST:g} ×", "; ".join(missing)) for what in (_WHAT, first)]
    with real_nodes("node1") as lab, asyncio.Runner() as runner:
        _fill(lab.nodes["node1"])
        session, config = session_to(lab, "node1")
        parts = config, Renderer([template_dir()]), SIGNER
        docker = docker_engine(*parts)
        engines = NodeEngines(docker, systemd_engine(*parts))
        link = NodeLink(config, session, Nvidia(), engines, parts[1], SystemClock(), Listener())
        runner.run(session.connect())

        def ours() -> float:
            if forgetful:
                link.cache.observation = Observation()
            began = time.perf_counter()
            listed = docker.parse_list(runner.run(session.run(docker.listing())))
            engine = runner.run(link.inspector._inspected(EngineFacts(listed=listed)))
            link.cache.observation = Observation(engine=engine)
            events = [reconcile(task, container_of(task, link.containers), time.time()) for task in remembered]
            seconds = time.perf_counter() - began
            assert (len(link.containers), any(events)) == (ENDED + LIVE, False)
            return seconds

        def theirs() -> float:
            began = time.perf_counter()
            assert runner.run(session.run(Command("docker ps -a"))).out.count("\n") == ENDED + LIVE + 1
            return time.perf_counter() - began

        remembered: list[Task] = []
        forgetful = True
        at_first = paired(ours, theirs, max(3, runs // 3))
        forgetful = False
        remembered = [task for each in link.containers if (task := task_of(each, "node1", time.time())) and task.live]
        assert len(remembered) == LIVE
        rows = [ratio(_WHAT, MOST, paired(ours, theirs, runs))]
        runner.run(session.close())
    return [*rows, replace(ratio(first, MOST, at_first), bound="none", passed=None)]


def _fill(node: Node) -> None:
    lines, last = [], ""
    for number in range(ENDED + LIVE):
        last = new_task_id(time.time(), last)
        command = ("true",) if number < ENDED else ("sleep", "3600")
        task = Task(last, TaskSpec(command, IMAGE, needs=parse_target("node1")), last, "bench@here", time.time())
        labels = SIGNER.sign(labels_of(task, Placement("node1"), "bench"), "node1")
        words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        lines.append(shlex.join(["docker", "run", "--detach", "--name", task.container_name, *words, IMAGE, *command]))
    for start in range(0, len(lines), _AT_ONCE):
        done = node.sh(" & ".join(lines[start : start + _AT_ONCE]) + " & wait")
        assert not done.stderr, done.stderr
