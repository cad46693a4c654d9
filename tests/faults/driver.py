"""`nvidia-smi` hangs, lies, or has lost a GPU: a task of one's own runs on, and nobody gets a GPU by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.faults.scene import WAITING, Scene, go
from tests.lab import Node
from tests.lab.amd import AmdCard, AmdCards
from tests.mig import Capture
from tests.real.cli import Cli, until

LIES = (
    "text\n\x01\x02 %%% not a table, at all;;;\n",
    "text\n0, GPU-",
    "text\n",
    "text\nNo devices were found\n",
    "text\nUSER PID %CPU\nroot 1 0.0\n",
    "exit 255\n",
    "exit 9\nUnable to determine the device handle for GPU 0000:01:00.0: Unknown Error\n",
)


MISMATCH = "exit 18\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.65\n"


def hangs(scene: Scene) -> None:
    """`nvidia-smi` on the node does not end from one sample to the next"""
    _unreadable(scene, ["hang"] * 5)


def lies(scene: Scene) -> None:
    """It prints garbage, half a line, nothing, another table, or fails with and without words"""
    _unreadable(scene, LIES[:1] if scene.quick else LIES * 3)


def loses(scene: Scene) -> None:
    """It shows one GPU less than in the sample before, and the index of the other one has changed"""
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for _ in scene.times(1, 10):
        held = scene.submit(who, "node1::1", "--", *WAITING)
        node.set_gpus([{"uuid": node.gpu_uuids[1]}])
        until(lambda: "unhealthy" in [gpu["state"] for gpu in who.get("/v1/gpus", node="node1")])
        done = scene.end(scene.begin(who, "node1::0", "--", "true"))
        scene.expect(done.code == 3 and held in done.err, f"a submit to the held GPU by its new index said {done}")
        done = scene.end(scene.begin(who, "node1::1", "--", "true"))
        scene.expect(done.code == 3, f"a submit to the GPU that is gone said {done}")
        _ends(scene, who, node, held)
        node.set_gpus(2)
        who("nodes", "resume", "node1")


def reconfigures(scene: Scene) -> None:
    """The slice of a task is removed from its GPU, and then MIG mode is turned off"""
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for number in scene.times(1, 10):
        capture = Capture("h100", f"{number + 1:012x}")
        (whole,) = capture.gpus("idle")
        node.say_slices(capture.list() + "\n", capture.table("idle") + "\n")
        node.set_gpus([whole])
        until(lambda: len(who.get("/v1/gpus", node="node1")) == 5)
        held = scene.submit(who, "node1::0/2", "--", *WAITING)
        left = [line for line in capture.list().split("\n") if "Device  2" not in line]
        node.say_slices("\n".join(left) + "\n", capture.table("idle") + "\n")
        until(lambda: "still holds a slice" in who.get("/v1/gpus", node="node1")[0]["reason"])
        for target in ("node1::0/2", "node1::0"):
            done = scene.end(scene.begin(who, target, "--", "true"))
            scene.expect(done.code == 3, f"a submit to {target} said {done}")
        node.set_gpus([{**whole, "mig.mode.current": "Disabled"}])
        until(lambda: [gpu["state"] for gpu in who.get("/v1/gpus", node="node1")] == ["allocated"])
        done = scene.end(scene.begin(who, "node1::0", "--", "true"))
        scene.expect(done.code == 3 and held in done.err, f"a submit to the GPU that is whole again said {done}")
        _ends(scene, who, node, held)
        node.set_gpus(2)
        until(lambda: len(who.get("/v1/gpus", node="node1")) == 2)


def is_updated(scene: Scene) -> None:
    """The driver is updated under a task: `nvidia-smi` does not fit the loaded modules, until they are loaded anew"""
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for _ in scene.times(1, 10):
        held = scene.submit(who, "node1::0", "--", *WAITING)
        node.fault(MISMATCH)
        until(lambda: "free" not in [gpu["state"] for gpu in who.get("/v1/gpus", node="node1")])
        done = scene.end(scene.begin(who, "node1::1", "--", "true"))
        words = "the NVIDIA driver was updated, but the old one is still loaded; reboot the node"
        scene.expect(done.code == 3 and words in done.err, f"a submit to a node with half an update said {done}")
        _ends(scene, who, node, held)
        node.set_gpus([{"uuid": uuid, "driver_version": "580.65.06"} for uuid in node.gpu_uuids[:2]])
        node.fault(None)
        until(lambda: [gpu["driver"] for gpu in who.get("/v1/gpus", node="node1")] == ["580.65.06"] * 2)
        until(lambda: who.node("node1")["state"] == "online")
        scene.submit(who, "node1::0", "--", "true")
        node.set_gpus(2)


def loses_amd(scene: Scene) -> None:
    """An AMD card disappears under a task, and its neighbour has its index"""
    who = scene.person()
    node = scene.lab.nodes["node2"]
    cards = AmdCards(node)
    try:
        for _ in scene.times(1, 10):
            _lose_one(scene, who, node, cards)
    finally:
        cards.close()


def _lose_one(scene: Scene, who: Cli, node: Node, cards: AmdCards) -> None:
    one, other = AmdCard("0000:83:00.0", "79ccd55167a2124a", 128), AmdCard("0000:a3:00.0", "04edfb117a17a07d", 129)
    cards.set(one, other)
    _free(who, 4)
    held = scene.submit(who, "node2::2", "--", *WAITING)
    cards.lose(one, 1)
    (gone,) = until(lambda: [gpu for gpu in _gpus(who) if gpu["state"] == "unhealthy"])
    says = (gone["uuid"], gone["reason"].partition(" (")[0])
    scene.expect(says == (f"AMD-{one.unique}", "disappeared"), f"of the card that is gone is said {says}")
    until(lambda: [gpu["state"] for gpu in _gpus(who) if gpu["uuid"] == f"AMD-{other.unique}"] == ["free"])
    done = scene.end(scene.begin(who, "node2::2,3", "--", "true"))
    scene.expect(done.code == 3, f"a submit to two cards of which one is gone said {done}")
    scene.heard(who("wait", scene.submit(who, "node2::2", "--", "true")))  # the card that is left
    _ends(scene, who, node, held)
    cards.set()
    _free(who, 2)


def _gpus(who: Cli) -> list[dict[str, Any]]:
    return who.get("/v1/gpus", node="node2")


def _free(who: Cli, count: int) -> None:
    """Wait until so many GPUs of node2 are free, and none is kept out any more since it was away."""

    def is_so() -> bool:
        states = [gpu["state"] for gpu in _gpus(who)]
        if "unhealthy" in states or who.node("node2")["state"] == "degraded":
            who("nodes", "resume", "node2")
        return states.count("free") == count and "unhealthy" not in states

    until(is_so)


def _unreadable(scene: Scene, faults: Sequence[str]) -> None:
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for number in scene.times(len(faults), len(faults)):
        held = scene.submit(who, "node1::0", "--", *WAITING)
        node.fault(faults[number])
        until(lambda: "free" not in [gpu["state"] for gpu in who.get("/v1/gpus", node="node1")])
        done = scene.end(scene.begin(who, "node1::1", "--", "true"))
        scene.expect(done.code == 3, f"a submit to a GPU that cannot be read said {done}")
        _ends(scene, who, node, held)
        node.fault(None)
        until(lambda: who.node("node1")["state"] == "online")
        who("nodes", "resume", "node1")  # a lie may have said that a GPU is lost, which is not believed to be over


def _ends(scene: Scene, who: Cli, node: Node, task: str) -> None:
    """It runs, and ends as it wants to."""
    scene.expect(who.task(task)["state"] == "running", f"{task} does not run any more")
    go(node, task)
    done = scene.heard(who("wait", task, code=None))
    scene.expect(done.code == 7, f"wait said {done}")
    scene.check()
