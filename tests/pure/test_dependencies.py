"""What follows for a task that waits for others, and what a plan promises it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.model.tasks.job import Job
from agentless.model.tasks.requirement import MAX_REQUIREMENTS, Requirement, check_requirements, parse_requirements
from agentless.model.tasks.task import FAILED, STATES, Blocked, Pending, Running, Task
from agentless.model.tasks.task_event import BlockedBy, Delayed, GaveUp, Queued, RequirementMet, TaskEvent
from agentless.rules.explain.waits import coming, waits_for
from agentless.rules.scheduling import plan as planning
from agentless.rules.scheduling.plan import Plan, Promise, plan
from agentless.rules.scheduling.prerequisites import foreseeable, in_turn
from agentless.rules.tasks.dependencies import REMOVED, Standing, follow, verdict, why_impossible
from tests.pure.build import CID, NOW, cluster, seen
from tests.pure.test_plan import POLICIES, later, places, promises, runs, wish
from tests.pure.test_promises import broken

ENDS = [
    state
    for state in STATES
    if state not in ("blocked", "scheduled", "pending", "assigning", "running", "paused", "lost")
]


def standing(**ends: str | None) -> Standing:
    found = Standing()
    for name, end in ends.items():
        found.put(name, end)
    return found


def blocked(name: str, *on: str | Requirement, target: str = "1x", limit: float | None = None, **fields: Any) -> Task:
    requires = tuple(each if isinstance(each, Requirement) else Requirement(each) for each in on)
    return replace(wish(name, target, limit, **fields), status=Blocked(requires))


# ---------------------------------------------------------------------- rules


@pytest.mark.parametrize("end", [*ENDS, REMOVED, "preempted"])
@pytest.mark.parametrize("state", ["completed", "failed", "ended"])
@pytest.mark.parametrize("batch", [False, True])
def test_an_end_meets_a_requirement_or_makes_it_impossible(end: str, state: Any, batch: bool) -> None:
    requirement = Requirement("t", state, batch, 1 if batch else 0)
    good = {"completed": end == "completed", "failed": end in FAILED, "ended": True}[state]
    assert verdict(requirement, standing(t=end)) == ("met" if good else "impossible")
    assert verdict(requirement, standing(t=None)) == "open"
    if not good:
        assert why_impossible(requirement, standing(t=end)).startswith("needs ")


@pytest.mark.parametrize(
    ("state", "ends", "expected"),
    [
        ("completed", {"a": "completed", "b": None}, "open"),
        ("completed", {"a": "failed", "b": None}, "impossible"),
        ("completed", {"a": "completed", "b": "completed"}, "met"),
        ("failed", {"a": "failed", "b": None}, "open"),
        ("failed", {"a": "failed", "b": "completed"}, "met"),
        ("failed", {"a": "stopped", "b": "completed"}, "impossible"),
        ("ended", {"a": "stopped", "b": None}, "open"),
        ("ended", {"a": "stopped", "b": "failed"}, "met"),
        ("completed", {"a": "completed"}, "impossible"),
        ("failed", {"a": "failed"}, "met"),
        ("failed", {"a": "completed"}, "impossible"),
        ("ended", {"a": "completed"}, "met"),
    ],
)
def test_a_batch_counts_as_a_whole_also_without_a_task_that_was_removed(state: Any, ends: Any, expected: str) -> None:
    assert verdict(Requirement("a", state, batch=True, members=2), standing(**ends)) == expected


ONE_OF = (Requirement("a", "failed", one_of=1), Requirement("b", "failed", one_of=1), Requirement("c"))


@given(st.fixed_dictionaries({name: st.sampled_from(ENDS) for name in "abc"}), st.permutations("abc"))
@settings(max_examples=60)
def test_of_several_that_are_required_together_all_end_and_one_fails(ends: dict[str, Any], order: list[str]) -> None:
    task, now = blocked("x", *ONE_OF), dict[str, str | None](dict.fromkeys("abc"))
    event: TaskEvent | None = None
    for name in order:
        now[name] = ends[name]
        event = follow(task, lambda one: standing(**{one.on: now[one.on]}), NOW)
        if isinstance(event, BlockedBy | RequirementMet):
            task = replace(task, status=Blocked(event.on))
        elif event:
            break
    possible = ends["c"] == "completed" and (ends["a"] in FAILED or ends["b"] in FAILED)
    assert isinstance(event, Queued if possible else GaveUp)
    if possible:
        assert None not in now.values()


def test_a_job_is_named_to_others_of_its_workflow_and_by_its_id_to_all_others() -> None:
    ended, outside = standing(a="failed"), blocked("x", Requirement("a"))
    ended.jobs["a"] = "train[lr=1]"
    assert follow(outside, lambda _: ended, NOW) == GaveUp("needs task a to complete, but it failed")
    inside = replace(outside, spec=replace(outside.spec, job=Job("b", "w")))
    assert follow(inside, lambda _: ended, NOW) == GaveUp("needs job train[lr=1] to complete, but it failed")


GANGS = {"a": "ac", "b": "bd"}
"""The members of the gangs a and b, by the first of each."""


@given(st.fixed_dictionaries({name: st.sampled_from(ENDS) for name in "abcd"}), st.permutations("abcd"))
@settings(max_examples=60)
def test_of_gangs_that_are_required_together_all_members_end_and_one_fails(ends: dict[str, Any], order: str) -> None:
    task, now = blocked("x", *ONE_OF[:2]), dict[str, str | None](dict.fromkeys("abcd"))
    event: TaskEvent | None = None
    for name in order:
        now[name] = ends[name]
        event = follow(task, lambda one: standing(**{each: now[each] for each in GANGS[one.on]}), NOW)
        if isinstance(event, BlockedBy | RequirementMet):
            task = replace(task, status=Blocked(event.on))
        elif event:
            break
    assert isinstance(event, Queued if set(FAILED) & set(ends.values()) else GaveUp)
    assert None not in now.values()


def test_several_that_are_required_together_are_told_as_one() -> None:
    assert waits_for(ONE_OF) == "waits for one of the tasks a and b to fail and task c"
    gone = what_follows(blocked("x", *ONE_OF), a="stopped", b="completed", c=None)
    assert gone == GaveUp("needs one of the tasks a and b to fail, but none failed")


def what_follows(of: Task, **ends: str | None) -> TaskEvent | None:
    return follow(of, lambda each: standing(**{each.on: ends[each.on]}), NOW)


def with_terms(of: Task, **terms: Any) -> Task:
    return replace(of, spec=replace(of.spec, terms=replace(of.spec.terms, **terms)))


def test_what_follows_for_one_that_waits_for_two() -> None:
    both = blocked("c", "a", "b")
    rest = (Requirement("b"),)
    assert what_follows(both, a=None, b=None) is None
    assert what_follows(both, a="completed", b=None) == RequirementMet(rest)
    assert what_follows(both, a="completed", b="completed") == Queued()
    assert what_follows(both, a=None, b="timeout") == GaveUp("needs task b to complete, but it reached its time limit")
    assert what_follows(replace(both, status=Blocked(rest)), b="completed") == Queued()  # whatever became of a


def test_one_that_was_told_to_wait_knows_why_until_that_is_tried_again() -> None:
    patient = with_terms(blocked("b", "a"), if_impossible="wait")
    event = what_follows(patient, a="failed")
    assert event == BlockedBy((Requirement("a"),), "needs task a to complete, but it failed")
    told = replace(patient, status=Blocked(event.on, event.reason))
    assert what_follows(told, a="failed") is None
    assert what_follows(told, a=None) == BlockedBy((Requirement("a"),))


def test_its_start_time_counts_after_its_requirements() -> None:
    assert what_follows(with_terms(blocked("b", "a"), start_at=NOW + 60), a="completed") == Delayed(NOW + 60)
    assert what_follows(with_terms(blocked("b", "a"), start_at=NOW - 60), a="completed") == Queued()


def test_one_that_is_to_be_stopped_goes_nowhere() -> None:
    assert what_follows(replace(blocked("b", "a"), stop="stop"), a="completed") is None


def test_requirements_are_read_as_they_are_typed() -> None:
    assert parse_requirements(["a,b:failed", "c:ended"], "--after") == (
        Requirement("a"),
        Requirement("b", "failed"),
        Requirement("c", "ended"),
    )
    assert [str(each) for each in parse_requirements(["a,b:failed,a:completed"], "--after")] == ["a", "b:failed"]


@pytest.mark.parametrize("text", ["", "a,", ":failed", "a:done", "a:", "a\tb", "a" * 300])
def test_what_names_no_task_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_requirements([text], "--after")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_requirements_are_bounded() -> None:
    most = tuple(Requirement(f"t{n}") for n in range(MAX_REQUIREMENTS))
    check_requirements(most, "wait")
    with pytest.raises(UsageError, match="the limit is 1,000"):
        check_requirements((*most, Requirement("one")), None)
    with pytest.raises(UsageError, match="use cancel or wait"):
        check_requirements(most, "maybe")


ends = st.sampled_from([None, None, "completed", "completed", "failed", "stopped"])


@given(
    st.lists(st.tuples(st.sampled_from(["completed", "failed", "ended"]), st.integers(0, 2), ends, ends), min_size=1)
)
def test_a_look_at_what_has_changed_finds_what_a_look_at_all_finds(
    given: list[tuple[Any, int, str | None, str | None]],
) -> None:
    on = [
        Requirement(f"t{at}", "failed" if one_of else state, one_of=one_of)
        for at, (state, one_of, *_) in enumerate(given)
    ]
    before, now = ({f"t{at}": each[place] for at, each in enumerate(given)} for place in (2, 3))
    task = blocked("t", *on)
    match follow(task, lambda one: standing(**{one.on: before[one.on]}), NOW):
        case RequirementMet(left) | BlockedBy(left):
            task = replace(task, status=Blocked(left))
        case event if event is not None:
            return
    assert isinstance(task.status, Blocked)
    changed = [each for each in task.status.on if now[each.on] != before[each.on]]
    expected = follow(task, lambda one: standing(**{one.on: now[one.on]}), NOW)
    assert follow(task, lambda one: standing(**{one.on: now[one.on]}), NOW, changed[::-1]) == expected


# ---------------------------------------------------------------------- words


def test_what_is_waited_for_in_words() -> None:
    a, b = Requirement("a"), Requirement("b", "ended", batch=True)
    assert waits_for([a, b]) == "waits for task a and batch b to end"
    assert waits_for([a] * 5) == "waits for task a, task a and 3 more"
    assert waits_for([a], lambda _: " (running)") == "waits for task a (running)"


@pytest.mark.parametrize(
    ("before", "promise", "words"),
    [
        (runs("a", "node1::0", 60, 3660), None, " (running, ends within 1h 0m)"),
        (runs("a", "node1::0"), None, " (running without a time limit)"),
        (wish("a"), None, " (pending)"),
        (wish("a", limit=60), Promise("node1", NOW + 60), " (pending, ends within 2m 0s)"),
        (wish("a", limit=60), Promise("node1", NOW + 60, about=True), " (pending)"),
        (with_terms(runs("a", "node1::0", 0, 60), retries=1), None,
         " (running, ends within 1m 0s unless it is retried)"),
    ],
)  # fmt: skip
def test_until_when_it_is_waited_for(before: Task, promise: Promise | None, words: str) -> None:
    assert coming(before, promise, NOW) == words


# ---------------------------------------------------------------------- promises

HOUR = 3600.0


def look(gpus: int, running: list[Task], *queue: Task, before: Plan | None = None) -> Plan:
    on = cluster(seen(gpus=gpus), tuple(running))
    return plan(on, queue, NOW, POLICIES, before, placed=[*running, *queue])


def test_a_blocked_task_is_promised_the_place_of_the_one_before_it() -> None:
    """Where that one ends, although another GPU is free."""
    a = runs("a", "node1::1", 0, HOUR)
    found = look(3, [a], blocked("b", "a", limit=HOUR), blocked("c", "b", limit=HOUR), wish("d"), wish("e"))
    assert places(found) == {"d": "node1::0", "e": "node1::2"}
    assert promises(found) == {"b": ("node1", HOUR), "c": ("node1", 2 * HOUR)}


def test_its_place_is_kept_from_those_behind_it_and_not_from_those_in_front() -> None:
    a = runs("a", "node1::0", 0, HOUR)
    large = blocked("b", "a", target="2x", limit=HOUR)
    assert places(look(2, [a], large, wish("short", limit=HOUR), wish("long"))) == {"short": "node1::1"}
    assert places(look(2, [a], wish("long"), large)) == {"long": "node1::1"}


@pytest.mark.parametrize("before", [runs("a", "node1::0"), wish("a", "3x"), None])
def test_without_a_known_end_before_it_nothing_is_promised_and_nothing_kept_free(before: Task | None) -> None:
    there = [before] if before else []
    on = cluster(seen(gpus=2), [each for each in there if each.placement])
    queue = [*(each for each in there if not each.placement), blocked("b", "a", target="2x", limit=HOUR), wish("c")]
    found = plan(on, queue, NOW, POLICIES, placed=[*there, *queue])
    assert (list(found.starts), found.promises.get("b")) == (["c"], None)


def test_a_promise_is_an_estimate_if_the_one_before_may_be_tried_again() -> None:
    a = with_terms(runs("a", "node1::0", 0, HOUR), retries=2)
    (promise,) = look(1, [a], blocked("b", "a", limit=HOUR)).promises.values()
    assert promise is not None
    assert promise.about


def test_a_promise_is_an_estimate_if_the_one_before_has_to_fail() -> None:
    (promise,) = look(1, [runs("a", "node1::0", 0, HOUR)], blocked("b", Requirement("a", "failed"))).promises.values()
    assert promise is not None
    assert promise.about


def test_a_batch_is_waited_for_until_its_last_task_ends() -> None:
    whole = Requirement("x", "ended", batch=True, members=3)
    members = [replace(runs(f"x{n}", f"node1::{n}", 0, n * HOUR + HOUR), batch="x") for n in range(2)]
    waiting = replace(wish("x2", limit=HOUR), batch="x")
    found = look(2, members, waiting, blocked("b", whole, limit=HOUR))
    assert promises(found) == {"x2": ("node1", HOUR), "b": ("node1", 2 * HOUR)}
    later_on = replace(waiting, id="x3", status=Blocked((Requirement("nobody"),)))
    assert "b" not in promises(look(2, members, later_on, blocked("b", whole, limit=HOUR)))


def test_only_the_first_of_many_blocked_tasks_are_planned() -> None:
    tasks = {f"t{n}": blocked(f"t{n}", f"t{n - 1}") for n in range(1, 1000)} | {"t0": runs("t0", "node1::0", 0, HOUR)}
    queue = list(tasks.values())[:-1]
    found = foreseeable(queue, tasks.get, planning.PROMISES)
    assert [each.id for each in found] == [f"t{n}" for n in range(1, planning.PROMISES + 1)]
    assert foreseeable(queue[1:], tasks.get, planning.PROMISES) == []


def test_a_blocked_task_comes_behind_those_it_waits_for_and_in_front_of_all_others() -> None:
    batch = [replace(wish(f"x{n}"), batch="x") for n in range(2)]
    queue = [blocked("c", "b"), blocked("d", Requirement("x", batch=True)), wish("y"), batch[0], blocked("b", "a")]
    queue += [wish("a"), wish("z"), batch[1], wish("last")]
    assert [each.id for each in in_turn(queue)] == ["y", "x0", "a", "b", "c", "z", "x1", "d", "last"]


tens = st.integers(1, 6).map(lambda number: 10.0 * number)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_promises_are_kept_and_no_blocked_task_starts(data: st.DataObject) -> None:
    """Whatever ends has completed, at its limit or before, and looks come at any time."""
    draw = data.draw
    tasks: dict[str, Task] = {}
    for number in range(draw(st.integers(2, 9))):
        name, target = f"t{number}", f"{draw(st.integers(1, 3))}x"
        on = draw(st.sets(st.sampled_from(sorted(tasks)), max_size=2)) if tasks else ()
        limited = wish(name, target, draw(tens))
        tasks[name] = replace(limited, status=Blocked(tuple(map(Requirement, sorted(on))))) if on else limited
    order, node = draw(st.permutations(sorted(tasks))), cluster(seen(gpus=3))
    now, found, ends, is_early = NOW, Plan(), dict[str, float](), False
    while tasks:
        queue = [tasks[name] for name in order if name in tasks and not tasks[name].placement]
        running = [each for each in tasks.values() if each.placement]
        before, found = found, plan(later(node, running, now), queue, now, POLICIES, found, placed=tasks.values())
        # The order of the plan: a blocked task stands behind those that it waits for.
        assert not broken(before, found, in_turn(queue), now)
        for name, at in found.starts.items():
            assert isinstance(tasks[name].status, Pending)
            tasks[name] = replace(tasks[name], status=Running(at, CID, now))
            limit = tasks[name].spec.terms.time_limit or 0.0
            ends[name] = now + limit * draw(st.sampled_from([1.0, 1.0, 0.9, 0.3]))
        assert ends, "nothing runs, and something waits"
        is_early = not is_early and draw(st.booleans())
        now = max(now, min(ends.values()) - (0.001 if is_early else 0.0))
        for name in [name for name, end in ends.items() if end <= now]:
            del tasks[name], ends[name]
        for name, each in tasks.items():
            if isinstance(each.status, Blocked):
                rest = tuple(one for one in each.status.on if one.on in tasks)
                tasks[name] = replace(each, status=Blocked(rest) if rest else Pending())
