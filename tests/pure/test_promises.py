"""When those who wait will start: what is promised is kept, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node import HostFacts
from agentless.model.tasks.task import Running, Task
from agentless.rules.scheduling.plan import Plan, plan
from tests.pure.build import CID, NOW, cluster, process, seen
from tests.pure.test_max_parallel import of
from tests.pure.test_plan import POLICIES, clusters, later, runs, there, wish, wishes

X = runs("x", "node1::0,1", 0, 10)
Y = runs("y", "node1::2,3", 0, 40)
P, Q = wish("p", "4x", 30), wish("q", "1x", 20)
"""P is promised to start in 40 s, and Q in 10 s, until Y ends early."""


def looks(*steps: tuple[float, tuple[Task, ...]], queue: tuple[Task, ...] = (P, Q), gpus: int = 4, **more: Any) -> Plan:
    """The last of several looks, each so many seconds after `NOW` with these tasks on node1."""
    found = Plan()
    for after, tasks in steps:
        on = later(cluster(seen(gpus=gpus, **more)), tasks, NOW + after)
        found = plan(on, queue, NOW + after, POLICIES, found)
    return found


def times(found: Plan) -> dict[str, float | None]:
    """In how many seconds from `NOW` on each is promised to start."""
    return {name: each and each.start and each.start - NOW for name, each in found.promises.items()}


def test_what_is_promised() -> None:
    assert times(looks((0, (X, Y)))) == {"p": 40, "q": 10}


@pytest.mark.parametrize(("after", "p"), [(5.0, 30), (8.5, 30), (9.5, 30), (9.999, 30), (10.2, 31.2)])
def test_a_look_when_somebody_is_about_to_end_costs_nobody_their_place(after: float, p: float) -> None:
    """There is room for Q at once; at last X is over its time."""
    found = looks((0, (X, Y)), (after, (X,)))
    assert (list(found.starts), times(found)["p"]) == (["q"], pytest.approx(p))


def test_promises_one_after_the_other_shift_together_while_somebody_is_over_its_time() -> None:
    """Those behind P keep their places before it when Y has ended."""
    queue = (P, wish("a", "node1::0", 5), wish("b", "node1::0", 5))
    first = looks((0, (X, Y)), queue=queue)
    found = looks((0, (X, Y)), (10.2, (X, Y)), (12.2, (X,)), queue=queue)
    assert times(first) == {"p": 40, "a": 10, "b": 15}
    assert times(found) == pytest.approx({"a": 13.2, "b": 18.2, "p": 23.2})


@pytest.mark.parametrize("steps", [[(10.2, (Y,))], [(10.2, (X, Y)), (11.0, (Y,))], [(10, (X, Y)), (14.0, (Y,))]])
def test_one_that_ends_where_another_place_begins_keeps_its_own_if_a_look_is_late(
    steps: list[tuple[float, tuple[Task, ...]]],
) -> None:
    """Q runs as long as there is until P begins. The places of P and Z begin as much later."""
    long = runs("q", "node1::0", steps[-1][0] + 1, 30)
    queue = (P, wish("q", "1x", 30), wish("z", "node1::3", 5))
    assert times(looks((0, (X, Y)), queue=queue)) == {"p": 40, "q": 10, "z": 70}
    found = looks((0, (X, Y)), *steps, queue=queue)
    assert (list(found.starts), times(found)) == (["q"], {"p": 40, "z": 70})
    began, late = NOW + steps[-1][0], steps[-1][0] - 10
    running = replace(long, status=Running(found.starts["q"], CID, began))
    on = later(cluster(seen(gpus=4)), (running, Y), began + 1)
    after = plan(on, (queue[0], queue[2]), began + 1, POLICIES, found)
    assert times(after) == {"p": pytest.approx(40 + late), "z": pytest.approx(70 + late)}


def test_one_who_waits_beside_a_stranger_takes_no_promise_from_those_behind() -> None:
    """S wants to share the GPU of a stranger, and waits for cores. There is room for Q when Y has ended early."""
    foreign = {"gpus": 5, "processes": (process("node1", 4),), "host": HostFacts(8, 65536)}
    busy = replace(X, spec=replace(X.spec, cores=8.0))
    beside = wish("s", "node1::4", 500, share=True, cores=4.0)
    found = looks((0, (busy, Y)), (5, (busy,)), queue=(beside, P, Q), **foreign)
    assert (list(found.starts), times(found)["s"]) == (["q"], 10)


def test_a_gpu_with_a_stranger_beside_its_task_is_not_promised_to_one_who_wants_it_alone() -> None:
    shared = runs("t", "node1::0", 0, 10, share=True)
    queue = (wish("alone", "node1::0"), wish("beside", "node1::0", share=True))
    assert times(looks((0, (shared,)), queue=queue[:1], processes=(process("node1", 0),))) == {"alone": None}
    assert times(looks((0, (shared,)), queue=queue[1:], processes=(process("node1", 0),))) == {"beside": 10}


def broken(before: Plan, found: Plan, queue: Sequence[Task], now: float) -> list[str]:
    """Who starts later than was promised before, unless one that comes before starts on that node now."""
    started: set[str] = set()
    late = []
    for one in queue:
        was, promise = before.promises.get(one.id), found.promises.get(one.id)
        start = now if one.id in found.starts else promise and promise.start
        due = was.start if was and was.node not in started else None
        if due is not None and (start is None or start > max(due, now) + 1e-6):
            late.append(f"{one.id} has {start and start - NOW}, not {due - NOW}")
        if at := found.starts.get(one.id):
            started.add(at.node)
    return late


tens = st.integers(1, 6).map(lambda number: 10.0 * number)
cores = st.sampled_from([None, None, 4.0, 8.0])


@settings(deadline=None, max_examples=120)
@given(st.integers(0, 2), st.data())
def test_nobody_waits_for_longer_when_somebody_ends_early(strangers: int, data: st.DataObject) -> None:
    """On a node with five GPUs, strangers on some of them, and 8 cores; of one batch only so many run at a time."""
    draw, most = data.draw, data.draw(st.integers(1, 2))
    foreign = tuple(process("node1", index) for index in range(strangers))
    there = [
        runs(f"r{index}", f"node1::{index}", 0, draw(tens), cores=draw(st.sampled_from([None, 2.0])))
        for index in range(strangers, 5)
        if draw(st.booleans())
    ]
    queue = [
        wish(f"q{n}", f"{draw(st.integers(1, 4))}x", draw(tens), share=draw(st.booleans()), cores=draw(cores))
        for n in range(draw(st.integers(2, 5)))
    ]
    queue = [of(one, most) if draw(st.integers(0, 2)) == 0 else one for one in queue]
    node = cluster(seen(gpus=5, processes=foreign, host=HostFacts(8, 65536)))
    first = plan(later(node, there, NOW), queue, NOW, POLICIES)
    there += [replace(one, status=Running(first.starts[one.id], CID, NOW)) for one in queue if one.id in first.starts]
    queue = [one for one in queue if one.id not in first.starts]
    left = [one for one in there if draw(st.booleans())]
    again = plan(later(node, left, NOW + 5), queue, NOW + 5, POLICIES, first, placed=left)
    assert not broken(first, again, queue, NOW + 5)


@settings(deadline=None)
@given(clusters(), wishes(), st.data())
def test_a_promise_is_kept_whatever_goes_in_front_of_it(on: Cluster, queue: list[Task], data: st.DataObject) -> None:
    """Whatever ends, ends at its limit or before, and looks come at any time.

    Only one that comes before and can start now, where another one was promised a place, takes it.
    """
    for before, found, waiting, now in until_all_have_started(on, queue, data):
        assert not broken(before, found, waiting, now)


def until_all_have_started(
    on: Cluster, queue: list[Task], data: st.DataObject
) -> Iterator[tuple[Plan, Plan, list[Task], float]]:
    """Plans until all tasks with a limit have started: the one before, the new one, its queue, and its time.

    Whatever ends, ends at its limit or before, and looks come at any time.
    """
    queue = [one for one in queue if one.spec.terms.time_limit]
    running = {name: _limited(one) for name, one in there(on).items()}
    part = st.sampled_from([1.0, 1.0, 0.9, 0.3])
    ends = {name: _end(one, data.draw(part)) for name, one in running.items()}
    now, found = NOW, Plan()
    for _ in range(40):
        before, found = found, plan(later(on, running.values(), now), queue, now, POLICIES, found)
        yield before, found, queue, now
        for one in queue:
            if at := found.starts.get(one.id):
                running[one.id] = replace(one, status=Running(at, CID, now))
                ends[one.id] = _end(running[one.id], data.draw(part))
        queue = [one for one in queue if one.id not in found.starts]
        if not running or not queue:
            break
        next_end = min(ends[name] for name in running)
        now = max(now, next_end - data.draw(st.sampled_from([0.0, 0.0, 0.001, 0.5, 3.0])))
        running = {name: one for name, one in running.items() if ends[name] > now}


def _limited(one: Task) -> Task:
    """With a limit that it has not come to yet."""
    assert isinstance(one.status, Running)
    limit = max(one.spec.terms.time_limit or 100.0, NOW - one.status.started_at + 1)
    return replace(one, spec=replace(one.spec, terms=replace(one.spec.terms, time_limit=limit)))


def _end(one: Task, part: float) -> float:
    """When it ends that takes this part of its limit, after now."""
    assert isinstance(one.status, Running)
    return max(one.status.started_at + (one.spec.terms.time_limit or 0.0) * part, NOW + 0.5)
