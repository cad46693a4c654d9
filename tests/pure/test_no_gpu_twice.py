"""Two controllers and strangers on the same nodes: no GPU is ever held twice."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentless.errors import IllegalMove
from agentless.model.containers.claim import labels_of
from agentless.model.containers.container import Container
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuProcess
from agentless.model.tasks.task import Placement, Task
from agentless.model.tasks.task_event import (
    Assigned,
    Exited,
    Froze,
    Launched,
    LaunchFailed,
    LostContact,
    StopAsked,
    Vanished,
)
from agentless.rules.scheduling.plan import plan
from agentless.rules.scheduling.policies import pack
from agentless.rules.tasks.lifecycle import apply
from tests.pure.build import CID, NOW, cluster, container, process, seen, task, uuid

NODES = {"node1": 3, "node2": 2}


def ours_of(mine: Task) -> Container:
    assert mine.placement
    return container(mine, labels=labels_of(mine, mine.placement, "c1"))


class Cluster(RuleBasedStateMachine):
    """Two controllers and strangers on the same nodes: no GPU is ever held twice.

    The second controller is seen by its containers only. Samples may fail at any time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.mine: dict[str, Task] = {}
        self.theirs: dict[str, tuple[Container, Placement]] = {}
        self.foreign: set[tuple[str, int]] = set()
        self.unreadable: set[str] = set()

    def observe(self, node: str) -> Observation:
        processes: tuple[GpuProcess, ...] = tuple(process(n, index) for n, index in self.foreign if n == node)
        containers = [found for found, at in self.theirs.values() if at.node == node]
        known = None if node in self.unreadable else processes
        return seen(node, NODES[node], known, containers)

    def submit(self, target: str, *, mine: bool) -> Task | None:
        tasks = tuple(self.mine.values()) if mine else ()
        others = {node: self.observe(node) for node in NODES}
        if not mine:  # what the other controller sees of us
            for node, observation in others.items():
                ours = [ours_of(t) for t in self.mine.values() if t.live and t.node == node]
                engine = observation.engine
                assert engine is not None
                others[node] = seen(
                    node, NODES[node], observation.sample.processes, [*(engine.containers or ()), *ours]
                )
        self.count += 1
        new = task(f"t{self.count}", target, "pending", owner="me" if mine else "them")
        place = plan(cluster(others, tasks), [new], NOW, {None: pack.cost}).starts.get(new.id)
        return apply(new, Assigned(place), NOW) if place else None

    exact = st.builds(
        "{}::{}".format,
        st.sampled_from(list(NODES)),
        st.lists(st.integers(0, 2), min_size=1, unique=True).map(lambda gpus: ",".join(map(str, gpus))),
    )
    places = exact | st.sampled_from(["1x", "2x", "3x"])

    @rule(where=places)
    def i_submit(self, where: str) -> None:
        if started := self.submit(where, mine=True):
            self.mine[started.id] = started

    @rule(where=places)
    def they_submit(self, where: str) -> None:
        if started := self.submit(where, mine=False):
            assert started.placement
            labels = labels_of(started, started.placement, "c2")
            self.theirs[started.id] = (container(started, labels=labels), started.placement)

    @rule(
        data=st.data(),
        event=st.sampled_from(
            [
                Launched(CID),
                LaunchFailed("no"),
                Exited(0),
                Froze(),
                Vanished("gone"),
                LostContact("cut"),
                StopAsked("stop"),
            ]
        ),
    )
    def something_happens_to_mine(self, data: st.DataObject, event: Any) -> None:
        if live := sorted(name for name, mine in self.mine.items() if mine.live):
            chosen = data.draw(st.sampled_from(live))
            with contextlib.suppress(IllegalMove):
                self.mine[chosen] = apply(self.mine[chosen], event, NOW)

    @rule(data=st.data())
    def theirs_ends(self, data: st.DataObject) -> None:
        if self.theirs:
            del self.theirs[data.draw(st.sampled_from(sorted(self.theirs)))]

    @rule(node=st.sampled_from(list(NODES)), index=st.integers(0, 1))
    def a_stranger_comes_or_goes(self, node: str, index: int) -> None:
        held = {u for t in self.mine.values() if t.live for u in t.placement.gpu_uuids}
        held |= {u for _, at in self.theirs.values() for u in at.gpu_uuids}
        if uuid(node, index) not in held:
            self.foreign ^= {(node, index)}

    @rule(node=st.sampled_from(list(NODES)))
    def processes_become_unreadable_or_readable(self, node: str) -> None:
        self.unreadable ^= {node}

    @invariant()
    def no_gpu_is_held_twice_or_while_a_stranger_uses_it(self) -> None:
        held = [u for t in self.mine.values() if t.live and t.placement for u in t.placement.gpu_uuids]
        held += [u for _, at in self.theirs.values() for u in at.gpu_uuids]
        assert len(held) == len(set(held))
        assert not set(held) & {uuid(node, index) for node, index in self.foreign}


TestNoGpuTwice = Cluster.TestCase
TestNoGpuTwice.settings = settings(max_examples=80, stateful_step_count=20)
