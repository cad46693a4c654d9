"""Slices of a GPU in MIG mode on a real node, whose nvidia-smi says what an H100 and an H200 said."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from tests.lab import Node
from tests.mig import Capture
from tests.real.cli import Cli, inspect, until
from tests.real.test_claims import _bobs, bob

__all__ = ["_bobs", "bob"]  # fixtures

Divide = Callable[..., Capture]


@pytest.fixture
def divide(agentless: Cli, node: Node) -> Divide:
    """Gives the node a GPU in MIG mode, and waits until the controller has seen it."""
    mark = uuid.uuid4().hex[:12]

    def make(card: str = "h100", *, load: str = "idle", without: str = "", **pids: int) -> Capture:
        capture = Capture(card, mark)
        lines = [line for line in capture.list().split("\n") if not without or without not in line]
        table = capture.table(load)
        for said, pid in pids.items():
            table = table.replace(f"{said[1:]:>16}", f"{pid:>16}")
        node.set_gpus(capture.gpus(load))
        node.say_slices("\n".join(lines) + "\n", table + "\n")
        number = len(lines) - (not lines[-1])
        until(lambda: len(agentless.get("/v1/gpus", node="node1")) == number)
        return capture

    return make


def slices(cli: Cli) -> dict[str, dict]:
    return {gpu["number"]: gpu for gpu in cli.get("/v1/gpus", node="node1")}


def test_the_smallest_slice_that_fits_is_given_by_its_uuid(agentless: Cli, node: Node, divide: Divide) -> None:
    divide()
    task = agentless.submit("1x:10G", "--", "sleep", "300")
    shown = until(lambda: (it := agentless.task(task))["state"] == "running" and it)
    whole, given = slices(agentless)[0], slices(agentless)["0/2"]
    assert (shown["node"], shown["gpus"], shown["gpu_uuids"]) == ("node1", ["0/2"], [given["uuid"]])
    assert (given["state"], given["task"], given["profile"], given["parent"]) == (
        "allocated", task, "1g.10gb", whole["uuid"],
    )  # fmt: skip
    assert (whole["state"], whole["reason"]) == (
        "partitioned",
        f"in MIG mode: slice 0/2 is held by task {task} of {shown['owner']}, 3 free; ask for a slice, like node1::0/0",
    )
    found = inspect(node, task)
    env = dict(each.partition("=")[::2] for each in found["Config"]["Env"])
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["AGENTLESS_GPUS"]) == (given["uuid"], "0/2")
    label = found["Config"]["Labels"]["agentless.gpus"]
    assert label == f"{whole['uuid']},{whole['uuid']}_{given['uuid']}"
    assert agentless.node("node1")["gpus"] == 4
    assert agentless.node("node1")["gpus_free"] == 3


def test_two_slices_of_a_gpu_are_two_tasks_and_nobody_gets_the_whole(
    agentless: Cli, bob: Cli, node: Node, divide: Divide
) -> None:
    """A second controller, which knows nothing of the first, gets another slice, and not the GPU."""
    divide()
    task = agentless.submit("node1::0/2", "--", "sleep", "300")
    until(lambda: agentless.task(task)["state"] == "running")
    until(lambda: slices(bob).get("0/2", {}).get("state") == "allocated")
    owner = agentless.task(task)["owner"]
    refused = bob("submit", "node1::0", "--no-queue", "--", "true", code=3)
    assert refused.err == (
        f"agentless: no node can run node1::0: GPU 0 is in MIG mode: slice 0/2 is held by task {task} of {owner}, 3 "
        "free; ask for a slice, like node1::0/0\n"
    )
    refused = bob("submit", "node1::0/2", "--no-queue", "--", "true", code=3)
    assert refused.err == f"agentless: node1::0/2: GPU 0/2 is allocated: held by task {task} of {owner}\n"
    other = bob.submit("--gpus", "1", "--gpu-type", "1g.10gb", "--", "sleep", "300")
    assert until(lambda: (it := bob.task(other))["state"] == "running" and it)["gpus"] == ["0/3"]


def test_a_slice_that_is_removed_under_its_task_is_given_to_nobody(agentless: Cli, node: Node, divide: Divide) -> None:
    divide()
    task = agentless.submit("node1::0/3", "--", "sleep", "300")
    until(lambda: agentless.task(task)["state"] == "running")
    divide(without="Device  3")
    until(lambda: "still holds a slice that was removed" in slices(agentless)[0]["reason"])
    owner = agentless.task(task)["owner"]
    assert slices(agentless)[0]["reason"].startswith(
        f"in MIG mode: task {task} of {owner} still holds a slice that was removed, 3 unknown; "
    )
    events = agentless("events", "--since", "1h", "--json").out
    assert "GPU 0/3: disappeared; its GPU was reconfigured" in events
    refused = agentless("submit", "node1::0/3", "--no-queue", "--", "true", code=3)
    assert refused.err == "agentless: no node can run node1::0/3: GPU 0 of node1 has no slice 0/3, only 0/0-2\n"
    assert agentless.task(task)["state"] == "running"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("card", "pid", "used", "smallest"), [("h100", "_21180", "0/0", "0/2"), ("h200", "_12249", "0/1", "0/3")]
)
def test_who_uses_a_slice_is_seen_and_the_others_are_given(
    agentless: Cli, node: Node, divide: Divide, card: str, pid: str, used: str, smallest: str
) -> None:
    """The driver names only the GPU of a process in its list, and the instances in its table."""
    divide(card)
    process = node.add_process(0, ["sleep", "300"], memory_mib=2048)
    divide(card, load="load", **{pid: node.pid(process)})
    until(lambda: slices(agentless)[used]["state"] == "foreign")
    assert f"process {node.pid(process)} (sleep 300, 2 GiB)" in slices(agentless)[used]["reason"]
    free = [number for number, gpu in slices(agentless).items() if gpu["state"] == "free"]
    assert free == [number for number in slices(agentless) if number not in (0, used)]
    task = agentless.submit("1x:10G", "--", "sleep", "300")
    assert until(lambda: (it := agentless.task(task))["state"] == "running" and it)["gpus"] == [smallest]


@pytest.mark.slow
def test_doctor_tries_each_slice(agentless: Cli, divide: Divide) -> None:
    divide()
    found = {check["check"]: check for check in agentless.json("doctor", "--run", "node1", code=None)}
    assert (found["mig"]["verdict"], found["mig"]["seen"]) == ("ok", "GPU 0: 3g.40gb, 2g.20gb, 2 x 1g.10gb")
    runs = {name: check["verdict"] for name, check in found.items() if name.startswith("run ")}
    assert runs == {"run 0": "skipped", **{f"run 0/{part}": "ok" for part in range(4)}}
