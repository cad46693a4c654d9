"""What is kept of ended tasks, decided from values: which log to fetch, which container may go, what of a long log."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.controller.files import outputs
from agentless.errors import RuntimeFailed
from agentless.model.containers.container import Container
from agentless.model.tasks.retention import Keep
from agentless.model.tasks.task import Ended, Task
from agentless.rules.tasks.reconcile import REAP_AFTER
from agentless.rules.tasks.retention import (
    AT_ONCE,
    ENDED,
    LARGE_AT_ONCE,
    Chores,
    chores,
    cut_note,
    fetched_now,
    split_tail,
)
from tests.pure.build import NOW, container, task

HOUR = 3600.0


def ended(name: str = "t1", ago: float = HOUR, **changes: Any) -> Task:
    """A task that ended `ago` seconds before `NOW`, and began a minute before."""
    whole = task(name, state="ended")
    assert isinstance(whole.status, Ended)
    plain: dict[str, Any] = {"ended_at": NOW - ago, "container": name * 10, "run": NOW - 60}
    return replace(whole, status=replace(whole.status, **(plain | changes)))


def of(one: Task, state: Any = "exited", **changes: Any) -> Container:
    """Its container."""
    return container(one, state, id=one.container, **changes)


def todo(*containers: Container, tasks: tuple[Task, ...], kept: set[str], after: float = HOUR) -> Chores:
    return chores(containers, {"live"}, {one.id: one for one in tasks}, kept, NOW, Keep(after))


FETCH, REMOVE, NOTHING = Chores(fetch=(ended(),)), Chores(remove=(ended(ago=HOUR + 1),)), Chores()
LATER = Chores(due=NOW)


@pytest.mark.parametrize(
    ("containers", "tasks", "kept", "expected"),
    [
        pytest.param([of(ended())], [ended()], False, FETCH, id="ended"),
        pytest.param([of(ended(), "dead")], [ended()], False, FETCH, id="dead"),
        pytest.param([of(ended(), "running")], [ended()], False, NOTHING, id="started again"),
        pytest.param([of(ended(), "removing")], [ended()], False, NOTHING, id="being removed"),
        pytest.param([of(ended())], [], False, NOTHING, id="not ended here"),
        pytest.param([], [ended()], False, NOTHING, id="no container"),
        pytest.param([replace(of(ended()), id="copy")], [ended()], False, NOTHING, id="a copy of its container"),
        pytest.param([of(ended())], [ended()], True, LATER, id="kept, and its time is not over"),
        pytest.param([of(ended())], [ended(ago=HOUR + 1)], True, REMOVE, id="kept, and its time is over"),
        pytest.param([of(ended(), "running")], [ended(ago=HOUR + 1)], True, NOTHING, id="over, but runs again"),
        pytest.param(
            [of(ended(), started_at=NOW - 30)], [ended(ago=HOUR + 1)], True, NOTHING, id="over, but ran again"
        ),
        pytest.param(
            [of(ended(), finished_at=NOW - 9 * HOUR, clock=-8 * HOUR)],
            [ended()],
            True,
            LATER,
            id="a clock that is off",
        ),
        pytest.param([replace(of(ended()), labels={})], [ended()], False, NOTHING, id="not ours at all"),
        pytest.param([of(ended(), labels={}, signed=False)], [ended()], False, NOTHING, id="nobody's"),
        pytest.param([of(task("t2"), "running"), of(ended())], [ended()], False, FETCH, id="beside one that runs"),
    ],
)
def test_what_there_is_to_do_for_a_container(
    containers: list[Container], tasks: list[Task], kept: bool, expected: Chores
) -> None:
    assert todo(*containers, tasks=tuple(tasks), kept={"t1"} if kept else set()) == expected


def test_what_ended_first_comes_first() -> None:
    tasks = (ended("t1", 5), ended("t2", 9), ended("t3", 7))
    assert [one.id for one in todo(*map(of, tasks), tasks=tasks, kept=set()).fetch] == ["t2", "t3", "t1"]
    old = todo(*map(of, tasks), tasks=tasks, kept={"t1", "t2", "t3"}, after=6)
    assert [one.id for one in old.remove] == ["t2", "t3"]


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_the_end_of_a_long_log_fills_the_room_and_each_stream_gets_its_half(out: int, err: int, limit: int) -> None:
    taken = split_tail({1: out, 2: err}, limit)
    assert sum(taken.values()) == min(out + err, limit)
    assert min(out, limit // 2) <= taken[1] <= out
    assert min(err, limit // 2) <= taken[2] <= err


@pytest.mark.parametrize(
    ("left_out", "words"),
    [
        ({1: 1_234_567, 2: 0}, "1,234,567 bytes of standard output"),
        ({1: 0, 2: 12}, "12 bytes of standard error"),
        ({1: 1, 2: 2}, "1 byte of standard output and 2 bytes of standard error"),
    ],
)
def test_a_note_says_how_much_is_missing_and_why(left_out: dict[int, int], words: str) -> None:
    note = cut_note(left_out, 16 << 20)
    assert note == f"{words} omitted from the middle of this log; its limit is 16 MiB (keep: log in the inventory)"


def created(name: str, ago: float) -> Container:
    """One that a launch created so many seconds ago and has not started."""
    return container(task(name), "created", id=name * 10, created_at=NOW - ago)


def test_a_container_that_nobody_will_start_any_more_is_reaped() -> None:
    """Whoever's it is: it would hold its GPUs for ever."""
    old, new, live = created("old", REAP_AFTER + 1), created("new", 10), created("live", REAP_AFTER + 1)
    found = todo(old, new, live, tasks=(), kept=set())
    assert (found.reap, found.due) == ((old.id,), NOW - 10 + REAP_AFTER)


@pytest.mark.parametrize(
    ("signed", "name", "goes"), [(True, "copy", True), (False, "agentless-old", True), (False, "copy", False)]
)
def test_what_was_created_is_reaped_if_a_launch_has_signed_or_named_it(signed: bool, name: str, goes: bool) -> None:
    old = replace(created("old", REAP_AFTER + 1), signed=signed, name=name)
    assert todo(old, tasks=(), kept=set()).reap == ((old.id,) if goes else ())


def test_what_says_not_when_it_was_created_is_looked_at_again() -> None:
    unknown = replace(created("new", 0), created_at=None)
    assert todo(unknown, tasks=(), kept=set()) == Chores(due=NOW + REAP_AFTER)


def test_a_container_stays_until_what_its_task_brings_back_has_come() -> None:
    """It is brought whether its log is safe or not."""
    one = ended(ago=HOUR + 1)
    waiting = chores([of(one)], (), {one.id: one}, {one.id}, NOW, Keep(HOUR), {one.id})
    assert (waiting.bring, waiting.remove, bool(waiting)) == ((one,), (), True)
    both = chores([of(one)], (), {one.id: one}, (), NOW, Keep(HOUR), {one.id})
    assert (both.bring, both.fetch) == ((one,), (one,))
    assert chores([of(one)], (), {one.id: one}, {one.id}, NOW, Keep(HOUR), ()).remove == (one,)


def test_of_very_many_on_one_node_the_oldest_go() -> None:
    """A list of ten thousand containers is more than a node may say: what we leave there never is."""
    tasks = tuple(ended(f"t{n}", n) for n in range(1, ENDED + 3))
    found = todo(*map(of, tasks), tasks=tasks, kept={one.id for one in tasks}, after=24 * HOUR)
    assert [one.id for one in found.remove] == [f"t{ENDED + 2}", f"t{ENDED + 1}"]
    assert found.due == NOW - ENDED + 24 * HOUR


def test_what_one_task_still_has_to_bring_keeps_no_other_container() -> None:
    waits, over = ended("t1", ago=HOUR + 2), ended("t2", ago=HOUR + 1)
    found = chores([of(waits), of(over)], (), {"t1": waits, "t2": over}, {"t1", "t2"}, NOW, Keep(HOUR), {"t1"})
    assert (found.bring, found.remove) == ((waits,), (over,))


def begun(waiting: str, fetching: str = "", large: str = "") -> list[str]:
    """Whose outputs are fetched next, by the last letters of their ids."""
    found = fetched_now(
        [ended(f"t{one}") for one in waiting], [f"t{one}" for one in fetching], {f"t{x}" for x in large}
    )
    return [one.id[1:] for one in found]


@pytest.mark.parametrize(
    ("waiting", "fetching", "large", "expected"),
    [
        pytest.param("123456", "", "", "1234", id="so many at once"),
        pytest.param("123456", "12", "", "34", id="those that are fetched are not begun again"),
        pytest.param("123456", "1234", "", "", id="no room"),
        pytest.param("123456", "", "123", "4561", id="small ones first"),
        pytest.param("12345", "", "12345", "12", id="never only large ones"),
        pytest.param("3456", "12", "123456", "", id="no room for more large ones"),
        pytest.param("3456", "12", "12345", "6", id="but for a small one"),
        pytest.param("56", "1234", "1234", "", id="more have turned out to be large than may begin as such"),
    ],
)
def test_outputs_of_a_few_tasks_are_fetched_at_once_and_small_ones_wait_for_no_large_one(
    waiting: str, fetching: str, large: str, expected: str
) -> None:
    assert (AT_ONCE, LARGE_AT_ONCE) == (4, 2)
    assert begun(waiting, fetching, large) == list(expected)


async def test_a_copy_that_says_nothing_for_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [(1, b"begin")]

    class Silent:
        async def __anext__(self) -> tuple[int, bytes]:
            if not said:
                await asyncio.Event().wait()
            return said.pop()

    monkeypatch.setattr(outputs, "STALL", 0.5)
    coming = outputs._steadily(Silent(), "node1")
    assert await anext(coming) == (1, b"begin")
    with pytest.raises(
        RuntimeFailed, match=r"node1: received nothing for 0[.]5 s; check whether its disk or its engine hangs"
    ):
        await anext(coming)
