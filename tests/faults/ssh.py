"""The way to a node breaks in the middle of a launch: its sshd, its connections."""

from __future__ import annotations

import os
import threading
import time

from tests.faults.held_lock import HeldLock
from tests.faults.scene import Scene, shown
from tests.lab import Node
from tests.real.cli import until

TASK = ("node1::0", "--", "sleep", "300")


def connection_at_launch(scene: Scene) -> None:
    """SIGKILL to the node's sshd process of our connection while a launch waits for the node's lock"""
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for _ in scene.times(1, 50):
        with HeldLock() as lock:
            submit = scene.begin(who, *TASK)
            until(lambda: shown(who, "assigning"))
            node.kill_connections()
            if scene.chance.random() < 0.5:
                time.sleep(scene.chance.uniform(0, 2))  # by then there may be a new connection
            lock.release()
            scene.end(submit)
            scene.check()


def late_launch(scene: Scene) -> None:
    """The same, and the launch of the dead connection gets the lock only after its task was removed by its user"""
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for _ in scene.times(2, 50):
        with HeldLock() as lock:
            submit = scene.begin(who, *TASK)
            until(lambda: _waiting(node) == 1)
            node.kill_connections()
            until(lambda: _waiting(node) == 2)
            lock.release()  # one of both gets it, and is met by us again before the other one can have it
            until(lambda: node.sh("docker ps --quiet").stdout)
            lock.take()
            task = scene.end(submit).out.strip()
            who("rm", "--force", task)
            scene.judge.release(task)
        until(lambda: _waiting(node) == 0)
        scene.check()


def _waiting(node: Node) -> int:
    """How many launches wait for the node's lock, or have it: shells that have `/` open for it."""
    return [_opened(pid) for pid, command in node.leftovers() if command == "sh"].count("/")


def _opened(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/9")
    except OSError:
        return ""


def connection_at_random(scene: Scene) -> None:
    """SIGKILL to the node's sshd process of our connection at a random moment of a submit"""
    who = scene.person()
    for _ in scene.times(1, 100):
        submit = scene.begin(who, *TASK)
        scene.amid(submit, 0.8)
        scene.lab.nodes["node1"].kill_connections()
        scene.end(submit)
        scene.check()


def server(scene: Scene) -> None:
    """SIGKILL to the node's sshd with all its connections at a random moment of a submit; 0 to 3 s later it is back"""
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for _ in scene.times(1, 50):
        submit = scene.begin(who, *TASK)
        scene.amid(submit, 0.8)
        node.stop_sshd()
        back = threading.Timer(scene.chance.uniform(0, 3), node.start_sshd)
        back.start()
        scene.end(submit)
        back.join()
        scene.check()
