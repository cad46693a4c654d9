"""The parts of a link to a node: what waits to be looked at, what is remembered, and when it counts as reached."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from agentless.controller.nodes.link import connection
from agentless.controller.nodes.link.breakdowns import Breakdowns
from agentless.controller.nodes.link.cache import NodeCache
from agentless.controller.nodes.link.changes import PendingChanges
from agentless.controller.nodes.link.connection import NodeConnection
from agentless.controller.nodes.link.limits import INSPECTED
from agentless.errors import NodeBroken, Unreachable
from agentless.model.containers.container import Container
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.node import EngineFacts
from agentless.model.nodes.sighting import Sighting
from tests.pure.build import NOW, container, process, task


class Known:
    """A cache of a node that is connected, and what it has reported."""

    def __init__(self, *containers: Container) -> None:
        self.changes, self.sightings = 0, list[Sighting]()
        self.cache = NodeCache("n1", self, self._changed, self.sightings.append)
        self.cache.observe(Observation(error=None, engine=EngineFacts(containers=containers)))

    def now(self) -> float:
        return NOW

    def _changed(self) -> None:
        self.changes += 1


def container_of(task_id: str) -> Container:
    return container(task(task_id), id=f"{task_id:0>64}")


# ---------------------------------------------------------------------- changes


async def test_changes_that_come_meanwhile_are_taken_together_and_each_once() -> None:
    changes = PendingChanges()
    for change in ("a", "b", "a"):
        await changes.put(change)
    assert list(await changes.take()) == ["a", "b"]
    await changes.put("c")
    changes.end()
    assert [list(await changes.take()), list(await changes.take())] == [["c"], []]


async def test_who_names_many_changes_waits_until_some_are_taken() -> None:
    changes = PendingChanges()
    for number in range(INSPECTED):
        await changes.put(str(number))
    one_more = asyncio.create_task(changes.put("one more"))
    await asyncio.sleep(0)
    assert not one_more.done()
    assert len(await changes.take()) == INSPECTED
    await one_more
    assert list(await changes.take()) == ["one more"]


# ---------------------------------------------------------------------- the cache


def test_a_look_at_one_task_replaces_its_containers_and_no_other_ones() -> None:
    first, second = container_of("t1"), container_of("t2")
    known = Known(first, second)
    ended = replace(first, state="exited")
    known.cache.saw("t1", (ended,), NOW - 1)
    assert known.cache.containers == (second, ended)
    assert known.sightings == [Sighting((ended,), NOW - 1, "t1")]


def test_processes_of_a_container_that_has_ended_are_not_on_its_gpu_any_more() -> None:
    """The sample that still has them was taken before; the next one may be of a driver that is slow to notice."""
    first = container_of("t1")
    known = Known(first)
    sample = GpuSample((), (process("node1", 0, container=first.id),), None)
    known.cache.sampled(sample, None)
    assert known.cache.observation.sample == sample
    known.cache.saw("t1", (), NOW)
    assert known.cache.observation.sample == replace(sample, processes=())
    known.cache.sampled(sample, None)
    assert known.cache.observation.sample == replace(sample, processes=())


def test_who_asks_a_node_that_does_not_answer_is_told_why() -> None:
    known = Known()
    known.cache.check_online()
    known.cache.observe(replace(known.cache.observation, error="no route to host"))
    with pytest.raises(Unreachable, match="n1 cannot be reached: no route to host"):
        known.cache.check_online()


def test_a_breakdown_of_the_engine_is_over_once_it_lists_its_containers() -> None:
    known = Known()
    breakdowns = Breakdowns(known.cache)
    breakdowns.failed(task(), NodeBroken("n1: Docker does not answer", fault="engine"))
    assert known.cache.observation.broken is not None
    assert known.cache.observation.broken.reason == "Docker does not answer"
    breakdowns.engine_answered()
    assert known.cache.observation.broken is None


# ---------------------------------------------------------------------- the connection


class Session:
    """A session that always connects."""

    async def connect(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_a_node_counts_as_reached_once_it_has_greeted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes a login and answers nothing is not."""
    monkeypatch.setattr(connection, "backoff", lambda *_: 0.0)
    known, tries, reached = Known(), 0, asyncio.Event()
    link = NodeConnection(Session(), known.cache)  # type: ignore[arg-type]

    async def greet() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unreachable("n1: no answer")
        assert (str(link.failure), link.offline_since) == ("n1: no answer", NOW)

    async def attend() -> None:
        reached.set()
        await asyncio.Event().wait()

    keeping = asyncio.create_task(link.keep(greet, attend))
    await reached.wait()
    assert (tries, link.failure, link.offline_since, link.answered.is_set()) == (3, None, None, True)
    assert known.cache.observation.error == "no answer"  # until a full look says otherwise, which greet is to bring
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping
