"""The order of the queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.task import Task
from agentless.model.tasks.terms import Terms
from agentless.rules.scheduling.order import order
from tests.pure.build import NOW, spec, task


def waits(name: str, age: float = 0.0, priority: int = 0, gpus: int = 1, **fields: Any) -> Task:
    wanted = spec(needs=Needs(gpus=gpus), terms=Terms(priority=priority))
    return replace(task(name, state="pending", spec=wanted, **fields), created_at=NOW - age)


def names(tasks: list[Task]) -> str:
    return " ".join(one.id for one in tasks)


def test_who_came_first_is_next() -> None:
    assert names(order([waits("b", 1), waits("a", 5), waits("c")])) == "a b c"


def test_a_higher_priority_comes_before_age() -> None:
    assert names(order([waits("old", 9), waits("urgent", 0, 5), waits("last", 99, -5)])) == "urgent old last"


def test_two_owners_take_turns() -> None:
    ann = [waits(f"a{n}", 10 - n, owner="ann") for n in range(3)]
    bob = [waits(f"b{n}", 5 - n, owner="bob") for n in range(3)]
    assert names(order([*ann, *bob])) == "a0 b0 a1 b1 a2 b2"


def test_a_task_counts_by_its_gpus() -> None:
    ann = [waits("a0", 9, gpus=4, owner="ann"), waits("a1", 8, owner="ann")]
    bob = [waits(f"b{n}", 5 - n, owner="bob") for n in range(5)]
    assert names(order([*ann, *bob])) == "a0 b0 b1 b2 b3 a1 b4"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-2, 2), st.sampled_from(["ann", "bob"])), max_size=20))
def test_everybody_is_in_it_once_and_nobody_is_before_a_higher_priority(given_: list[tuple[int, int, str]]) -> None:
    tasks = [waits(f"t{n}", age, priority, owner=owner) for n, (age, priority, owner) in enumerate(given_)]
    found = order(tasks)
    assert sorted(one.id for one in found) == sorted(one.id for one in tasks)
    priorities = [one.spec.terms.priority for one in found]
    assert priorities == sorted(priorities, reverse=True)


def test_who_has_used_nothing_comes_before_who_has_used_a_little() -> None:
    queue = [waits("a", 9, owner="ann"), waits("b", 5, owner="bob")]
    assert names(order(queue, {"ann": 0.5})) == "b a"
    assert names(order(queue, {"bob": 0.5})) == "a b"


def test_a_difference_too_small_to_be_meant_is_none() -> None:
    queue = [waits("a", 9, owner="ann"), waits("b", 5, owner="bob")]
    assert names(order(queue, {"ann": 4e-7})) == "a b"


def test_of_two_of_one_moment_the_id_decides() -> None:
    assert names(order([waits("b"), waits("a")])) == "a b"


def test_what_an_owner_has_behind_does_not_hold_back_what_is_urgent() -> None:
    ann = [waits("a-urgent", 9, 5, owner="ann"), waits("a-later", 99, owner="ann")]
    assert names(order([*ann, waits("b-urgent", 5, 5, owner="bob")])) == "a-urgent b-urgent a-later"
