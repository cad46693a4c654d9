"""What the node says of a task against what is remembered of it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from agentless.model.container import ContainerState
from agentless.model.event import LaunchFailed, Vanished
from agentless.rules.lifecycle import apply
from agentless.rules.reconcile import LAUNCH_BOUND, ending, reconcile
from tests.pure.build import NOW, STATES, container, task

CONTAINER_STATES = get_args(ContainerState)

# Remembered state x the container's state: what the task is afterwards. `created` says nothing yet.
AFTERWARDS: dict[str, dict[str, str]] = {
    "assigning": {
        "created": "assigning",
        "running": "running",
        "paused": "paused",
        "restarting": "running",
        "removing": "running",
        "exited": "completed",
        "dead": "completed",
    },
    "running": {
        "created": "running",
        "running": "running",
        "paused": "paused",
        "restarting": "running",
        "removing": "running",
        "exited": "completed",
        "dead": "completed",
    },
    "paused": {
        "created": "paused",
        "running": "running",
        "paused": "paused",
        "restarting": "paused",
        "removing": "paused",
        "exited": "completed",
        "dead": "completed",
    },
    "lost": {
        "created": "lost",
        "running": "running",
        "paused": "paused",
        "restarting": "running",
        "removing": "running",
        "exited": "completed",
        "dead": "completed",
    },
    "pending": dict.fromkeys(CONTAINER_STATES, "pending"),
    "ended": dict.fromkeys(CONTAINER_STATES, "completed"),
}
AFTERWARDS["lost before an answer"] = AFTERWARDS["lost"]


def settle(remembered: Any, found: Any, now: float = NOW) -> Any:
    for event in reconcile(remembered, found, now):
        remembered = apply(remembered, event, now)
    return remembered


@pytest.mark.parametrize("shown", CONTAINER_STATES)
@pytest.mark.parametrize("state", STATES)
def test_every_state_against_every_container_state(state: str, shown: ContainerState) -> None:
    remembered = task(state=state)
    assert settle(remembered, container(remembered, shown)).state == AFTERWARDS[state][shown]


@pytest.mark.parametrize("shown", CONTAINER_STATES)
@pytest.mark.parametrize("state", STATES)
def test_a_second_look_at_the_same_container_changes_nothing(state: str, shown: ContainerState) -> None:
    remembered = task(state=state)
    found = container(remembered, shown)
    once = settle(remembered, found)
    assert settle(once, found, NOW + 5) == once


@pytest.mark.parametrize("state", ["running", "paused", "lost"])
def test_a_container_that_is_gone_ends_its_task(state: str) -> None:
    (event,) = reconcile(task(state=state), None, NOW)
    assert event == Vanished("its container was removed on the node by somebody else")


@pytest.mark.parametrize("state", ["assigning", "lost before an answer"])
def test_a_launch_without_an_answer_is_left_to_a_second_launch(state: str) -> None:
    assert reconcile(task(state=state), None, NOW + 3600) == ()


@pytest.mark.parametrize("state", ["assigning", "lost before an answer"])
def test_a_stop_of_an_unanswered_launch_holds_once_no_launch_can_be_under_way(state: str) -> None:
    asked = task(state=state, stop="stop")
    since = asked.status.since
    assert reconcile(asked, None, since + LAUNCH_BOUND - 1) == ()
    assert reconcile(asked, None, since + LAUNCH_BOUND + 1) == (LaunchFailed("stopped before it started"),)


@pytest.mark.parametrize("state", ["pending", "ended"])
def test_what_is_not_on_a_node_has_nothing_to_agree_on(state: str) -> None:
    assert reconcile(task(state=state), None, NOW) == ()


def test_an_ending_carries_what_the_engine_knows_of_it() -> None:
    found = container(task(), "exited", exit_code=137, oom_killed=True, error="why")
    assert (found.started_at, found.finished_at) == (NOW - 60, NOW - 10)
    assert (ending(found).exit_code, ending(found).oom_killed, ending(found).seconds, ending(found).error) == (
        137,
        True,
        50.0,
        "why",
    )


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ({"started_at": NOW, "finished_at": NOW - 3600}, 0.0),  # the clock went back
        ({"started_at": None, "finished_at": NOW}, None),
        ({"started_at": NOW, "finished_at": None}, None),
    ],
)
def test_a_duration_that_makes_no_sense_is_none_or_zero(times: dict[str, float | None], seconds: float | None) -> None:
    assert ending(container(task(), "exited", **times)).seconds == seconds


@pytest.mark.parametrize("hours", [-26, 26])
def test_a_nodes_clock_that_is_hours_off_changes_no_duration(hours: int) -> None:
    off = hours * 3600
    found = container(task(), "exited", started_at=NOW - 60 + off, finished_at=NOW - 10 + off)
    ended = settle(task(state="running"), found).status
    assert (ended.ended_at - ended.started_at, ended.ended_at <= NOW) == (50.0, True)
