"""Who has had how much of the GPUs: only what is in the span, by whichever name, and never a guess."""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.client.history import of_usage
from agentless.client.words import share, used_in_all
from agentless.errors import StateError, UsageError
from agentless.model.nodes.node_record import GpuRecord, NodeRecord
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.task import Ended, Placement, Submitted
from agentless.model.tasks.terms import Terms
from agentless.model.usage.run import gpus_held
from agentless.model.usage.spent import GpuActivity, Spent, spent_of
from agentless.rules.usage.periods import LONGEST, period_of, periods
from agentless.rules.usage.usage import ROWS, Tally, gpus_of, observed
from agentless.stores.records.history import History
from tests.pure.build import NOW, STATES, cluster, placement, reading, seen, spec, task

HOUR = 3600.0
EDGES = [NOW, NOW + HOUR, NOW + 3 * HOUR]


def spent(begin: float, end: float, gpus: int = 1, name: str = "t", **fields) -> Spent:
    """Times in hours after the beginning of the span."""
    plain = {"task": name, "owner": "me@here", "node": "node1", "batch": name, "seen": 0.0, "busy": 0.0}
    return Spent(begin=NOW + begin * HOUR, end=NOW + end * HOUR, gpus=gpus, **{**plain, **fields})


def tally(*all_of_it: Spent, by="owner", edges=EDGES, gpus=4):
    found = Tally(edges, by)
    for each in all_of_it:
        found.add(each)
    return found.view(gpus)


# ---------------------------------------------------------------------- sums


@pytest.mark.parametrize(
    ("begin", "end", "hours", "each"),
    [
        (0, 1, 1.0, [1.0, 0.0]),
        (-5, 50, 3.0, [1.0, 2.0]),
        (0.5, 1.5, 1.0, [0.5, 0.5]),
        (2, 2, 0.0, [0.0, 0.0]),
    ],
)
def test_a_task_counts_within_the_span_and_in_the_period_in_which_it_ran(begin, end, hours, each):
    found = tally(spent(begin, end))
    assert (found.total.gpu_hours, [period.gpu_hours for period in found.periods]) == (hours, each)
    assert found.total.tasks == 1


@pytest.mark.parametrize(("begin", "end"), [(-2, -1), (-1, 0), (3, 4)])
def test_a_task_outside_the_span_does_not_count(begin, end):
    assert tally(spent(begin, end)).rows == ()


def test_rows_are_by_what_is_asked_for_and_the_largest_come_first():
    several = (
        spent(0, 1, 2, "a", owner="ann@x", node="node2"),
        spent(0, 1, 1, "b", owner="bob@x"),
        spent(1, 2, 1, "c", owner="ann@x"),
    )
    found = {
        by: [(r.name, r.gpu_hours, r.tasks) for r in tally(*several, by=by).rows] for by in ("owner", "node", "batch")
    }
    assert found == {
        "owner": [("ann@x", 3.0, 2), ("bob@x", 1.0, 1)],
        "node": [("node1", 2.0, 2), ("node2", 2.0, 1)],
        "batch": [("a", 2.0, 1), ("b", 1.0, 1), ("c", 1.0, 1)],
    }


def test_the_share_is_of_all_gpu_time_in_the_span():
    assert tally(spent(0, 3, 3)).total.share == 0.75
    assert tally(spent(0, 3, 3), gpus=0).total.share is None


def test_a_task_without_a_gpu_is_counted_and_has_no_hours():
    (row,) = tally(spent(0, 3, 0)).rows
    assert (row.tasks, row.gpu_hours, row.utilization_pct) == (1, 0.0, None)


def test_how_busy_gpus_were_is_weighted_by_the_time_that_was_seen():
    found = tally(
        spent(0, 1, seen=3600, busy=3600), spent(0, 1, seen=1200, busy=0), spent(0, 1), spent(-9, 1, seen=36000, busy=0)
    )
    assert found.total.utilization_pct == pytest.approx(100 * 3600 / (3600 + 1200 + 3600), abs=0.05)


def test_of_a_task_that_is_partly_in_the_span_as_much_of_its_busy_time_counts():
    found = tally(spent(-1, 1, seen=7200, busy=7200), spent(1, 3, seen=3600, busy=0))
    assert found.total.utilization_pct == 50.0


def test_what_was_seen_of_a_task_that_ran_for_no_time_counts_as_it_is():
    found = tally(spent(2, 2, seen=10, busy=10), spent(0, 1, seen=30, busy=0))
    assert found.total.utilization_pct == 25.0


def test_hours_have_three_decimals_and_shares_are_shown_to_a_tenth_and_a_hundredth_of_a_percent():
    found = tally(spent(0, 5 / 3600, seen=3, busy=1), gpus=1, edges=[NOW, NOW + 15])
    assert [period.gpu_hours for period in found.periods] == [found.total.gpu_hours] == [0.001]
    assert (found.total.utilization_pct, found.total.share) == (33.3, 0.3333)


def test_the_span_and_its_periods_are_named_by_their_times():
    found = tally()
    assert (found.begins_at, found.ends_at) == ("2027-01-15T08:00:00.000Z", "2027-01-15T11:00:00.000Z")
    assert [period.begins_at for period in found.periods] == ["2027-01-15T08:00:00.000Z", "2027-01-15T09:00:00.000Z"]


def test_rows_with_the_same_hours_are_in_the_order_of_their_names():
    assert [row.name for row in tally(spent(0, 1, owner="bob@x"), spent(0, 1, owner="ann@x")).rows] == [
        "ann@x",
        "bob@x",
    ]


def test_of_very_many_rows_the_largest_are_shown_and_all_are_summed_up():
    found = tally(*(spent(0, 1, number % 7, f"t{number}") for number in range(ROWS + 5)), by="batch")
    assert (len(found.rows), found.more, found.total.tasks) == (ROWS, 5, ROWS + 5)
    assert min(row.gpu_hours for row in found.rows) == 0.0
    assert found.rows[0].gpu_hours == 6.0


runs = st.builds(
    lambda begin, hours, gpus, owner: spent(begin, begin + hours, gpus, owner=owner),
    st.floats(-10, 10), st.floats(0, 10), st.integers(0, 8), st.sampled_from("abc"),
)  # fmt: skip


@given(st.lists(runs, max_size=20))
def test_the_rows_and_the_periods_add_up_to_the_total_and_it_is_never_more_than_there_is(several):
    found = tally(*several)
    assert sum(row.gpu_hours for row in found.rows) == pytest.approx(found.total.gpu_hours, abs=0.01)
    assert sum(period.gpu_hours for period in found.periods) == pytest.approx(found.total.gpu_hours, abs=0.01)
    assert 0 <= found.total.gpu_hours <= sum(run.gpus for run in several) * 3 + 0.001


# --------------------------------------------------------------------- tasks


@pytest.mark.parametrize("state", STATES)
def test_a_task_holds_its_gpus_from_its_start_to_its_end_whatever_becomes_of_its_node(state):
    found = spent_of(task(target="node1::0,1", state=state), GpuActivity(1, 2), NOW)
    began = {"running": 60, "paused": 60, "lost": 90, "ended": 60}.get(state)
    if began is None:
        assert found is None
    else:
        assert (found.node, found.gpus, NOW - found.begin, found.seen, found.busy) == ("node1", 2, began, 1, 2)
        assert found.end == (NOW - 1 if state == "ended" else NOW)


def test_a_task_whose_place_is_not_known_any_more_had_no_gpus():
    ended = task(state="ended")
    found = spent_of(replace(ended, status=replace(ended.status, placement=None)), GpuActivity(), NOW)
    assert found.gpus == 0


@pytest.mark.parametrize(
    ("changes", "others", "expected"),
    [
        ({}, (), GpuActivity(14.0, 5.0)),
        ({"utilization_pct": 100}, (), GpuActivity(14.0, 6.0)),
        ({"utilization_pct": None}, (), GpuActivity(12.0, 4.0)),
        ({"utilization_pct": 101}, (), GpuActivity(12.0, 4.0)),
        ({}, ("GPU-node1-0",), GpuActivity(12.0, 4.0)),
    ],
    ids=["both", "one is full", "one cannot be read", "one makes no sense", "a stranger uses one"],
)
def test_only_what_is_seen_of_the_task_itself_is_counted(changes, others, expected):
    gpus = (
        reading("node1", 0, **{"utilization_pct": 50, **changes}),
        reading("node1", 1, utilization_pct=0),
        reading("node1", 2, utilization_pct=100),
    )
    assert observed(gpus, placement("node1::0,1").gpu_uuids, others, 2.0, GpuActivity(10.0, 4.0)) == expected


def test_all_gpus_are_those_that_may_be_used_also_of_a_node_that_has_not_answered_yet():
    record = NodeRecord(gpus={f"GPU-node2-{n}": GpuRecord(reading("node2", n)) for n in range(3)})
    both = cluster(
        {"node1": seen("node1", 4), "node2": seen("node2", error="no route", sample=None)}, exclude_gpus=(1,)
    )
    assert gpus_of(both, {"node2": record}) == (3 + 2, 0)


def test_a_slice_counts_as_a_gpu_and_is_told_apart_and_its_gpu_does_not_count():
    gpu = reading("node1", 0, mig=True)
    slices = [replace(gpu, uuid=f"MIG-{at}", parent=gpu.uuid, part=at, mig=False, kind="slice") for at in range(4)]
    sample = replace(seen("node1", 1).sample, gpus=(gpu, *slices, reading("node1", 1)))
    assert gpus_of(cluster({"node1": seen("node1", sample=sample)}), {}) == (5, 4)
    found = {"gpus": 5, "parts": 4, "total": {"gpu_hours": 2.0, "share": 0.1}}
    assert used_in_all(found) == "2.00 GPU-hours, 10.0% of all hours of 1 GPU and 4 slices"


def test_a_share_that_is_rounded_to_nothing_is_less_than_a_tenth_of_a_percent():
    row = {"gpu_hours": 0.4, "share": 0.0002}
    assert [share(row), share({**row, "cluster_gpu_hours": 0.4}), share({**row, "share": None})] == [
        "<0.1%",
        "0.0%",
        "-",
    ]


def test_the_plot_of_gpus_over_time_says_that_it_has_means_and_that_slices_count():
    begins = [{"begins_at": f"2026-11-{day}T00:00:00Z", "gpu_hours": 48.0} for day in (15, 16)]
    found = {"periods": begins, "ends_at": "2026-11-17T00:00:00Z", "gpus": 17}
    titles = [of_usage({**found, "parts": parts}).plots[0].title for parts in (0, 4)]
    assert titles == ["GPUs allocated, mean of 1d", "GPUs and slices allocated, mean of 1d"]


# ------------------------------------------------------------------- periods


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("begin", "end", "edges"),
    [
        ("2026-05-01T12:20", "2026-05-01T14:10", ["2026-05-01T13:00", "2026-05-01T14:00"]),
        ("2026-03-28T12:00", "2026-03-30T12:00", ["2026-03-28T23:00", "2026-03-29T22:00"]),
        ("2026-10-24T12:00", "2026-10-26T12:00", ["2026-10-24T22:00", "2026-10-25T23:00"]),
        ("2026-10-25T00:30", "2026-10-25T03:30", ["2026-10-25T01:00", "2026-10-25T02:00", "2026-10-25T03:00"]),
        ("2026-05-01T12:00", "2026-05-01T12:30", []),
        ("2026-05-01T12:20:30", "2026-05-01T14:00", ["2026-05-01T13:00"]),
        ("2026-05-01T12:00", "2026-05-03T22:00", ["2026-05-01T22:00", "2026-05-02T22:00"]),
    ],
    ids=[
        "hours",
        "a day of 23 hours",
        "a day of 25 hours",
        "an hour that comes twice",
        "less than an hour",
        "until a full hour",
        "until midnight",
    ],
)
def test_periods_are_by_the_clock_on_the_wall(berlin, begin, end, edges):
    assert periods(at(begin), at(end)) == [at(begin), *map(at, edges), at(end)]


@pytest.mark.parametrize(
    ("span", "period"),
    [(25 * HOUR, "hour"), (25 * HOUR + 1, "day"), (62 * 24 * HOUR, "day"), (62 * 24 * HOUR + 1, "week")],
)
def test_the_longer_the_span_the_longer_its_periods(span, period):
    assert period_of(NOW, NOW + span) == period


def test_the_longest_span_is_one():
    assert len(periods(NOW - LONGEST, NOW)) > 700


def test_weeks_begin_on_monday(berlin):
    inner = periods(at("2026-01-07T12:00"), at("2026-05-01T12:00"))[1:-1]
    assert {time.strftime("%a %H:%M", time.localtime(edge)) for edge in inner} == {"Mon 00:00"}
    assert len(inner) == 16


@given(st.floats(1e9, 2e9), st.floats(1, 14 * 365 * 86400))
def test_a_span_is_divided_without_a_rest(begin, span):
    edges = periods(begin, begin + span)
    assert (edges[0], edges[-1]) == (begin, begin + span)
    assert all(one < other for one, other in pairwise(edges))


@pytest.mark.parametrize("begin", [NOW, NOW + 1, NOW - 20 * 365 * 86400])
def test_what_is_no_span_is_refused(begin):
    with pytest.raises(UsageError, match="use 12h, 7d or a date"):
        periods(begin, NOW)


# ------------------------------------------------------------------ accounts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def ended(name: str, at: float = NOW, **fields):
    return replace(
        task(name, state="ended", **fields), status=Ended("completed", at, 0, None, placement(), "c", at - 60)
    )


def pages(history: History, since: float = 0.0, limit: int = 2) -> list[Spent]:
    found, (page, after) = [], history.accounts.page((since, ""), limit)
    while page:
        found += page
        page, after = history.accounts.page(after, limit)
    return found


def test_what_a_task_has_had_is_kept_with_it_and_stays_when_it_is_removed(path):
    history = History(path)
    history.add(ended("t1"), load=GpuActivity(50.0, 25.0))
    history.remove(["t1"])
    assert pages(history) == [Spent("t1", "me@here", "node1", "t1", 1, NOW - 60, NOW, 50.0, 25.0)]


def test_what_was_lent_is_told_apart_also_by_the_history(path):
    history = History(path)
    lent = ended("t1", spec=spec(terms=Terms(preemptible=True)))
    history.add(lent)
    history.add(ended("t2"))
    assert [each.lent for each in pages(history)] == [True, False]
    assert [run.lent for run in history.runs(0.0, 10)] == [True, False]
    tally = Tally((NOW - 60, NOW), "owner")
    for each in pages(history):
        tally.add(replace(each, gpus=60))
    total = tally.view(4).total
    assert (total.gpu_hours, total.lent_gpu_hours) == (2.0, 1.0)


def test_a_job_of_a_cluster_has_the_gpus_that_it_asks_for_and_is_no_share_of_the_own_ones():
    job = ended("t1", spec=spec(needs=Needs(gpus=4, nodes=("hpc",))))
    job = replace(job, status=replace(job.status, placement=Placement("hpc"), container="7:agentless-t1"))
    used = spent_of(job, GpuActivity(), NOW)
    assert used is not None
    assert used.gpus == 4
    assert gpus_held(replace(job, status=Submitted(Placement("hpc"), "7:agentless-t1", NOW))) == 0
    tally = Tally((NOW - 60, NOW), "owner", {"hpc"})
    for each in (replace(used, gpus=60), spent(-1 / 60, 0, gpus=1)):
        tally.add(each)
    total = tally.view(4).total
    assert (total.gpu_hours, total.cluster_gpu_hours, total.share) == (1.017, 1.0, 0.25)


def test_all_that_ended_in_a_span_are_found_page_by_page(path):
    history = History(path)
    for number in range(7):
        history.add(ended(f"t{number}", NOW + number // 2))
    assert [each.task for each in pages(history, NOW + 0.5)] == ["t2", "t3", "t4", "t5", "t6"]


def test_a_task_that_never_started_has_had_nothing(path):
    history = History(path)
    history.add(replace(ended("t1"), status=Ended("cancelled", NOW)))
    assert pages(history) == []


def test_what_older_versions_have_written_is_found_too(path):
    history = History(path)
    for name in ("t1", "t2"):
        history.add(ended(name, NOW - 5))
    expected = pages(history)
    history.add(replace(ended("t3"), status=Ended("cancelled", NOW)))
    history._db.execute("DROP TABLE spent")
    history.close()
    assert pages(History(path)) == expected


def test_what_an_older_version_has_added_meanwhile_is_found_too(path):
    history = History(path)
    history.add(ended("t1", NOW - 5))
    history.add(ended("t2"))
    history._db.execute("DELETE FROM spent WHERE task = 't2'")
    history.close()
    assert [each.task for each in pages(History(path))] == ["t1", "t2"]


def test_a_task_ends_also_where_there_was_no_room_for_the_table_at_the_start(path, monkeypatch):
    full = sqlite3.OperationalError("database or disk is full")
    with monkeypatch.context() as patch:
        patch.setattr("agentless.stores.records.accounts.Accounts.catch_up", lambda _: (_ for _ in ()).throw(full))
        history = History(path)
    history.add(ended("t1"))
    assert [each.task for each in pages(history)] == ["t1"]


def test_a_task_ends_also_when_the_disk_was_full_at_the_first_try(path, monkeypatch):
    history = History(path)
    history._db.execute("DROP TABLE spent")

    def full(accounts, spent):
        accounts._prepare()
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("agentless.stores.records.accounts.Accounts.keep", full)
        with pytest.raises(StateError):
            history.add(ended("t1"))
    history.add(ended("t1"))
    assert [each.task for each in pages(history)] == ["t1"]


def test_how_busy_live_tasks_are_is_known_after_a_restart_until_they_end(path):
    history = History(path)
    history.accounts.keep_loads({"t0": GpuActivity(9, 9)})
    history.accounts.keep_loads({"t1": GpuActivity(10.0, 5.0), "t2": GpuActivity(1.0, 1.0)})
    history.close()
    again = History(path)
    assert again.accounts.loads() == {"t1": GpuActivity(10.0, 5.0), "t2": GpuActivity(1.0, 1.0)}
    again.add(ended("t1"))
    assert again.accounts.loads() == {"t2": GpuActivity(1.0, 1.0)}


def test_a_history_that_breaks_is_an_error_with_a_sentence(path):
    history = History(path)
    history._db.execute("ALTER TABLE spent RENAME COLUMN began TO x")
    history._db.execute("ALTER TABLE loads DROP COLUMN busy")
    history._db.execute("CREATE TRIGGER no BEFORE INSERT ON spent BEGIN SELECT RAISE(ABORT, 'no'); END")
    for use in (
        lambda: pages(history),
        history.accounts.loads,
        lambda: history.accounts.keep_loads({"t1": GpuActivity()}),
        lambda: history.add(ended("t1")),
    ):
        with pytest.raises(StateError, match=r"cannot (read|write) the history"):
            use()


def test_a_hundred_thousand_ended_tasks_are_read_a_page_at_a_time(path):
    history = History(path)
    rows = [(f"t{n:06}", "me", "n", "b", 1, NOW + n, NOW + n + 60, 0, 0) for n in range(100_000)]
    with history._db:
        history._db.execute("BEGIN")
        history._db.executemany("INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    steps = 0

    def tick() -> None:
        nonlocal steps
        steps += 1

    history._db.set_progress_handler(tick, 1000)
    page, _ = history.accounts.page((NOW + 50_000.5, ""), 500)
    assert (len(page), page[0].end > NOW + 50_000) == (500, True)
    assert steps < 20, "thousands of SQLite's instructions"
    assert os.path.getsize(path) < 30_000_000
