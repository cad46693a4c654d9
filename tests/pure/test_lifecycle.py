"""The life of a task: every state with every event."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentless.errors import IllegalMove
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.scheduling.overflow import Refusal
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Ended, KeptPlace, Lost, Paused, Pending, Rank, Running, Task
from agentless.model.tasks.task_event import (
    Adopted,
    Assigned,
    BlockedBy,
    Dated,
    Delayed,
    Exited,
    Froze,
    GaveUp,
    HandedBack,
    HandedOver,
    JobQueued,
    Launched,
    LaunchFailed,
    LostContact,
    Met,
    Moved,
    NotStarted,
    PlaceLost,
    Preempts,
    Queued,
    RequirementMet,
    Resized,
    Restarted,
    StartAsked,
    Step,
    StopAsked,
    TaskEvent,
    TermsChanged,
    Thawed,
    Unplaced,
    Vanished,
)
from agentless.model.tasks.terms import Terms
from agentless.rules.tasks.lifecycle import apply
from tests.pure.build import CID, NOW, STATES, placement, task

EVENTS: dict[str, TaskEvent] = {
    "blocked by": BlockedBy((Requirement("t0"),)),
    "requirement met": RequirementMet((Requirement("t9"),)),
    "delayed": Delayed(NOW + 60, "tried again"),
    "queued": Queued(),
    "unplaced": Unplaced("held by another"),
    "gave up": GaveUp("10m in the queue"),
    "moved": Moved(Rank((), 1)),
    "assigned": Assigned(placement()),
    "met": Met(Gang(2)),
    "step": Step("pulling busybox"),
    "job queued": JobQueued(CID, "waits for free resources"),
    "launched": Launched(CID),
    "launch failed": LaunchFailed("no such image"),
    "dated": Dated(NOW - 50, NOW - 50),
    "restarted": Restarted(NOW - 5, NOW - 5),
    "adopted": Adopted(),
    "start asked": StartAsked(),
    "not started": NotStarted(Ended("stopped", NOW), "held by another"),
    "resized": Resized(2.0, 1 << 30),
    "preempts": Preempts(KeptPlace("node1", (), ("t2",), NOW + 15)),
    "place lost": PlaceLost("not free in time"),
    "handed over": HandedOver("hpc"),
    "handed back": HandedBack(Refusal("hpc", SlurmCluster(), "Invalid account")),
    "terms changed": TermsChanged(Terms(expires=3600.0)),
    "stop asked": StopAsked("stop"),
    "froze": Froze(),
    "thawed": Thawed(),
    "exited": Exited(0),
    "vanished": Vanished("removed"),
    "lost contact": LostContact("cut off"),
}

# What is not in the table cannot happen and raises.
TABLE: dict[tuple[str, str], str] = (
    {
        ("pending", "blocked by"): "blocked",
        ("blocked", "blocked by"): "blocked",
        ("blocked", "requirement met"): "blocked",
        ("blocked", "delayed"): "scheduled",
        ("blocked", "queued"): "pending",
        ("blocked", "gave up"): "cancelled",
        ("blocked", "stop asked"): "cancelled",
        ("pending", "delayed"): "scheduled",
        ("scheduled", "queued"): "pending",
        ("scheduled", "stop asked"): "cancelled",
        ("pending", "queued"): "pending",
        ("pending", "gave up"): "cancelled",
        ("assigning", "unplaced"): "pending",
        ("lost before an answer", "unplaced"): "pending",
        ("pending", "moved"): "pending",
        ("pending", "preempts"): "pending",
        ("pending", "assigned"): "assigning",
        ("pending", "launch failed"): "failed",
        ("pending", "stop asked"): "cancelled",
        ("assigning", "met"): "assigning",
        ("assigning", "step"): "assigning",
        ("assigning", "launched"): "running",
        ("assigning", "job queued"): "submitted",
        ("submitted", "job queued"): "submitted",
        ("submitted", "launched"): "running",
        ("submitted", "launch failed"): "failed",
        ("submitted", "stop asked"): "submitted",
        ("submitted", "lost contact"): "lost",
        ("running", "job queued"): "submitted",
        ("paused", "job queued"): "submitted",
        ("lost", "job queued"): "submitted",
        ("lost before an answer", "job queued"): "submitted",
        ("ended", "job queued"): "submitted",
        ("assigning", "launch failed"): "failed",
        ("assigning", "stop asked"): "assigning",
        ("assigning", "lost contact"): "lost",
        ("running", "stop asked"): "running",
        ("running", "froze"): "paused",
        ("running", "resized"): "running",
        ("paused", "resized"): "paused",
        ("running", "dated"): "running",
        ("running", "restarted"): "running",
        ("paused", "dated"): "paused",
        ("paused", "restarted"): "running",
        ("ended", "restarted"): "running",
        ("lost before an answer", "step"): "assigning",
        ("lost before an answer", "met"): "lost",
        ("running", "exited"): "completed",
        ("running", "vanished"): "failed",
        ("running", "lost contact"): "lost",
        ("paused", "stop asked"): "paused",
        ("paused", "thawed"): "running",
        ("paused", "exited"): "completed",
        ("paused", "vanished"): "failed",
        ("paused", "lost contact"): "lost",
        ("lost", "launched"): "running",
        ("lost", "lost contact"): "lost",
        ("lost", "stop asked"): "lost",
        ("lost", "exited"): "completed",
        ("lost", "vanished"): "failed",
        ("lost before an answer", "launched"): "running",
        ("lost before an answer", "launch failed"): "failed",
        ("lost before an answer", "stop asked"): "lost",
        ("lost before an answer", "exited"): "completed",
        ("lost before an answer", "vanished"): "failed",
    }
    | {(state, "terms changed"): state.split()[0] for state in STATES if state != "ended"}
    | {(state, "adopted"): "completed" if state == "ended" else state.split()[0] for state in STATES}
)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_every_state_with_every_event(state: str, event: str) -> None:
    before = task("t1", state=state)
    expected = TABLE.get((state, event))
    if expected is None:
        with pytest.raises(IllegalMove) as caught:
            apply(before, EVENTS[event], NOW)
        assert "task t1" in str(caught.value)
        assert caught.value.exit_code == 3
    else:
        assert apply(before, EVENTS[event], NOW).state == expected


def test_the_table_names_all_events_there_are() -> None:
    assert {type(event) for event in EVENTS.values()} == set(get_args(TaskEvent))


def test_a_vps_that_has_ended_is_started_again_and_its_gpus_are_held_meanwhile() -> None:
    box = replace(task(state="ended"), spec=replace(task().spec, workload="vps", name="box"))
    asked = apply(box, StartAsked(), NOW + 10)
    assert (asked.state, asked.placement, asked.live) == ("assigning", box.placement, True)
    assert apply(asked, Launched(CID), NOW + 11).state == "running"
    refused = apply(asked, NotStarted(box.status, "held by another"), NOW + 11)
    assert refused.status == replace(box.status, reason="held by another")


def test_a_stop_before_the_start_wins_over_the_start() -> None:
    stopped = apply(task(state="assigning"), StopAsked("stop"), NOW)
    with pytest.raises(IllegalMove):
        apply(stopped, Unplaced("held by another"), NOW)
    assert apply(stopped, Launched(CID), NOW).stop == "stop"
    assert apply(stopped, LaunchFailed("cut off"), NOW).state == "cancelled"


@pytest.mark.parametrize(
    ("stop", "exited", "state"),
    [
        (None, Exited(0), "completed"),
        (None, Exited(1), "failed"),
        (None, Exited(137), "failed"),
        (None, Exited(None), "failed"),
        (None, Exited(137, oom_killed=True), "killed_oom"),
        (None, Exited(1, oom_killed=True), "killed_oom"),
        (None, Exited(0, oom_killed=True), "completed"),
        ("stop", Exited(143), "stopped"),
        ("stop", Exited(0), "stopped"),
        ("kill", Exited(137), "killed"),
        ("stop", Exited(137, oom_killed=True), "killed_oom"),
    ],
)
def test_the_word_for_an_ending(stop: str | None, exited: Exited, state: str) -> None:
    ended = apply(task(stop=stop), exited, NOW)
    assert (ended.state, ended.status.exit_code) == (state, exited.exit_code)


def test_out_of_memory_and_the_engines_own_error_are_reasons() -> None:
    assert ended_of(task(), Exited(137, oom_killed=True)).reason == "out of memory: killed by the kernel"
    assert ended_of(task(), Exited(128, error="no such device")).reason == "no such device"
    assert ended_of(task(), Exited(1)).reason is None


def ended_of(before: Task, event: TaskEvent, now: float = NOW) -> Ended:
    status = apply(before, event, now).status
    assert isinstance(status, Ended)
    return status


@pytest.mark.parametrize("ran", [0.0, 0.004, 10.0, 59.5])
def test_a_task_lasts_as_long_as_its_engine_measured(ran: float) -> None:
    """It is learned of a minute after the start; the node's clock may show any date."""
    ended = ended_of(task(state="running"), Exited(0, seconds=ran))
    assert ended.ended_at - ended.started_at == pytest.approx(ran, abs=1e-3)
    assert ended.ended_at <= NOW


def test_nothing_began_before_the_task_was_there_or_is_in_the_future() -> None:
    """The node's clock is off by more than is known."""
    early = apply(task(created_at=NOW - 100), Dated(0.0, NOW - 86_400), NOW)
    assert early.status.started_at == NOW - 100
    late = apply(task(), Dated(0.0, NOW + 86_400), NOW)
    assert late.status.started_at == NOW
    ended = ended_of(late, Exited(0, seconds=86_400.0))
    assert (ended.started_at, ended.ended_at) == (NOW, NOW)


def test_a_stop_that_was_asked_keeps_its_grace_and_a_kill_is_not_taken_back() -> None:
    asked = apply(task(), StopAsked("stop", 3600.0), NOW)
    assert (asked.stop, asked.grace) == ("stop", 3600.0)
    assert apply(apply(task(), StopAsked("kill"), NOW), StopAsked("stop"), NOW).stop == "kill"


def test_a_stop_keeps_the_reason_of_the_first_who_asked_for_it() -> None:
    idle = apply(task(), StopAsked("stop", reason="it did nothing"), NOW)
    assert idle.stop_reason == "it did nothing"
    assert apply(idle, StopAsked("kill", reason="maintenance"), NOW).stop_reason == "it did nothing"


@pytest.mark.parametrize("began", [NOW - 60, None])
def test_one_that_ended_unseen_and_lives_runs_since_it_began(began: float | None) -> None:
    over = task(state="ended")
    over = replace(over, status=replace(over.status, exit_code=None, started_at=began))  # type: ignore[arg-type, call-arg]
    status = apply(over, Launched(CID), NOW).status
    assert isinstance(status, Running)
    assert status.started_at == (began or NOW)


@pytest.mark.parametrize(("at_once", "since"), [(True, None), (False, NOW)])
def test_one_that_a_node_has_refused_waits_unless_it_is_known_what_was_in_the_way(
    at_once: bool, since: float | None
) -> None:
    refused = apply(task(state="assigning"), Unplaced("held by another", at_once), NOW)
    assert refused.status == Pending("held by another", since)


@pytest.mark.parametrize(("unfit", "exclude"), [(None, ()), ("node1", ("node1",))])
def test_a_node_that_can_never_start_a_task_is_left_out_from_then_on(unfit: str | None, exclude: tuple[str]) -> None:
    refused = apply(task(state="assigning"), Unplaced("it has no such engine", unfit=unfit), NOW)
    assert refused.spec.needs.exclude == exclude


def test_what_is_assigned_is_signed_from_then_on() -> None:
    assert apply(task(state="pending"), Assigned(placement()), NOW).signed


def test_an_end_without_a_duration_is_when_it_was_noticed() -> None:
    assert ended_of(task(), Exited(0)).ended_at == NOW


def test_a_task_that_was_lost_knows_what_it_was_before() -> None:
    running = task(state="running")
    back = apply(apply(running, LostContact("cut off"), NOW), Launched(CID), NOW + 60)
    assert back == running


class Life(RuleBasedStateMachine):
    """Random lives. GPUs are held from `assigning` to the very end, and the end is final."""

    def __init__(self) -> None:
        super().__init__()
        self.task = task(state="pending")
        self.now = NOW
        self.assigned = False

    @rule(event=st.sampled_from(list(EVENTS.values())), wait=st.floats(0, 1000))
    def something_happens(self, event: TaskEvent, wait: float) -> None:
        before, self.now = self.task, self.now + wait
        try:
            self.task = apply(before, event, self.now)
        except IllegalMove:
            assert self.task == before
            return
        self.assigned = (self.assigned or isinstance(event, Assigned)) and not isinstance(event, (Unplaced, HandedBack))
        assert before.live or self.task == before or isinstance(event, (Restarted, Launched, JobQueued))

    @invariant()
    def gpus_are_held_from_the_assignment_on_unless_the_node_refuses(self) -> None:
        if self.assigned:
            assert self.task.placement == placement()
        else:
            assert self.task.placement is None

    @invariant()
    def a_state_that_has_a_container_names_it(self) -> None:
        if isinstance(self.task.status, (Running, Paused)):
            assert self.task.status.container == CID

    @invariant()
    def times_are_in_order(self) -> None:
        status = self.task.status
        began = getattr(status, "started_at", None)
        if isinstance(status, Ended) and began is not None:
            assert self.task.created_at <= began <= status.ended_at <= self.now
        assert not isinstance(status, Pending) or not self.assigned
        assert not isinstance(status, Lost) or status.reason


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=15)
