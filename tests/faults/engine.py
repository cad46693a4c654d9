"""The node's Docker goes away, and containers do behind our back."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.faults.scene import Scene
from tests.lab import Node


def stopped(scene: Scene) -> None:
    """The node's Docker engine is stopped, as a service manager does, at a random moment of a submit, and started"""
    _away(scene, Node.stop_docker)


def killed(scene: Scene) -> None:
    """SIGKILL to the node's Docker engine at a random moment of a submit; then it is started"""
    _away(scene, Node.kill_docker)


def _away(scene: Scene, end: Callable[[Node], None]) -> None:
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for _ in scene.times(1, 30):
        scene.submit(who, "node1::1", "--", "sleep", "300")
        submit = scene.begin(who, "node1::0", "--", "sleep", "300")
        scene.amid(submit, 1.0)
        end(node)
        if scene.chance.random() < 0.5:
            scene.end(submit)
            node.start_docker()
        else:
            node.start_docker()
            scene.end(submit)
        scene.check()


def removed(scene: Scene) -> None:
    """`docker rm -f` of the task's container on the node, at a random moment of its submit, its run or its stop"""
    who = scene.person()
    node = scene.lab.nodes["node1"]
    for _ in scene.times(2, 100):
        remove = threading.Thread(target=_remove, args=(node, scene.chance.uniform(0, 0.5)))
        remove.start()
        done = scene.end(scene.begin(who, "node1::0", "--", "sleep", "300"))
        if done.code == 0:
            scene.heard(who("stop", done.out.strip(), "--grace", "0.1s", code=None))
        remove.join()
        scene.check()


def _remove(node: Node, seconds: float) -> None:
    """Once it is there, and so many seconds later; a task that never starts is not waited for."""
    there = 'id=$(docker ps -aq --filter label=agentless.task) && [ -n "$id" ]'
    node.sh(f"n=0; until {there} || [ $n = 99 ]; do n=$((n+1)); done; sleep {seconds}; docker rm -f $id")
