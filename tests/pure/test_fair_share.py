"""Who comes first: GPU-hours that decay, turns, and what both come to in the long run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.scheduling.needs import Needs, parse_target
from agentless.model.tasks.task import Task
from agentless.model.tasks.terms import Terms
from agentless.model.usage.run import kind_of, run_of
from agentless.rules.scheduling.order import order
from agentless.rules.usage.fair_share import (
    CPU_ONLY,
    HALF_LIFE,
    TURN,
    Use,
    decayed,
    expected,
    live_uses,
    shares,
    sum_by_owner,
    use_of,
    used_hours,
)
from agentless.stores.records.history import History
from tests.pure.build import NOW, spec, task

HOUR = 3600.0


def waits(
    name: str, owner: str, age: float = 0.0, gpus: int = 1, priority: int = 0, limit: float | None = None
) -> Task:
    wanted = spec(needs=Needs(gpus=gpus, nodes=("node1",)), terms=Terms(priority=priority, time_limit=limit))
    return replace(task(name, state="pending", spec=wanted, owner=owner), created_at=NOW - age)


def names(tasks: list[Task]) -> str:
    return " ".join(one.id for one in tasks)


# ------------------------------------------------------------------ the measure


def test_what_was_used_a_half_life_ago_counts_half() -> None:
    (hours,) = used_hours([Use("ann", 4, NOW - HALF_LIFE - 1, NOW - HALF_LIFE + 1)], NOW, HALF_LIFE).values()
    assert hours == pytest.approx(4 * 2 / HOUR / 2)


def test_what_is_used_just_now_counts_in_full() -> None:
    assert used_hours([Use("ann", 2, NOW - HOUR, NOW)], NOW, 1e9) == {"ann": pytest.approx(2, rel=1e-3)}


uses = st.builds(
    lambda owner, gpus, begin, length: Use(owner, gpus, NOW + begin, NOW + begin + length),
    st.sampled_from(["ann", "bob"]),
    st.floats(0.1, 8),
    st.floats(-1e6, 1e6),
    st.floats(0, 1e6),
)
half_lives = st.floats(60, 1e7)


@given(uses, half_lives, st.floats(0, 1))
def test_a_run_counts_as_much_as_its_two_parts(use: Use, half_life: float, at: float) -> None:
    middle = use.begin + (use.end - use.begin) * at
    parts = [replace(use, end=middle), replace(use, begin=middle)]
    assert used_hours(parts, NOW, half_life) == pytest.approx(used_hours([use], NOW, half_life), abs=1e-6)


@given(st.lists(uses), half_lives, st.floats(0, 1e6))
def test_what_is_kept_as_a_sum_decays_like_the_runs_themselves(many: list[Use], half_life: float, later: float) -> None:
    over = [replace(use, begin=min(use.begin, NOW), end=min(use.end, NOW)) for use in many]
    kept = decayed(used_hours(over, NOW, half_life), later, half_life)
    assert kept == pytest.approx(used_hours(over, NOW + later, half_life), rel=1e-5, abs=1e-6)


@given(st.lists(uses), half_lives)
def test_nobody_has_used_less_than_nothing_or_more_than_was_there(many: list[Use], half_life: float) -> None:
    plain = sum_by_owner({"ann": 0.0, "bob": 0.0}, {})
    for use in many:
        plain[use.owner] += use.gpus * (use.end - use.begin) / HOUR
    for owner, hours in used_hours(many, NOW, half_life).items():
        assert 0 <= hours <= plain[owner] * (1 + 1e-9) + 1e-9


# -------------------------------------------------------------------- the order


def test_who_has_used_less_comes_first_whoever_is_older() -> None:
    queue = [waits("a0", "ann", 9), waits("b0", "bob", 1)]
    assert names(order(queue, {"ann": 5, "bob": 4})) == "b0 a0"
    assert names(order(queue, {"ann": 4, "bob": 5})) == "a0 b0"


def test_who_has_used_nothing_is_ahead_by_as_many_tasks_as_the_other_has_used_hours() -> None:
    ann = [waits(f"a{n}", "ann", 20 - n) for n in range(2)]
    bob = [waits(f"b{n}", "bob", 9 - n) for n in range(4)]
    assert names(order([*ann, *bob], {"ann": 2.5})) == "b0 b1 b2 a0 b3 a1"


def test_a_priority_stands_above_every_share() -> None:
    assert names(order([waits("a0", "ann", priority=1), waits("b0", "bob", 5)], {"ann": 1e6})) == "a0 b0"


def test_a_task_counts_by_its_limit_and_by_a_day_at_most() -> None:
    assert expected(waits("a", "ann", gpus=2, limit=1.5 * HOUR)) == 3
    assert expected(waits("a", "ann", gpus=2)) == 2
    assert expected(waits("a", "ann", limit=365 * 24 * HOUR)) == 24


def test_tasks_without_a_gpu_count_a_little() -> None:
    ann = [waits(f"a{n}", "ann", 20 - n, gpus=0) for n in range(12)]
    assert names(order([*ann, waits("b0", "bob", 1), waits("b1", "bob")])).split().index("b1") == 12
    assert expected(ann[0]) == CPU_ONLY


queues = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", "eve"]), st.integers(0, 9), st.integers(0, 4), st.integers(-1, 1)),
    max_size=15,
)
used_by = st.dictionaries(st.sampled_from(["ann", "bob", "eve"]), st.floats(0, 20))


def _tasks(drawn: list[tuple[str, int, int, int]]) -> list[Task]:
    return [waits(f"t{n:02}", owner, age, gpus, priority) for n, (owner, age, gpus, priority) in enumerate(drawn)]


@given(queues, used_by, st.sampled_from(["ann", "bob", "eve"]), st.integers(0, 4))
def test_who_comes_last_changes_nothing_among_those_before(
    drawn: list[tuple[str, int, int, int]], used: dict[str, float], owner: str, gpus: int
) -> None:
    queue = _tasks(drawn)
    last = waits("zz", owner, -1, gpus, priority=-1)
    assert [one for one in order([*queue, last], used) if one is not last] == order(queue, used)


@given(queues, used_by, st.sampled_from(["ann", "bob", "eve"]), st.integers(0, 9), st.integers(-1, 1))
def test_a_new_task_of_one_owner_never_changes_the_order_of_the_others_among_themselves(
    drawn: list[tuple[str, int, int, int]], used: dict[str, float], owner: str, age: int, priority: int
) -> None:
    queue = _tasks(drawn)
    with_it = order([*queue, waits("t00a", owner, age, priority=priority)], used)
    others = [one.id for one in order(queue, used) if one.owner != owner]
    assert [one.id for one in with_it if one.owner != owner] == others


@given(queues, used_by)
def test_those_of_one_owner_keep_their_age(drawn: list[tuple[str, int, int, int]], used: dict[str, float]) -> None:
    queue = _tasks(drawn)
    for owner in ("ann", "bob", "eve"):
        mine = [one for one in order(queue, used) if one.owner == owner]
        assert mine == sorted(mine, key=lambda one: (-one.spec.terms.priority, one.created_at, one.id))


@given(st.floats(0, 1e4), st.integers(1, 8), st.floats(60, 86400))
def test_equal_usage_gives_turns_by_age(used: float, gpus: int, limit: float) -> None:
    ann = [waits(f"a{n}", "ann", 20 - n, gpus, limit=limit) for n in range(4)]
    bob = [waits(f"b{n}", "bob", 9 - n, gpus, limit=limit) for n in range(4)]
    assert names(order([*ann, *bob], {"ann": used, "bob": used})) == "a0 b0 a1 b1 a2 b2 a3 b3"


@given(queues, used_by)
def test_the_start_of_the_first_changes_nothing_for_the_others(
    drawn: list[tuple[str, int, int, int]], used: dict[str, float]
) -> None:
    """Its hours are expected in the queue and when it runs: nobody gains or loses a turn by it."""
    found = order(_tasks(drawn), used)
    if found:
        first, rest = found[0], found[1:]
        hours = used_hours([Use(first.owner, expected(first), NOW, NOW + TURN)], NOW, HALF_LIFE)
        assert order(rest, sum_by_owner(used, hours)) == rest


# ------------------------------------------------------------------ in the long run


class Machine:
    """So many GPUs on which two owners, who have tasks waiting at any time, run tasks of equal length."""

    def __init__(self, gpus: int, length: float, before: dict[str, float], half_life: float) -> None:
        self.free, self.length, self.half_life, self.now = gpus, length, half_life, NOW
        self.used_before = dict(before)
        self.runs: list[Use] = []
        self.ends: list[float] = []
        self.started = 0

    def counted(self) -> dict[str, float]:
        before = decayed(self.used_before, self.now - NOW, self.half_life)
        return sum_by_owner({"ann": 0.0, "bob": 0.0} | before, used_hours(self.runs, self.now, self.half_life))

    def step(self) -> str:
        """Start the one whose turn it is, as soon as there is a GPU; who that was."""
        if not self.free:
            self.now = heapq.heappop(self.ends)
            self.free += 1
        ann = [waits(f"a{n}", "ann", limit=self.length) for n in range(2)]
        bob = [waits(f"b{n}", "bob", limit=self.length) for n in range(2)]
        owner = order([*ann, *bob], self.counted())[0].owner
        self.runs.append(Use(owner, 1, self.now, self.now + self.length))
        heapq.heappush(self.ends, self.now + self.length)
        self.free -= 1
        return owner


@given(
    st.integers(1, 6),
    st.floats(600, 86400),
    st.floats(0, 40),
    st.floats(0, 40),
    st.floats(86400, 30 * 86400),
)
@settings(max_examples=50)
def test_fair_share_converges(gpus: int, length: float, ann: float, bob: float, half_life: float) -> None:
    """Whatever was before, the difference becomes less than one task and stays so, and neither starves on the way."""
    worth = length / HOUR
    machine = Machine(gpus, length, {"ann": ann * worth, "bob": bob * worth}, half_life)
    turns = [machine.step() for _ in range(80)]  # 40 at most to make up for the past, each by one
    for _ in range(24):
        turns.append(machine.step())
        assert abs(machine.counted()["ann"] - machine.counted()["bob"]) <= worth * (1 + 1e-6)
    for owner in ("ann", "bob"):
        assert owner in turns[: 48 + gpus]
        assert turns[-24:].count(owner) >= 8


# ------------------------------------------------------------- what is counted of tasks


def test_jobs_of_clusters_count_for_nothing_before_and_after_their_end(tmp_path: Path) -> None:
    job = task("t1", "hpc")
    job = replace(job, status=replace(job.status, container="7:agentless-t1"))
    assert live_uses([job], NOW) == []
    history = History(tmp_path / "history")
    for name, container in (("t1", "7:agentless-t1"), ("t2", "c" * 64)):
        ended = task(name, "hpc", "ended")
        history.add(replace(ended, status=replace(ended.status, container=container)))
    assert [run.away for run in history.runs(0.0, 10)] == [True, False]


def test_a_live_task_counts_up_to_its_expected_end() -> None:
    limited = spec(needs=parse_target("node1::0,1"), terms=Terms(time_limit=7200))
    (use,) = live_uses([task("t1", "node1::0,1", spec=limited, owner="ann")], NOW)
    assert use == Use("ann", 2, NOW - 60, NOW - 60 + 7200)


@pytest.mark.parametrize(("state", "since"), [("paused", 60), ("lost", 90), ("assigning", 60)])
def test_whatever_holds_its_gpus_counts_from_its_start(state: str, since: float) -> None:
    assert [use.begin for use in live_uses([task(state=state)], NOW)] == [NOW - since]


@pytest.mark.parametrize("state", ["pending", "ended"])
def test_what_holds_nothing_does_not_count(state: str) -> None:
    assert live_uses([task(state=state)], NOW) == []


def test_a_run_past_its_limit_counts_until_now() -> None:
    late = task("t1", spec=spec(needs=parse_target("node1::0"), terms=Terms(time_limit=30)))
    assert [use.end for use in live_uses([late], NOW)] == [NOW]


def test_shares_tell_what_the_queue_goes_by() -> None:
    running, waiting = task("t1", owner="ann"), waits("t2", "bob")
    uses = live_uses([running], NOW)
    first, second = shares({"bob": 0.25, "eve": 0.001}, uses, [running, waiting], NOW, HALF_LIFE)
    assert (first.owner, first.gpu_hours, first.running, first.gpus, first.waiting) == ("bob", 0.25, 0, 0, 1)
    assert (second.owner, second.running, second.gpus, second.waiting) == ("ann", 1, 1, 0)
    assert (round(second.gpu_hours * 3600), second.counted) == (61, pytest.approx(1, rel=1e-3))


@pytest.mark.parametrize(("limit", "end"), [(None, NOW - 60 + TURN), (365 * 24 * HOUR, NOW + 24 * HOUR)])
def test_what_has_no_limit_is_expected_to_take_an_hour_and_nothing_more_than_a_day(
    limit: float | None, end: float
) -> None:
    running = task("t1", spec=spec(needs=parse_target("node1::0"), terms=Terms(time_limit=limit)))
    assert [use.end for use in live_uses([running], NOW)] == [end]


@pytest.mark.parametrize("began", [NOW + 30, None])
def test_nothing_counts_from_a_time_to_come(began: float | None) -> None:
    """The clock of a node may be ahead, or its start is not known yet."""
    running = task("t1")
    running = replace(running, status=replace(running.status, started_at=began))  # type: ignore[arg-type, call-arg]
    assert [use.begin for use in live_uses([running], NOW)] == [NOW]


def test_who_has_used_next_to_nothing_is_not_listed() -> None:
    assert [share.owner for share in shares({"ann": 0.005, "bob": 0.0049}, [], [], NOW, HALF_LIFE)] == ["ann"]


def test_who_only_waits_has_used_nothing() -> None:
    (share,) = shares({}, [], [waits("t1", "bob")], NOW, HALF_LIFE)
    assert (share.owner, share.gpu_hours, share.running, share.waiting, share.counted) == ("bob", 0, 0, 1, 0)


def test_what_is_held_is_told_in_tasks_and_in_whole_gpus() -> None:
    held = [Use("ann", gpus, NOW - 1, NOW + 1) for gpus in (CPU_ONLY, 1, 2)]
    (share,) = shares({}, [*held, Use("bob", 4, NOW - 1, NOW + 1)], [], NOW, HALF_LIFE)[:1]
    assert (share.owner, share.running, share.gpus, share.waiting) == ("ann", 3, 3, 0)


def test_hours_are_told_to_the_thousandth_up_to_now_and_counted_up_to_the_end() -> None:
    """Two GPUs, 1000 s ago to 1000 s from now."""
    (share,) = shares({"ann": 1.0}, [Use("ann", 2, NOW - 1000, NOW + 1000)], [], NOW, 1e12)
    assert (share.gpu_hours, share.counted) == (1.556, 2.111)


# ------------------------------------------------------------------- the history


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    opened = History(tmp_path / "history.sqlite")
    yield opened
    opened.close()


def ended(name: str, at: float, **fields: object) -> Task:
    over = task(name, "node1::0,1", "ended", **fields)
    return replace(over, status=replace(over.status, ended_at=at, started_at=at - 50))  # type: ignore[arg-type, call-arg]


def test_the_runs_of_the_history_are_those_of_its_tasks(history: History) -> None:
    kept = [ended(f"t{n}", NOW + n, owner=f"o{n}", spec=spec("python", "x.py", "--lr", "1")) for n in range(3)]
    for one in kept:
        history.add(one)
    assert history.runs(NOW, 10) == [run_of(one, 0.0) for one in kept[1:]]
    assert [run.owner for run in history.runs(0, 2)] == ["o1", "o2"]
    assert history.runs(0, 1)[0].kind == kind_of("o2", "busybox", 2, ("python", "x.py", "--lr"))


def test_what_never_started_was_no_run(history: History) -> None:
    over = task("t1", state="ended")
    history.add(replace(over, status=replace(over.status, started_at=None)))  # type: ignore[arg-type, call-arg]
    assert history.runs(0, 10) == []


def test_the_runs_are_found_by_an_index(history: History) -> None:
    history.add(ended("t1", NOW))
    plans: list[str] = []
    history._db.set_trace_callback(plans.append)
    history.runs(NOW, 10)
    history._db.set_trace_callback(None)
    (found,) = history._db.execute(f"EXPLAIN QUERY PLAN {plans[-1]}").fetchall()
    assert "USING INDEX tasks_ended" in found[3]


def test_a_run_of_a_gpu_counts_by_its_gpus_and_one_without_a_little() -> None:
    run = run_of(ended("t1", NOW), NOW)
    assert run is not None
    assert use_of(run) == Use("me@here", 2, NOW - 50, NOW)
    assert use_of(replace(run, gpus=0)).gpus == CPU_ONLY


def test_what_preemptible_tasks_use_is_told_apart_and_counts_for_them_only() -> None:
    uses = [Use("bob", 2, NOW - 3600, NOW), Use("bob", 1, NOW - 3600, NOW, lent=True)]
    (share,) = shares({}, uses, [], NOW, 1e12, {"bob": 3.0})
    assert (share.gpu_hours, share.counted, share.lent_gpu_hours, share.gpus) == (2.0, 2.0, 4.0, 3)
