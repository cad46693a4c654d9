"""One node of each hostile kind among ten good ones: each says what is wrong with it, and the others do not notice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentless.client.client import Client
from agentless.controller.nodes import registry
from agentless.demo.engine.container import Config
from agentless.demo.engine.engine import DEFAULT_IMAGE
from agentless.demo.fleet import NodePlan
from agentless.demo.node import SimulatedNode
from agentless.model.containers.claim import CONTROLLER, GPUS, OWNER, SPEC, TASK
from agentless.model.tasks.task_id import new_task_id
from tests.fleet.desk import Desk
from tests.fleet.world import World

GOOD = [f"good{n}" for n in range(1, 11)]
PATIENCE = 60
MEMORY, STATE = 200 << 20, 200 << 10
"""Bytes, at most."""
COMPUTED = 20
"""Seconds: ten times what it takes, and less than any of these nodes took alone."""
# A full look has a minute otherwise.
CONTROLLER_SCRIPT = """\
import os, sys, threading
from agentless.controller.nodes.link import inspector, sampler
from agentless.controller.__main__ import main
inspector.REFRESH_WITHIN = sampler.SAMPLE_WITHIN = 6.0
def end_with_stdin():
    sys.stdin.read()
    os._exit(1)
threading.Thread(target=end_with_stdin, daemon=True).start()
sys.exit(main())
"""
ROW = (
    "NVIDIA H100, 550.54.15, 00000000:3B:00.0, 81559, 7, 81552, 0, 0, 31, 69, 700, 0, 345, 2619, P0, 0, Disabled, "
    "Default"
)
OTHERWISE = '*) exec "$REAL" "$@" ;; esac'
FLOODS = (
    "offline: {} (sends too many error messages|prints more than 1 MiB|sent more than 12 MiB|did not finish a command)"
)
# By kind: the program in the place of which this stands, what it does, and, as a pattern, what is said of the node.
KINDS: dict[str, tuple[str, str, str]] = {
    "many-gpus": (
        "nvidia-smi",
        f"case $* in *query-gpu*) seq 0 4499 | sed 's/.*/&, GPU-&, {ROW}/' ;; esac",
        "degraded: nvidia-smi lists more than 64 GPUs",
    ),
    "other-gpus": (
        "nvidia-smi",
        f'read -r now _ </proc/uptime; for n in $(seq 0 63); do echo "$n, GPU-${{now%.*}}${{now#*.}}-$n, {ROW}"; done',
        "degraded: its GPUs keep changing their UUIDs",
    ),
    "much-text": ("nvidia-smi", "yes 'NVRM: x' | head -c 100000000", "degraded: nvidia-smi prints more than 256 KiB"),
    "no-newline": ("nvidia-smi", "exec tr '\\0' x </dev/zero", "degraded: nvidia-smi prints more than 256 KiB"),
    "many-processes": (
        "nvidia-smi",
        f"case $* in *y-gpu*) echo '0, GPU-0, {ROW}' ;; *) seq 4000001 4010000 | sed 's/.*/GPU-0, &, x, 1/' ;; esac",
        "degraded: nvidia-smi lists more than 1024 processes",
    ),
    "many-containers": (
        "docker",
        f"case $1 in ps) seq 10000 | sed 's/.*/{'0' * 60}&/; s/.*\\(.\\{{64\\}}\\)$/\\1 Up/' ;; " + OTHERWISE,
        "degraded: more than 5000 containers of agentless",
    ),
    "endless-list": (
        "docker", "case $1 in ps) exec yes ;; " + OTHERWISE,
        "degraded: more than 5000 containers of agentless",
    ),
    "endless-events": (
        "docker", "case $1 in events) exec yes start x ;; " + OTHERWISE,
        "offline: {} sends too many container events",
    ),
    "one-long-event": (
        "docker",
        "case $1 in events) printf 'start '; exec tr '\\0' x </dev/zero ;; *) exec \"$REAL\" \"$@\" ;; esac",
        "offline: {} sends too many container events",
    ),
    "byte-by-byte": (
        "docker",
        "case $1 in info) while :; do printf x; sleep 0.1; done ;; " + OTHERWISE,
        "offline: {} did not finish a command within 6 s",
    ),
    # Which of our limits it meets first is a matter of the moment.
    "flooding-stderr": ("sh", 'yes >&2 &\nexec /bin/sh "$@"', FLOODS),
    "flooding-shell": ("sh", "exec yes", "offline: {} prints more than 1 MiB before its shell"),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("hostile")
    with World(root / "fleet", [NodePlan(name) for name in (*GOOD, *KINDS, "long-labels")], {}) as world:
        for name, (program, body, _) in KINDS.items():
            spoil(world.nodes[name], root / name, program, body)
        node = world.nodes["long-labels"]
        world.do(label, node)
        yield world


def spoil(node: SimulatedNode, folder: Path, program: str, body: str) -> None:
    """From now on a program of the node is another one, which knows the real one as $REAL."""
    real = node.env["PATH"].partition(":")[0]
    folder.mkdir()
    (folder / program).write_text(f"#!/bin/sh\nREAL={real}/{program}\n{body}\n")
    (folder / program).chmod(0o755)
    node.env["PATH"] = f"{folder}:{node.env['PATH']}"


def label(node: SimulatedNode) -> None:
    """Somebody's container with 5 MB in one label, one in a spec and one beside the claim, which is good."""
    labels = {TASK: new_task_id(time.time()), OWNER: "eve", GPUS: node.gpus.uuids[0], CONTROLLER: "x" * 5_000_000}
    labels |= {SPEC: "y" * 5_000_000, "note": "z" * 5_000_000}
    container = node.engine.create(Config("agentless-eve", DEFAULT_IMAGE, ["sleep", "600"], labels))
    node.engine.start(container)


@pytest.fixture(scope="module")
def controller(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, int, Path]]:
    """One in a process of its own: a client of it, its PID and its state folder."""
    root = tmp_path_factory.mktemp("controller")
    config, state = root / "config" / "agentless", root / "state"
    config.mkdir(parents=True)
    (config / "known_hosts").write_bytes(world.fleet.known_hosts.read_bytes())
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER_SCRIPT, str(state), str(world.fleet.inventory), str(writer)],
        env={**os.environ, "XDG_CONFIG_HOME": str(root / "config")},
        pass_fds=[writer],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(writer)
    try:
        with os.fdopen(reader) as answer:
            assert answer.read() == "ready"
        yield Client(state, None), process.pid, state
    finally:
        process.kill()
        process.communicate()


def until(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while missing := found():
        assert time.monotonic() < deadline, missing
        time.sleep(0.1)


def memory(pid: int) -> int:
    """The most that a process has had, in bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) << 10


def computed(pid: int) -> float:
    """For how many seconds a process has had a core."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_each_hostile_node_says_what_is_wrong_and_no_good_one_notices(controller: tuple[Client, int, Path]) -> None:
    """All that is taken of the controller is bounded: its memory, what it writes, and the time of everybody else."""
    client, pid, state = controller

    def unexplained() -> dict[str, str]:
        said = {node["name"]: f"{node['state']}: {node['reason']}" for node in client.get("/v1/nodes")}
        return {name: said[name] for name, (*_, why) in KINDS.items() if not re.match(why.format(name), said[name])}

    until(unexplained)
    body = {"targets": [f"{name}::0" for name in GOOD], "spec": {"command": ["true"], "image": DEFAULT_IMAGE}}
    ended = [client.wait(each["task"]["id"]) for each in client.post("/v1/tasks", body)]
    assert [task["exit_code"] for task in ended] == [0] * len(GOOD)
    assert not unexplained()
    assert memory(pid) < MEMORY
    assert computed(pid) < COMPUTED
    assert (state / "state.json").stat().st_size < STATE


def test_a_container_with_endless_labels_is_shown_holds_its_gpu_and_can_be_killed(
    world: World, controller: tuple[Client, int, Path]
) -> None:
    client, node = controller[0], world.nodes["long-labels"]

    def gpu() -> dict[str, Any]:
        return next((gpu for gpu in client.get("/v1/gpus") if gpu["node"] == node.name), {})

    until(lambda: gpu().get("state") != "allocated")
    (task,) = gpu()["tasks"]
    assert gpu()["owner"] == "eve"
    assert task in [each["id"] for each in client.get("/v1/tasks")]
    client.post(f"/v1/tasks/{task}/kill")
    until(lambda: world.do(lambda: [each for each in node.engine.containers.values() if each.live]))
    until(lambda: gpu().get("state") != "free")


async def test_one_observation_is_one_survey_whatever_is_in_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU that vanishes, or is found to be ill, is an event: to survey the node for each took minutes."""
    async with desk.running() as controller:
        link = controller.nodes.links["n1"]
        surveys = []
        real = registry.survey
        monkeypatch.setattr(registry, "survey", lambda nodes, *rest: surveys.append([*nodes]) or real(nodes, *rest))
        ill = tuple(replace(gpu, needs_reset=True) for gpu in link.observation.sample.gpus)
        link.cache.observe(replace(link.observation, sample=replace(link.observation.sample, gpus=ill)))
        assert surveys == [["n1"]]
        found = [event for _, event in controller.tasks.history.events(0, -1) if b'"event":"unhealthy"' in event]
        assert len(found) == len(ill) == 4


@pytest.mark.slow
async def test_a_node_that_says_something_else_at_every_sample_does_not_fill_the_history(desk: Desk) -> None:
    async with desk.running() as controller:
        link = controller.nodes.links["n1"]
        seen = link.observation
        for number in range(1000):
            sample = replace(seen.sample, processes=None, error=f"nvidia-smi ended with exit code {number}")
            link.cache.observe(replace(seen, sample=sample))
        events = controller.tasks.history.events(0, -1)
        assert sum(b'"state":"degraded"' in event for _, event in events) < 100
        assert controller.nodes.cluster().nodes["n1"].reason.endswith("exit code 999")
