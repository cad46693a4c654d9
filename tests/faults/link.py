"""The cable is pulled during a launch, a run, an end and a log that is followed, all at once."""

from __future__ import annotations

import time

from tests.faults.held_lock import HeldLock
from tests.faults.scene import WAITING, Scene, go, shown
from tests.real.cli import until

COUNTING = ("sh", "-c", "n=0; while :; do n=$((n+1)); echo $n; sleep .2; done")


def cut(scene: Scene) -> None:
    """The node's link is down for 60 s during a launch, two runs, one of which ends meanwhile, and a `logs -f`"""
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for _ in scene.times(1, 5):
        ending = scene.submit(who, "node1::1", "--", *WAITING)
        counting = scene.submit(who, "node1", "--", *COUNTING)
        following = who.start("logs", "-f", counting)
        assert following.stdout.readline() == "1\n"
        with HeldLock() as lock:
            submit = scene.begin(who, "node1::0", "--", "sleep", "300")
            until(lambda: shown(who, "assigning"))
            node.cut()
            lock.release()
            go(node, ending)
            time.sleep(2 if scene.quick else 60)
            node.restore()
            scene.end(submit)
        scene.check()
        who("kill", counting)
        numbers = [int(line) for line in following.stdout]  # not `communicate`, which knows nothing of the first line
        said = scene.finish(following)
        whole = numbers == list(range(2, len(numbers) + 2))
        scene.expect(whole and said.code in (0, 4), f"logs -f ended with {said} after {numbers[-3:]}")
