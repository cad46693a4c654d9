"""A preemptible task by itself: its options, its place in the queue, how it gives way, and its next try."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.errors import IllegalMove, UsageError
from agentless.model.tasks.spec import check_spec
from agentless.model.tasks.task import Ended, KeptPlace, Pending, Rank, Task
from agentless.model.tasks.task_event import Assigned, Exited, PlaceLost, Preempts, Queued, StopAsked, Unplaced
from agentless.model.tasks.terms import Terms
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.rank import ranks_after_move
from agentless.rules.tasks.due import PLACE_LATE, due
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.preemptible import LEEWAY, asked_at, yields_of
from agentless.rules.tasks.retry import another_try, is_last_try
from tests.pure.build import NOW, placement, spec, task

PLACE = KeptPlace("node1", ("GPU-node1-0",), ("v",), NOW + 15)


def lent(state: str = "running", **terms: Any) -> Task:
    """A preemptible task, which has run for a minute."""
    return task("v", state=state, spec=spec(terms=Terms(preemptible=True, **terms)))


def preempted(victim: Task) -> Task:
    return apply(apply(victim, StopAsked("preempt", reason="for task t of ann"), NOW), Exited(0), NOW + 1)


# ---------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"terms": Terms(min_run=60.0)}, "--min-run and --on-preempt need --preemptible"),
        ({"terms": Terms(on_preempt="end")}, "--min-run and --on-preempt need --preemptible"),
        ({"terms": Terms(preemptible=True, min_run=-1.0)}, "--min-run -1"),
        ({"terms": Terms(preemptible=True, wait_for=0.0)}, "needs --on-preempt end"),
        ({"terms": Terms(preemptible=True), "workload": "vps", "name": "box"}, "a VPS stays until it is stopped"),
    ],
)
def test_what_cannot_be_combined(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_spec(spec(**fields))


def test_a_task_that_waits_at_most_once_may_end_when_it_is_preempted() -> None:
    check_spec(spec(terms=Terms(preemptible=True, wait_for=0.0, on_preempt="end")))


# ---------------------------------------------------------------------- terms


def test_it_gives_way_when_its_least_time_is_over() -> None:
    found = yields_of(lent(min_run=600.0))
    assert found
    assert (found.since, found.within, found.began) == (NOW - 60 + 600, 10 + LEEWAY, NOW - 60)


@pytest.mark.parametrize("state", ["pending", "assigning", "lost", "ended"])
def test_only_one_that_runs_gives_way(state: str) -> None:
    assert yields_of(lent(state)) is None


@pytest.mark.parametrize("how", ["stop", "kill", "timeout", "preempt"])
def test_one_that_is_being_stopped_is_not_preempted(how: Any) -> None:
    assert yields_of(replace(lent(), stop=how)) is None


def test_priority_does_not_make_a_task_preemptible() -> None:
    assert yields_of(task(spec=spec(terms=Terms(priority=-1000)))) is None


def test_a_task_that_leaves_its_gpus_idle_may_be_lent() -> None:
    found = yields_of(task(), lent=NOW - 5)
    assert found
    assert found.since == NOW - 5
    assert yields_of(task(spec=spec(secret_env=("TOKEN",))), lent=NOW - 5) is None


def test_it_is_asked_so_that_it_has_gone_in_time_and_not_before_its_least_time() -> None:
    assert asked_at(lent(), NOW + 100, 5.0) == NOW + 100 - 10 - LEEWAY - 5
    assert asked_at(lent(min_run=60 + 84.0), NOW + 100, 5.0) == NOW + 84


# ---------------------------------------------------------------------- the queue


def waits(name: str, created: float = 0.0, **terms: Any) -> Task:
    return task(name, "1x", "pending", created_at=NOW + created, spec=spec(terms=Terms(**terms)))


def test_preemptible_tasks_come_last_and_who_waits_for_its_place_first() -> None:
    a, b = waits("a", -10, preemptible=True, priority=1000), waits("b", preemptible=True)
    kept = replace(waits("k", 50), status=Pending(place=PLACE))
    assert [each.id for each in order([a, b, waits("n"), waits("p", 9, priority=5), kept])] == list("kpnab")


def test_among_preemptible_tasks_the_owner_with_less_lent_time_comes_first() -> None:
    tasks = [replace(waits(f"{owner}{kind}", preemptible=kind == "p"), owner=owner) for owner in "ab" for kind in "np"]
    assert [each.id for each in order(tasks, {"a": 1.0}, {"b": 1.0})] == ["bn", "an", "ap", "bp"]


def test_nobody_moves_a_preemptible_task_before_one_that_would_preempt_it() -> None:
    queue = order([waits("n"), waits("a", 1, preemptible=True), waits("b", 2, preemptible=True)])
    rank = ranks_after_move(queue, queue[2], 2)
    assert [each.id for each in order([queue[0], queue[1], replace(queue[2], rank=rank["b"])])] == list("nba")
    with pytest.raises(UsageError, match="it is preemptible; use 2 to 3"):
        ranks_after_move(queue, queue[2], 1)
    with pytest.raises(UsageError, match="position 2 is not for task n"):
        ranks_after_move(queue, queue[0], 2)


# ---------------------------------------------------------------------- giving way


def test_it_is_preempted_whatever_it_returns() -> None:
    for code in (0, 1, 143):
        asked = apply(lent(), StopAsked("preempt", reason="for task t of ann"), NOW)
        over = apply(asked, Exited(code), NOW + 1).status
        assert isinstance(over, Ended)
        assert (over.state, over.exit_code, over.reason) == ("preempted", code, "for task t of ann")


def test_one_that_runs_out_of_memory_meanwhile_has_failed() -> None:
    asked = apply(lent(), StopAsked("preempt"), NOW)
    assert apply(asked, Exited(137, oom_killed=True), NOW).state == "killed_oom"


def test_a_stop_by_a_person_wins() -> None:
    asked = apply(lent(), StopAsked("preempt", reason="for task t"), NOW)
    over = apply(apply(asked, StopAsked("stop"), NOW), Exited(0), NOW)
    assert over.state == "stopped"
    assert another_try(asked, over, NOW) is None


@pytest.mark.parametrize("how", ["stop", "kill", "timeout", "preempt"])
def test_nobody_is_preempted_who_is_being_stopped(how: Any) -> None:
    with pytest.raises(IllegalMove, match="cannot be preempted"):
        apply(replace(lent(), stop=how), StopAsked("preempt"), NOW)


@pytest.mark.parametrize("state", ["pending", "scheduled"])
def test_a_task_in_the_queue_is_not_preempted(state: str) -> None:
    with pytest.raises(IllegalMove):
        apply(lent(state), StopAsked("preempt"), NOW)


# ---------------------------------------------------------------------- the next try


def test_it_goes_back_to_the_queue_with_its_age_and_its_place_and_spends_no_try() -> None:
    victim = replace(lent(retries=1), rank=Rank((), 3))
    over = preempted(victim)
    assert over.state == "preempted"
    found = another_try(victim, over, NOW + 1)
    assert found
    again, event = found
    assert isinstance(event, Queued)
    assert (again.id, again.created_at, again.rank, again.queued_at) == ("v-2", victim.created_at, victim.rank, NOW + 1)
    assert (again.tries, again.preemptions, again.stop, again.state) == (1, 1, None, "pending")


def test_after_that_it_has_as_many_tries_as_before() -> None:
    victim = lent(retries=1)
    found = another_try(victim, preempted(victim), NOW)
    assert found
    runs = replace(found[0], status=victim.status)
    failed = apply(runs, Exited(1), NOW)
    retried = another_try(runs, failed, NOW)
    assert retried
    assert (retried[0].id, retried[0].tries) == ("v-3", 2)
    assert getattr(retried[1], "reason", "").startswith("try 2 of 2")
    last = replace(retried[0], status=victim.status)
    assert another_try(last, apply(last, Exited(1), NOW), NOW) is None


def test_one_that_is_to_end_ends() -> None:
    victim = lent(on_preempt="end", retries=3)
    assert another_try(victim, preempted(victim), NOW) is None


def test_its_secrets_stay_while_it_may_run_again() -> None:
    assert not is_last_try(lent())
    assert is_last_try(lent(on_preempt="end"))
    assert is_last_try(task())


def test_a_wait_in_the_queue_counts_from_when_it_came_back() -> None:
    victim = lent(wait_for=50.0)
    found = another_try(victim, preempted(victim), NOW + 1000)
    assert found
    coming = due(found[0])
    assert coming
    assert coming.at == NOW + 1050


# ---------------------------------------------------------------------- who asks


def test_a_task_asks_others_to_give_way_only_once() -> None:
    asks = apply(task(state="pending"), Preempts(PLACE), NOW)
    assert (asks.kept_place, asks.victims) == (PLACE, ("v",))
    with pytest.raises(IllegalMove):
        apply(asks, Preempts(PLACE), NOW)
    left = apply(asks, PlaceLost("its place on node1 did not become free in time"), NOW)
    assert (left.kept_place, left.victims, left.state) == (None, ("v",), "pending")
    with pytest.raises(IllegalMove):
        apply(left, Preempts(PLACE), NOW)


def test_nor_again_after_its_node_has_refused_it() -> None:
    asks = apply(task(state="pending"), Preempts(PLACE), NOW)
    again = apply(apply(asks, Assigned(placement()), NOW), Unplaced("held by another"), NOW)
    assert (again.victims, again.kept_place) == (("v",), None)


def test_a_place_that_does_not_become_free_is_given_up_and_until_then_nobody_stops_waiting() -> None:
    asks = replace(task(state="pending", spec=spec(terms=Terms(wait_for=1.0))), status=Pending(place=PLACE))
    coming = due(asks)
    assert coming
    assert (coming.at, type(coming.event)) == (PLACE.until + PLACE_LATE, PlaceLost)
