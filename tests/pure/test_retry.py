"""When a task is tried again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.errors import UsageError
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import Volume
from agentless.model.tasks.task import Rank, Task
from agentless.model.tasks.task_event import Exited, LaunchFailed, LostContact, StopAsked, TaskEvent, Vanished
from agentless.model.tasks.task_id import first_try, is_task_id, next_try, numbered
from agentless.model.tasks.terms import Terms, parse_retry_on
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.retry import LONGEST, another_try, fresh_try
from tests.pure.build import NOW, spec, task

ENDINGS: dict[str, tuple[TaskEvent, Any]] = {
    "good": (Exited(0), None),
    "exit 75": (Exited(75), None),
    "exit 1": (Exited(1), None),
    "oom": (Exited(137, oom_killed=True), None),
    "timeout": (Exited(143), "timeout"),
    "stopped": (Exited(143), "stop"),
    "killed": (Exited(137), "kill"),
    "removed by hand": (Vanished("removed"), None),
    "lost": (LostContact("cut off"), None),
}


def wanting(retries: int = 3, name: str = "t1", state: str = "running", stop: Any = None, **terms: Any) -> Task:
    return task(name, state=state, spec=spec(terms=Terms(retries=retries, **terms)), stop=stop)


def after(before: Task, event: TaskEvent) -> Any:
    return another_try(before, apply(before, event, NOW), NOW)


@pytest.mark.parametrize(
    ("retry_on", "again"),
    [
        (("failed", "oom"), {"exit 75", "exit 1", "oom"}),
        (("oom",), {"oom"}),
        (("exit:75",), {"exit 75"}),
        (("timeout", "lost"), {"timeout", "lost"}),
    ],
)
def test_it_is_tried_again_after_the_endings_that_are_named(retry_on: tuple[str, ...], again: set[str]) -> None:
    tried = {name for name, (event, stop) in ENDINGS.items() if after(wanting(stop=stop, retry_on=retry_on), event)}
    assert tried == again


def test_who_asks_for_no_retries_is_tried_once() -> None:
    assert after(task(spec=spec(terms=Terms())), Exited(1)) is None


def test_what_could_not_be_started_has_failed() -> None:
    assert after(wanting(state="assigning"), LaunchFailed("no such image"))


def test_the_next_try_is_the_same_task_with_the_next_number() -> None:
    found, delay = after(wanting(), Exited(1))
    assert (found.id, found.spec, found.batch, found.state) == ("t1-2", wanting().spec, "t1", "pending")
    assert delay.reason == "try 2 of 4: task t1 ended with exit code 1"


@pytest.mark.parametrize(("name", "pause"), [("t1", 10), ("t1-2", 20), ("t1-3", 40), ("t1-60", LONGEST)])
def test_each_pause_is_twice_as_long_as_the_one_before(name: str, pause: float) -> None:
    _, delay = after(wanting(100, name, backoff=10.0), Exited(1))
    assert delay.until == NOW + pause


@pytest.mark.parametrize("name", ["t1", "t1-2", "t1-60"])
def test_a_pause_is_never_shorter_than_was_asked_for(name: str) -> None:
    _, delay = after(wanting(100, name, backoff=3 * LONGEST), Exited(1))
    assert delay.until == NOW + 3 * LONGEST


def test_nothing_that_was_asked_of_one_try_is_asked_of_the_next() -> None:
    """It was moved to the top of the queue, and stopped as its GPUs were idle."""
    moved = replace(wanting(state="pending"), rank=Rank((), 1))
    ran = replace(moved, status=task().status, queued_at=NOW - 70)
    ended = apply(apply(ran, StopAsked("stop", 3.0, "its GPUs were idle"), NOW), Exited(143), NOW)
    again = fresh_try(ended, NOW)
    assert again == replace(wanting(state="pending"), id="t1-2", created_at=NOW)


@pytest.mark.parametrize(("name", "tried"), [("t1", True), ("t1-2", True), ("t1-3", False)])
def test_it_is_tried_as_often_as_was_asked_for_and_no_more(name: str, tried: bool) -> None:
    assert bool(after(wanting(2, name), Exited(1))) is tried


def test_what_had_ended_already_is_not_tried_again() -> None:
    ended = apply(wanting(), Exited(1), NOW)
    assert another_try(ended, ended, NOW) is None


def test_ids_of_tries_follow_from_the_first() -> None:
    assert [next_try("2myq"), next_try("2myq-2"), next_try("2myq-9")] == ["2myq-2", "2myq-3", "2myq-10"]
    assert {first_try("2myq"), first_try("2myq-2")} == {"2myq"}
    assert (numbered("2myq"), numbered("2myq-2")) == ("2myq-1", "2myq-2")


@pytest.mark.parametrize(("text", "good"), [("2myq-2", True), ("2myq-", False), ("-2", False), ("a-2/../b", False)])
def test_an_id_with_a_number_is_an_id(text: str, good: bool) -> None:
    assert is_task_id(text) is good


WITH_A_VOLUME = spec(needs=Needs(gpus=1), volumes=(Volume("data", "/data"),))


def test_a_task_with_a_volume_is_tried_again_where_the_volume_is() -> None:
    """Elsewhere it would find an empty one."""
    before = task(spec=WITH_A_VOLUME, target="node2::0")
    assert fresh_try(apply(before, Exited(1), NOW), NOW).spec.needs.nodes == ("node2",)


def test_a_task_with_a_volume_that_was_never_started_may_be_tried_anywhere() -> None:
    before = task(spec=WITH_A_VOLUME, target="node2::0", state="assigning")
    assert fresh_try(apply(before, LaunchFailed("no such image"), NOW), NOW).spec.needs.nodes == ()


@pytest.mark.parametrize(("code", "good"), [("0", False), ("1", True), ("255", True), ("256", False), ("-1", False)])
def test_an_exit_code_to_try_again_after_is_one_of_a_failure(code: str, good: bool) -> None:
    if good:
        assert parse_retry_on(f"oom, exit:{code}") == ("oom", f"exit:{code}")
    else:
        with pytest.raises(UsageError, match="exit:CODE"):
            parse_retry_on(f"oom, exit:{code}")
