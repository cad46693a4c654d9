"""`nvidia-smi` hangs, lies, or has lost a GPU: a task of one's own runs on, and nobody gets a GPU by it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults.scene import WAITING, Scene, go
from tests.lab import Node
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
