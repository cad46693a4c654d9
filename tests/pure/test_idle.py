"""GPUs that a task holds and does not use: since when, and what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import InventoryError
from agentless.inventory.inventory import load
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuSample
from agentless.model.tasks.task import Ended
from agentless.model.tasks.task_event import Exited, Restarted, StopAsked
from agentless.model.usage.idle import IdleGpus, IdlePolicy
from agentless.rules.nodes.survey import STALE_AFTER
from agentless.rules.scheduling.plan import Outlook
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.usage.idle import IdleReport, Still, farewell, follow, idle_since, judge, lent_by, words
from agentless.rules.views.publish import gpu_view, task_view
from tests.pure.build import NOW, cluster, placement, reading, seen, task, uuid

A, B = uuid("node1", 0), uuid("node1", 1)
BOTH = placement("node1::0,1")
REPORT = IdlePolicy(report=100)
STOP = IdlePolicy(report=100, stop=300)


def sample(at: float, *loads: int | None) -> Observation:
    readings = tuple(reading("node1", index, utilization_pct=load) for index, load in enumerate(loads))
    return seen(sample=GpuSample(readings), sampled_at=at)


def after(*samples: Observation) -> Still:
    still = Still()
    for one in samples:
        still = follow(still, one)
    return still


# -------------------------------------------------------------------- since when


def test_a_gpu_is_idle_since_the_first_of_the_samples_at_0_percent() -> None:
    assert after(sample(0, 0, 7), sample(2, 0, 0), sample(4, 0, 0)) == Still({A: 0, B: 2}, 4)


def test_one_sample_with_load_begins_it_anew() -> None:
    assert after(sample(0, 0), sample(2, 1), sample(4, 0)).since == {A: 4}


@pytest.mark.parametrize(
    "unknown",
    [
        sample(2, None),
        sample(2),
        replace(sample(2, 0), error="no route"),
        replace(sample(2, 0), sample=None),
        replace(sample(2, 0), sample=GpuSample((reading("node1", 0, utilization_pct=0),), None, "driver trouble")),
    ],
    ids=["no load", "no GPU", "cut off", "no sample", "an error"],
)
def test_what_is_not_known_is_not_idle(unknown: Observation) -> None:
    assert after(sample(0, 0), unknown).since == {}
    assert after(sample(0, 0), unknown, sample(4, 0)).since == {A: 4}


@pytest.mark.parametrize("later", [0, 0.5, STALE_AFTER])
def test_a_sample_in_time_or_the_same_once_more_goes_on_with_it(later: float) -> None:
    assert after(sample(98, 0), sample(100, 0), sample(100 + later, 0)).since == {A: 98}


@pytest.mark.parametrize("later", [STALE_AFTER + 1, -5])
def test_a_time_without_samples_begins_it_anew(later: float) -> None:
    assert after(sample(100, 0), sample(100 + later, 0)).since == {A: 100 + later}


def test_a_task_has_its_own_gpus_and_only_its_own_time() -> None:
    still = Still({A: 10, uuid("node1", 2): 10}, 100)
    assert idle_since(still, BOTH, 40, 101) == {A: 40}


def test_old_samples_say_nothing() -> None:
    assert idle_since(Still({A: 10}, 100), BOTH, 0, 100 + STALE_AFTER) == {A: 10}
    assert idle_since(Still({A: 10}, 100), BOTH, 0, 100 + STALE_AFTER + 1) is None
    assert idle_since(Still(), BOTH, 0, 100) is None


# ------------------------------------------------------------------- what follows


def test_a_gpu_that_is_idle_for_long_enough_is_reported_once() -> None:
    assert judge({A: 0}, BOTH, REPORT, None, 99).what == "nothing"
    first = judge({A: 0}, BOTH, REPORT, None, 100)
    assert (first.what, first.idle) == ("report", IdleGpus({A: 0}))
    again = judge({A: 0}, BOTH, REPORT, first.report, 105)
    assert (again.what, again.idle) == ("nothing", first.idle)


def test_one_more_idle_gpu_is_reported_again() -> None:
    first = judge({A: 0, B: 50}, BOTH, REPORT, None, 100)
    second = judge({A: 0, B: 50}, BOTH, REPORT, first.report, 150)
    assert (second.what, second.idle) == ("report", IdleGpus({A: 0, B: 50}, all_since=50))


def test_work_after_a_report_is_reported_too() -> None:
    report = judge({A: 0}, BOTH, REPORT, None, 100).report
    assert judge({}, BOTH, REPORT, report, 105).what == "busy again"
    assert judge({}, BOTH, REPORT, None, 105).what == "nothing"


def test_nothing_is_said_of_a_node_that_is_silent() -> None:
    report = judge({A: 0}, BOTH, STOP, None, 100).report
    assert judge(None, BOTH, STOP, report, 9999) == judge(None, BOTH, STOP, None, 0)


def test_nothing_is_ever_stopped_unless_the_policy_says_so() -> None:
    report = judge({A: 0, B: 0}, BOTH, IdlePolicy(), None, 1e6).report
    assert judge({A: 0, B: 0}, BOTH, IdlePolicy(), report, 1e9).what == "nothing"


def test_a_task_is_warned_and_then_stopped() -> None:
    warned = judge({A: 0, B: 0}, BOTH, STOP, None, 100)
    assert (warned.what, warned.idle and warned.idle.stop_at) == ("report", 300)
    assert judge({A: 0, B: 0}, BOTH, STOP, warned.report, 299).what == "nothing"
    assert judge({A: 0, B: 0}, BOTH, STOP, warned.report, 300).what == "stop"


def test_a_task_is_warned_and_then_lent_to_whoever_needs_its_place() -> None:
    policy = IdlePolicy(report=100, preempt=200)
    warned = judge({A: 0, B: 0}, BOTH, policy, None, 100)
    assert (warned.what, warned.idle and warned.idle.lent_at) == ("report", 200)
    assert warned.idle
    assert words(warned.idle, BOTH, 150) == "idle for 2m 30s, may be preempted in 50s"
    assert words(warned.idle, BOTH, 200) == "idle for 3m 20s, may be preempted"
    lent = {"t1": warned.idle, "t2": IdleGpus({A: 0})}
    assert (lent_by(lent, 199), lent_by(lent, 200)) == ({}, {"t1": 200})
    later = judge({A: 0, B: 0}, BOTH, policy, warned.report, 9999)
    assert (later.what, later.idle and later.idle.lent_at) == ("nothing", 200)


def test_a_task_that_uses_one_of_its_gpus_is_not_stopped() -> None:
    report = judge({A: 0}, BOTH, STOP, None, 100).report
    verdict = judge({A: 0}, BOTH, STOP, report, 9999)
    assert (verdict.what, verdict.idle) == ("nothing", IdleGpus({A: 0}))


def test_a_new_policy_warns_anew_before_it_stops() -> None:
    report = judge({A: 0, B: 0}, BOTH, REPORT, None, 100).report
    warned = judge({A: 0, B: 0}, BOTH, STOP, report, 5000)
    assert (warned.what, warned.idle and warned.idle.stop_at) == ("report", 5200)
    assert judge({A: 0, B: 0}, BOTH, STOP, warned.report, 5199).what == "nothing"
    assert judge({A: 0, B: 0}, BOTH, STOP, warned.report, 5200).what == "stop"


def test_who_has_worked_between_two_looks_has_all_of_its_time_again() -> None:
    report = judge({A: 0, B: 0}, BOTH, STOP, None, 100).report
    later = judge({A: 900, B: 900}, BOTH, STOP, report, 1000)
    assert (later.what, later.idle and later.idle.stop_at) == ("nothing", 1200)


loads = st.lists(st.tuples(st.sampled_from([0, 0, 0, None, 50]), st.sampled_from([0, 0, 0, 0, 9])), max_size=60)


@given(loads, st.integers(10, 60), st.integers(1, 60))
def test_who_is_stopped_was_idle_all_the_time_and_warned_in_time(
    drawn: list[tuple[int | None, int | None]], report: int, more: int
) -> None:
    policy = IdlePolicy(report, report + more)
    still, report, warned, history = Still(), None, 0.0, []
    for number, pair in enumerate(drawn * 3):
        now = 5.0 * number
        history.append(pair)
        still = follow(still, sample(now, *pair))
        found: Mapping[str, float] | None = idle_since(still, BOTH, 0.0, now)
        verdict = judge(found, BOTH, policy, report, now)
        report = verdict.report
        if verdict.what == "report" and verdict.idle and verdict.idle.all_since is not None:
            warned = now
        if verdict.what == "stop":
            lately = history[-int(policy.stop or 0) // 5 :]
            assert set(lately) == {(0, 0)}
            assert now - warned >= more
            break


# ----------------------------------------------------------------------- in words


def test_what_is_said_of_it() -> None:
    assert words(IdleGpus({A: 5}), BOTH, 125) == "GPU 0 idle for 2m 0s"
    assert words(IdleGpus({A: 0}), replace(BOTH, gpu_uuids=(A,)), 125) == "GPU 0 idle for 2m 5s"
    assert words(IdleGpus({A: 0, B: 5}, 5), BOTH, 125) == "idle for 2m 0s"
    assert words(IdleGpus({A: 0, B: 5}, 5, 300), BOTH, 125) == "idle for 2m 0s, stops in 2m 55s"
    assert farewell(IdleGpus({A: 0, B: 65}, 65, 300), 7265) == "its GPUs were idle for 2h 0m (idle: stop)"


def test_a_task_and_its_gpu_tell_of_it() -> None:
    running = task("t1", "node1::0")
    view = task_view(running, (), Outlook(), mine=True, idle=IdleGpus({A: NOW - 90}, NOW - 90), now=NOW)
    assert (view.reason, view.idle_since) == ("idle for 1m 30s", "2027-01-15T07:58:30.000Z")
    gpu = cluster(seen(gpus=1), (running,)).nodes["node1"].gpus[0]
    shown = gpu_view("node1", gpu, idle_since=NOW - 90, now=NOW)
    assert shown.reason == "held by task t1 of me@here, idle for 1m 30s"
    assert shown.idle_since == view.idle_since
    assert gpu_view("node1", gpu).idle_since is None


def test_the_end_says_why_it_was_stopped_and_a_person_need_not() -> None:
    asked = apply(task(), StopAsked("stop", reason="its GPUs were idle"), NOW)
    assert task_view(asked, (), Outlook(), mine=True).reason == "stopping: its GPUs were idle"
    over = apply(apply(asked, StopAsked("kill"), NOW), Exited(137), NOW)
    assert isinstance(over.status, Ended)
    assert (over.state, over.status.reason) == ("killed", "its GPUs were idle")
    own = apply(apply(task(), StopAsked("stop"), NOW), StopAsked("stop", reason="its GPUs were idle"), NOW)
    assert apply(own, Exited(143), NOW).status.reason is None  # type: ignore[union-attr]
    assert apply(over, Restarted(NOW, NOW), NOW).stop_reason is None


# ------------------------------------------------------------------- the inventory


def written(folder: Path, idle: str) -> IdlePolicy:
    path = folder / "inventory.yaml"
    path.write_text(f"version: 1\nidle: {idle}\nnodes: {{node1: {{host: h}}}}\n")
    return load(path).idle


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", IdlePolicy(1800, None)),
        ("{report: 10min}", IdlePolicy(600, None)),
        ("{stop: never}", IdlePolicy(1800, None)),
        ("{report: 10min, stop: 1h}", IdlePolicy(600, 3600)),
        ("{stop: 2h}", IdlePolicy(1800, 7200)),
        ("{preempt: 1h, stop: never}", IdlePolicy(1800, None, 3600)),
    ],
)
def test_the_inventory_says_what_becomes_of_them(tmp_path: Path, text: str, policy: IdlePolicy) -> None:
    assert written(tmp_path, text) == policy


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{report: 0}", "idle.report: is '0'; must be a duration above 0"),
        ("{stop: soon}", "idle.stop: is 'soon'; must be a duration above 0, like 2h, or never"),
        ("{stop: 30min}", "idle.stop: is '30min'; must be longer than report: (30m 0s), the time of the warning"),
        ("{preempt: 10min}", "idle.preempt: is '10min'; must be longer than report: (30m 0s), the time of the warning"),
        ("{report: 2h, stop: 1h}", "must be longer than report: (2h 0m)"),
        ("{repot: 2h}", "unknown key 'repot'; did you mean 'report'?"),
        ("never", "idle: is 'never'; must be a mapping, like {report: 30min}"),
    ],
)
def test_what_cannot_be_meant_is_told(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(InventoryError) as caught:
        written(tmp_path, text)
    assert what in str(caught.value)


def test_told_is_of_the_gpus_that_are_still_idle() -> None:
    """One that worked in between is news when it is idle again."""
    report = IdleReport(frozenset({A, B}), REPORT, 0)
    left = judge({A: 0}, BOTH, REPORT, report, 500)
    assert (left.what, left.report and left.report.gpus) == ("nothing", {A})
    assert judge({A: 0, B: 600}, BOTH, REPORT, left.report, 700).what == "report"
