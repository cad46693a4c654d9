"""Where a task goes, or every reason why it goes nowhere. And: no GPU twice."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentless.errors import AgentlessError, IllegalMove, Refused, Unreachable
from agentless.model.cluster import Observation
from agentless.model.container import Container
from agentless.model.event import Assigned, Exited, Froze, Launched, LaunchFailed, LostContact, StopAsked, Vanished
from agentless.model.gpu import GpuProcess, GpuSample
from agentless.model.node import HostFacts
from agentless.model.target import Target, parse_target
from agentless.model.task import Placement, Task
from agentless.rules.lifecycle import apply
from agentless.rules.place import place
from tests.pure.build import CID, NOW, cluster, container, process, reading, seen, spec, task, uuid


def refusal(target: str, observation: Observation, *tasks: Task, exclude: tuple[int, ...] = (), **wanted: Any) -> str:
    with pytest.raises(Refused) as caught:
        place(cluster(observation, tasks, exclude_gpus=exclude), parse_target(target), spec(**wanted))
    assert caught.value.exit_code == 3
    return str(caught.value)


def placed(target: str, observation: Observation | None = None, **wanted: Any) -> Placement:
    return place(cluster(observation or seen()), parse_target(target), spec(**wanted))


def test_free_gpus_are_given_by_uuid_in_the_order_that_was_asked() -> None:
    assert placed("node1::1,0") == Placement("node1", (1, 0), (uuid("node1", 1), uuid("node1", 0)))


def test_a_target_without_gpus_gets_none() -> None:
    assert placed("node1") == Placement("node1")


def test_a_numa_node_becomes_its_cpus() -> None:
    assert placed("node1:1::0") == Placement("node1", (0,), (uuid("node1", 0),), "16-31", 1)


def test_a_node_with_busy_gpus_still_takes_a_task_without_gpu() -> None:
    assert placed("node1", seen(processes=(process("node1", 0),))) == Placement("node1")


@pytest.mark.parametrize("target", ["node1", "node1::0"])
def test_a_node_that_does_not_answer_is_no_refusal_but_exit_4(target: str) -> None:
    with pytest.raises(Unreachable) as caught:
        placed(target, seen(error="no route to host"))
    assert str(caught.value) == "node1 cannot be reached: no route to host"
    assert caught.value.exit_code == 4


def test_a_held_gpu_is_refused_with_its_holder() -> None:
    assert refusal("node1::0", seen(), task("t7")) == "node1::0: GPU 0 is allocated: held by task t7 of me@here"


def test_a_gpu_that_another_controller_holds_is_refused_with_its_holder() -> None:
    theirs = seen(containers=[container(task("t9", owner="ann@there"))])
    assert "GPU 0 is allocated: held by task t9 of ann@there" in refusal("node1::0,1", theirs)


def test_a_gpu_with_a_foreign_process_is_refused_with_its_user() -> None:
    foreign = seen(processes=(process("node1", 1),))
    assert refusal("node1::1", foreign) == (
        "node1::1: GPU 1 is foreign: used by bob's process 4711 (python train.py, 2 GiB) (--share to run beside it)"
    )


def test_a_gpu_with_a_foreign_process_is_given_to_who_wants_to_share_it() -> None:
    foreign = cluster(seen(processes=(process("node1", 1),)))
    assert place(foreign, parse_target("node1::1"), spec(share=True)).gpu_uuids == (uuid("node1", 1),)


@pytest.mark.parametrize("changes", [{"processes": None}, {"containers": [container(task(target="node1::1"))]}])
def test_sharing_is_not_with_tasks_and_not_with_the_unknown(changes: Any) -> None:
    with pytest.raises(Refused):
        place(cluster(seen(**changes)), parse_target("node1::1"), spec(share=True))


def test_an_excluded_gpu_is_refused() -> None:
    assert refusal("node1::0", seen(), exclude=(0,)) == "node1::0: GPU 0 is excluded: excluded by the inventory"


def test_a_gpu_with_unknown_memory_is_refused() -> None:
    unknown = seen(sample=GpuSample((reading("node1", 0, memory_used_mib=None),)))
    assert refusal("node1::0", unknown) == "node1::0: GPU 0 is unknown: its memory cannot be read"


def test_a_gpu_with_unknown_processes_is_refused() -> None:
    assert refusal("node1::0", seen(processes=None)) == "node1::0: GPU 0 is unknown: its processes cannot be read"


@pytest.mark.parametrize("target", ["node1", "node1::0", "node1::7"])
def test_a_degraded_node_is_refused_once_with_its_reason(target: str) -> None:
    hung = seen(sample=GpuSample((reading("node1", 0),), None, "nvidia-smi did not answer in 10 s"))
    assert refusal(target, hung) == f"{target}: node1 is degraded: nvidia-smi did not answer in 10 s"


@pytest.mark.parametrize(("gpus", "have"), [(0, "no GPU"), (1, "only GPU 0"), (4, "GPUs 0-3")])
def test_a_gpu_that_is_not_there_is_refused_with_what_is(gpus: int, have: str) -> None:
    assert refusal("node1::7", seen(gpus=gpus)) == f"node1::7: GPU 7 is not there (node1 has {have})"


def test_a_numa_node_that_is_not_there_is_refused_with_what_is() -> None:
    assert refusal("node1:5", seen()) == "node1:5: NUMA node 5 is not there (node1 has 0, 1)"
    assert refusal("node1:0", seen(host=HostFacts(4, 1024))) == "node1:0: NUMA node 0 is not there (node1 has none)"
    assert refusal("node1:0", seen(host=None)) == "node1:0: NUMA node 0 is not there (node1 has none)"


def test_more_cores_or_memory_than_the_node_has_is_refused() -> None:
    assert refusal("node1", seen(), cores=64.0) == "node1: 64 cores are asked for and node1 has 32"
    assert "the 131,072 MiB that node1 has" in refusal("node1", seen(), memory=2**40)


@pytest.mark.parametrize("wanted", [{"cores": 32.0}, {"memory": 2**37}, {"cores": 0.1, "memory": 2**20}])
def test_as_many_cores_and_as_much_memory_as_the_node_has_is_fine(wanted: dict[str, Any]) -> None:
    assert placed("node1", **wanted)


def test_limits_of_a_node_that_is_not_known_are_not_guessed() -> None:
    assert placed("node1", seen(host=HostFacts()), cores=64.0, memory=2**40)


def test_all_reasons_are_given_at_once() -> None:
    sentence = refusal("node1:5::0,1,2", seen(processes=(process("node1", 1),)), task("t7"), cores=64.0)
    for part in ("GPU 0 is allocated", "GPU 1 is foreign", "GPU 2 is not there", "NUMA node 5", "64 cores"):
        assert part in sentence


NODES = {"node1": 3, "node2": 2}


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

    def submit(self, target: Target, *, mine: bool) -> Task | None:
        tasks = tuple(self.mine.values()) if mine else ()
        others = {node: self.observe(node) for node in NODES}
        if not mine:  # what the other controller sees of us
            for node, observation in others.items():
                ours = [container(t) for t in self.mine.values() if t.live and t.target.node == node]
                engine = observation.engine
                assert engine is not None
                others[node] = seen(
                    node, NODES[node], observation.sample.processes, [*(engine.containers or ()), *ours]
                )
        self.count += 1
        new = task(f"t{self.count}", str(target), "pending", owner="me" if mine else "them")
        try:
            return apply(new, Assigned(place(cluster(others, tasks), target, new.spec)), NOW)
        except AgentlessError:
            return None

    places = st.builds(
        Target, st.sampled_from(list(NODES)), st.none(), st.lists(st.integers(0, 2), min_size=1, unique=True).map(tuple)
    )

    @rule(where=places)
    def i_submit(self, where: Target) -> None:
        if started := self.submit(where, mine=True):
            self.mine[started.id] = started

    @rule(where=places)
    def they_submit(self, where: Target) -> None:
        if started := self.submit(where, mine=False):
            assert started.placement
            self.theirs[started.id] = (container(started), started.placement)

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
TestNoGpuTwice.settings = settings(max_examples=150, stateful_step_count=20)
