"""What follows for a task that waits for others when one of them ends."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from agentless.model.tasks.event import GaveUp, Queued
from agentless.model.tasks.task import Ended, Outcome, Task
from agentless.rules.tasks.dependencies import Blocked, after_end
from agentless.rules.tasks.retry import fresh_try
from tests.pure.build import NOW, task

BAD = [outcome for outcome in get_args(Outcome) if outcome != "completed"]


def ended(name: str, outcome: Outcome = "completed") -> Task:
    return replace(task(name), status=Ended(outcome, NOW))


def test_it_goes_into_the_queue_when_the_last_of_them_has_completed() -> None:
    first = after_end(Blocked(("a", "b")), ended("a"))
    assert first == Blocked(("b",))
    assert after_end(first, ended("b")) == Queued()


@pytest.mark.parametrize("outcome", BAD)
def test_it_is_cancelled_when_one_of_them_did_not_complete(outcome: Outcome) -> None:
    reason = f"depends on task a, which did not complete ({outcome})"
    assert after_end(Blocked(("a", "b")), ended("a", outcome)) == GaveUp(reason)


def test_it_waits_for_the_next_try_in_place_of_one_that_is_tried_again() -> None:
    failed = ended("a", "failed")
    again = fresh_try(failed, NOW)
    assert after_end(Blocked(("a", "b")), failed, again) == Blocked((again.id, "b"))


def test_the_end_of_any_other_task_changes_nothing() -> None:
    assert after_end(Blocked(("a",)), ended("c", "failed")) == Blocked(("a",))
