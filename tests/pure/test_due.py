"""What the passing of time brings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.model.tasks.task import Submitted, Task
from agentless.model.tasks.task_event import Assigned, Exited, GaveUp, Queued, StopAsked, Unplaced
from agentless.model.tasks.terms import Terms
from agentless.rules.tasks.due import A_CLUSTERS_LOOK, A_LOOK, Due, due, within_limit
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.retry import another_try
from tests.pure.build import NOW, STATES, placement, spec, task


def wanting(state: str, **terms: Any) -> Task:
    return task(state=state, spec=spec(terms=Terms(**terms)))


@pytest.mark.parametrize("state", sorted(set(STATES) - {"scheduled"}))
def test_time_alone_does_nothing_to_a_task_that_asks_for_nothing(state: str) -> None:
    assert due(wanting(state)) is None


def test_a_scheduled_task_goes_into_the_queue_at_its_time() -> None:
    assert due(wanting("scheduled")) == Due(NOW + 60, Queued(), "its start time has come")


def test_who_waits_gives_up_when_his_time_in_the_queue_is_over() -> None:
    coming = due(wanting("pending", wait_for=600.0))
    assert coming
    assert (coming.at, coming.event) == (
        NOW - 100 + 600,
        GaveUp("gave up after 10m 0s in the queue (--wait-for)"),
    )


def test_the_time_before_the_queue_does_not_count_as_waiting() -> None:
    waiting = apply(wanting("scheduled", wait_for=600.0), Queued(), NOW + 1000)
    assert due(waiting) == replace(due(wanting("pending", wait_for=600.0)) or Due(0, Queued(), ""), at=NOW + 1600)


def test_who_does_not_want_to_wait_is_looked_at_once() -> None:
    """As the next try, which was not taken in at a time when it could have been refused."""
    waiting = apply(wanting("scheduled", wait_for=0.0), Queued(), NOW)
    coming = due(waiting)
    assert coming
    assert (coming.at, coming.event) == (NOW + A_LOOK, GaveUp("could not start at once (--no-queue)"))


def test_the_pause_before_the_next_try_does_not_count_as_waiting() -> None:
    first = wanting("running", wait_for=10.0, retries=1, backoff=15.0)
    found = another_try(first, apply(first, Exited(1), NOW), NOW)
    assert found
    again = apply(apply(found[0], found[1], NOW), Queued(), NOW + 15)
    coming = due(again)
    assert coming
    assert coming.at == NOW + 25


def test_who_is_refused_by_a_node_has_waited_all_the_time() -> None:
    waiting = apply(wanting("scheduled", wait_for=600.0), Queued(), NOW)
    refused = apply(apply(waiting, Assigned(placement()), NOW + 50), Unplaced("somebody is there"), NOW + 60)
    coming = due(refused)
    assert coming
    assert coming.at == NOW + 600


@pytest.mark.parametrize("state", ["running", "paused"])
def test_the_signal_comes_at_the_limit(state: str) -> None:
    coming = due(wanting(state, time_limit=3600.0))
    assert coming == Due(NOW - 60 + 3600, StopAsked("timeout"), "reached its time limit of 1h 0m")


def test_the_signal_comes_before_the_limit_and_the_kill_at_it() -> None:
    coming = due(wanting("running", time_limit=3600.0, signal_before=300.0))
    assert coming
    assert (coming.at, coming.event) == (NOW - 60 + 3300, StopAsked("timeout", 300.0))
    assert coming.cause == "SIGTERM 5m 0s before its time limit of 1h 0m"


@pytest.mark.parametrize("stop", ["stop", "kill", "timeout"])
def test_what_is_being_ended_comes_to_no_limit(stop: Any) -> None:
    assert due(replace(wanting("running", time_limit=1.0), stop=stop)) is None


@pytest.mark.parametrize("state", ["scheduled", "pending", "assigning", "lost", "ended"])
def test_the_limit_is_for_what_runs(state: str) -> None:
    coming = due(wanting(state, time_limit=1.0))
    assert coming is None or not isinstance(coming.event, StopAsked)


@pytest.mark.parametrize(("before", "ends"), [(None, 3610.0), (300.0, 3600.0)])
def test_a_place_is_promised_for_when_the_task_has_ended_for_certain(before: float | None, ends: float) -> None:
    assert spec(terms=Terms(time_limit=3600.0, signal_before=before), stop_grace=10.0).ends_within == ends


@pytest.mark.parametrize(
    ("limit", "asked", "left"), [(None, 600.0, 600.0), (100.0, 600.0, 50.0), (100.0, 20.0, 20.0), (60.0, 600.0, 10.0)]
)
def test_a_grace_time_does_not_reach_beyond_the_limit_with_its_own(
    limit: float | None, asked: float, left: float
) -> None:
    """It has run for a minute, and its own grace time is ten seconds."""
    running = task(spec=spec(terms=Terms(time_limit=limit), stop_grace=10.0))
    assert within_limit(running, asked, NOW) == left


def test_a_job_that_its_cluster_has_not_started_by_then_is_cancelled_there() -> None:
    """From its start time on, if it has one; one that is stopped already is left alone."""
    waiting = wanting("submitted", wait_for=600.0)
    coming = due(waiting)
    assert isinstance(waiting.status, Submitted)
    assert coming
    reason = "gave up after 10m 0s in the queue (--wait-for)"
    assert (coming.at, coming.event) == (waiting.status.since + 600, StopAsked("stop", reason=reason))
    later = due(wanting("submitted", wait_for=600.0, start_at=NOW + 50))
    assert later
    assert later.at == NOW + 650
    at_once = due(wanting("submitted", wait_for=0.0))
    assert at_once
    assert (at_once.at, at_once.event) == (
        waiting.status.since + A_CLUSTERS_LOOK, StopAsked("stop", reason="could not start at once (--no-queue)"),
    )  # fmt: skip
    assert due(replace(waiting, stop="stop")) is None
