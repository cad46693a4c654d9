"""Shares of a GPU, whatever comes: never too many, never with one who is unwilling, never over its memory."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentless.errors import IllegalMove
from agentless.model.nodes.cluster import Cluster, Observation
from agentless.model.nodes.gpu import GpuSample
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.task import Placement, Running, Task
from agentless.model.tasks.task_event import Assigned, Exited, Launched, LaunchFailed, LostContact
from agentless.rules.explain.obstacles import refusal
from agentless.rules.scheduling.plan import plan
from agentless.rules.scheduling.policies import pack
from agentless.rules.tasks.lifecycle import apply
from tests.pure.build import CID, NOW, cluster, reading, seen, spec
from tests.pure.test_gpu_share import boxed, on_gpu, shares
from tests.pure.test_plan import look, wish

limits = st.none() | st.integers(1, 300).map(float)
terms = st.just({}) | st.builds(shares, st.integers(2, 4), st.sampled_from([1, 4, 11, 12]))


@st.composite
def busy_nodes(draw: st.DrawFn) -> Cluster:
    """A node with some GPUs, on which some tasks are that were let in."""
    count, there = draw(st.integers(1, 3)), list[Task]()
    for number in range(draw(st.integers(0, 6))):
        new = on_gpu(
            f"t{number}",
            f"node1::{draw(st.integers(0, count - 1))}",
            draw(st.integers(0, 50)),
            draw(limits),
            **draw(terms),
        )
        if not _wrong([*there, new]):
            there.append(new)
    used = st.sampled_from([1, 1, 12000])
    sample = GpuSample(tuple(reading("node1", index, memory_used_mib=draw(used)) for index in range(count)))
    return cluster(seen(sample=sample), tuple(there))


@st.composite
def queues(draw: st.DrawFn) -> list[Task]:
    return [
        wish(f"q{n}", f"{draw(st.integers(1, 2))}x", draw(limits), needs=draw(terms))
        for n in range(draw(st.integers(0, 8)))
    ]


def _wrong(tasks: list[Task]) -> str:
    """What is wrong with these tasks being where they are at one moment; empty when nothing is."""
    holders: dict[str, list[Needs]] = {}
    for each in tasks:
        for gpu in each.placement.gpu_uuids if each.placement else ():
            holders.setdefault(gpu, []).append(each.spec.needs)
    for gpu, all_needs in holders.items():
        if len(all_needs) > min(needs.gpu_share for needs in all_needs):
            return f"{len(all_needs)} tasks are on {gpu}"
        if len(all_needs) > 1 and sum(needs.gpu_memory or 0 for needs in all_needs) > 23034 << 20:
            return f"{gpu} has not so much memory"
    return ""


@given(busy_nodes(), queues())
def test_there_is_a_reason_exactly_when_it_does_not_start(on: Cluster, queue: list[Task]) -> None:
    for one in queue:
        assert (refusal(on, one.spec) is None) == (one.id in look(on, one).starts)


@settings(deadline=None)
@given(busy_nodes(), queues())
def test_no_gpu_has_too_many_at_any_moment_of_the_plan(on: Cluster, queue: list[Task]) -> None:
    """What runs, what starts and what is promised, over all the future that is known."""
    found = look(on, *queue)
    spans = []
    for held in on.nodes["node1"].allocations:
        needs = Needs(gpus=1, gpu_share=held.sharing.limit, gpu_memory=held.sharing.floor)
        end = held.ends_at if held.ends_at is None else max(held.ends_at, NOW + 1)
        spans.append((NOW, end, held.gpu_uuids, needs))
    for one in queue:
        start, uuids = NOW, found.starts[one.id].gpu_uuids if one.id in found.starts else ()
        if promise := found.promises.get(one.id):
            if promise.start is None:
                continue
            start, uuids = promise.start, promise.gpu_uuids
        length = one.spec.terms.time_limit
        spans.append((start, None if length is None else start + length, uuids, one.spec.needs))
    for moment in {begin for begin, *_ in spans}:
        there = [
            replace(wish("x"), spec=spec(needs=needs), status=Running(Placement("node1", (), uuids), CID, NOW))
            for begin, end, uuids, needs in spans
            if begin <= moment and (end is None or moment < end)
        ]
        assert _wrong(there) == ""


@settings(deadline=None)
@given(busy_nodes(), queues())
def test_who_comes_later_and_shares_changes_nothing_for_those_before(on: Cluster, queue: list[Task]) -> None:
    """Sharing is no way to overtake."""
    whole = look(on, *queue)
    for length in range(len(queue)):
        part = look(on, *queue[:length])
        before = {one.id for one in queue[:length]}
        assert part.starts == {one: at for one, at in whole.starts.items() if one in before}
        assert part.promises == {one: at for one, at in whole.promises.items() if one in before}


NODES = {"node1": 2, "node2": 1}


class Sharers(RuleBasedStateMachine):
    """Two controllers that know each other's containers only: never too many on a GPU, nor one who is unwilling."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.desks: dict[str, dict[str, Task]] = {"c1": {}, "c2": {}}

    def observe(self, node: str, other: str) -> Observation:
        there = [each for each in self.desks[other].values() if each.live and each.node == node]
        return seen(node, NODES[node], (), [boxed(each, other) for each in there])

    @rule(
        desk=st.sampled_from(["c1", "c2"]),
        where=st.sampled_from(["1x", "2x", "node1::0", "node1::1,0", "node2::0"]),
        needs=terms,
    )
    def submit(self, desk: str, where: str, needs: dict[str, Any]) -> None:
        self.count += 1
        other = "c2" if desk == "c1" else "c1"
        new = wish(f"t{self.count}", where, needs=needs)
        on = cluster({node: self.observe(node, other) for node in NODES}, tuple(self.desks[desk].values()))
        if place := plan(on, [new], NOW, {None: pack.cost}).starts.get(new.id):
            self.desks[desk][new.id] = apply(new, Assigned(place), NOW)

    @rule(
        data=st.data(),
        desk=st.sampled_from(["c1", "c2"]),
        event=st.sampled_from([Launched(CID), LaunchFailed("no"), Exited(0), LostContact("cut")]),
    )
    def something_happens(self, data: st.DataObject, desk: str, event: Any) -> None:
        if live := sorted(name for name, one in self.desks[desk].items() if one.live):
            chosen = data.draw(st.sampled_from(live))
            with contextlib.suppress(IllegalMove):
                self.desks[desk][chosen] = apply(self.desks[desk][chosen], event, NOW)

    @invariant()
    def nobody_has_too_little(self) -> None:
        assert _wrong([one for desk in self.desks.values() for one in desk.values() if one.live]) == ""


TestSharers = Sharers.TestCase
TestSharers.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
