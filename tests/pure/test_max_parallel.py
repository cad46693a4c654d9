"""How many of a batch run at a time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentless.model.task import Task
from agentless.model.terms import Terms
from agentless.rules.batches import released
from tests.pure.build import spec, task


def of(name: str, most: int | None, state: str = "pending", batch: str = "b") -> Task:
    return task(name, state=state, batch=batch, spec=spec(terms=Terms(max_parallel=most)))


def ids(tasks: Any) -> list[str]:
    return [task.id for task in tasks]


def test_without_a_limit_all_are_let_in() -> None:
    assert ids(released([of("a", None), of("b", None)], [of("r", None, "running")])) == ["a", "b"]


def test_those_that_have_a_place_count() -> None:
    placed = [of("r", 3, "running"), of("s", 3, "assigning"), of("p", 3), of("x", 3, "ended"), of("o", 3, "lost", "c")]
    assert ids(released([of("a", 3), of("b", 3)], placed)) == ["a"]


def test_batches_do_not_count_for_each_other() -> None:
    queue = [of("a", 1), of("b", 1, batch="c"), of("c", 1), of("d", 1, batch="c")]
    assert ids(released(queue, [])) == ["a", "b"]


states = st.sampled_from(["pending", "running", "assigning", "paused", "lost", "ended"])


@given(st.lists(st.tuples(states, st.sampled_from("bc"))), st.integers(1, 4), st.integers(0, 6))
def test_never_more_than_the_limit_run_and_never_less_than_there_is_room_for(
    there: list[tuple[str, str]], most: int, waiting: int
) -> None:
    tasks = [of(f"t{n}", most, state, batch) for n, (state, batch) in enumerate(there)]
    placed = sum(t.batch == "b" and t.live and t.placement is not None for t in tasks)
    let_in = released([of(f"q{n}", most) for n in range(waiting)], tasks)
    assert len(let_in) == max(0, min(waiting, most - placed))
