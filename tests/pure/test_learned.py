"""How long a task will take of which nobody has said it, and what may rest on that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.controller.scheduling.run_history import RunHistory
from agentless.errors import InventoryError
from agentless.inventory.inventory import load
from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node import NodeConfig
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.task import Ended, Running, Task
from agentless.model.tasks.terms import Terms
from agentless.model.usage.run import kind_of_task
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.plan import Outlook, Plan, Promise, plan
from agentless.rules.scheduling.timeline.learned import learned_length
from agentless.rules.usage.fair_share import HALF_LIFE
from agentless.rules.views.publish import task_view
from agentless.stores.records.history import History
from tests.pure.build import CID, NOW, cluster, placement, seen, spec, task
from tests.pure.test_ledger import opened
from tests.pure.test_plan import POLICIES, clusters, look, places, promises, runs, wish, wishes

# ------------------------------------------------------------------------ the rule


def test_with_few_runs_nothing_is_learned() -> None:
    assert learned_length([60.0] * 4) is None
    assert learned_length([60.0] * 5) == 60


def test_it_is_what_almost_all_of_the_last_runs_took() -> None:
    assert learned_length([float(n) for n in range(1, 21)]) == 19
    assert learned_length([9999.0] * 50 + [60.0] * 20) == 60
    assert learned_length([10, 20, 30, 40, 500]) == 500


@given(st.lists(st.floats(0, 1e6), min_size=5))
def test_at_most_one_of_twenty_took_longer(seconds: list[float]) -> None:
    found = learned_length(seconds)
    last = seconds[-20:]
    assert found is not None
    assert found >= 1
    assert sum(one > found for one in last) <= len(last) / 20


@pytest.mark.parametrize(("took", "found"), [(0.5, 1), (1.5, 1.5)])
def test_it_is_a_second_at_least(took: float, found: float) -> None:
    assert learned_length([took] * 5) == found


def test_a_kind_is_owner_image_gpus_and_the_first_words() -> None:
    one = task(spec=spec("python", "train.py", "--lr", "0.1", needs=parse_target("1x")))
    assert kind_of_task(one) == kind_of_task(replace(one, spec=replace(one.spec, command=(*one.spec.command[:3], "1"))))
    for other in (
        replace(one, owner="eve"),
        replace(one, spec=replace(one.spec, image="other")),
        replace(one, spec=replace(one.spec, needs=parse_target("2x"))),
        replace(one, spec=replace(one.spec, command=("python", "eval.py", "--lr", "0.1"))),
    ):
        assert kind_of_task(one) != kind_of_task(other)


# ------------------------------------------------------------------- what is planned

BUSY = runs("t", "node1::0", since=40)
"""It has no limit."""


def planned(*queue: Task, lengths: dict[str, float], busy: tuple[Task, ...] = (BUSY,), gpus: int = 1) -> Plan:
    return plan(cluster(seen(gpus=gpus), busy), queue, NOW, POLICIES, lengths=lengths)


def test_what_runs_is_expected_to_end_and_the_promise_is_about() -> None:
    found = planned(wish("a"), lengths={"t": 100})
    assert promises(found) == {"a": ("node1", 60)}
    assert found.promises["a"].about  # type: ignore[union-attr]


def test_what_has_outlasted_it_may_end_any_moment_and_is_left_alone() -> None:
    found = planned(wish("a"), lengths={"t": 10})
    assert (promises(found), found.starts) == ({"a": ("node1", 1)}, {})


def test_a_declared_limit_stands_above_what_was_learned() -> None:
    limited = runs("t", "node1::0", 40, 100)
    found = planned(wish("a", limit=50), wish("b"), lengths={"t": 10, "a": 9}, busy=(limited,))
    assert promises(found) == {"a": ("node1", 60), "b": ("node1", 110)}
    assert not any(promise and promise.about for promise in found.promises.values())


def test_it_lets_a_task_fill_a_gap_in_front_of_who_has_no_certain_time() -> None:
    large, short = wish("large", "2x"), wish("short")
    assert places(planned(large, short, lengths={"t": 100}, gpus=2)) == {}
    assert places(planned(large, short, lengths={"t": 100, "short": 60}, gpus=2)) == {"short": "node1::1"}
    assert places(planned(large, short, lengths={"t": 100, "short": 61}, gpus=2)) == {}


def test_it_lets_nobody_in_front_of_who_was_promised_a_certain_time() -> None:
    limited = runs("t", "node1::0", 40, 100)
    found = planned(wish("large", "2x"), wish("short"), lengths={"short": 5}, busy=(limited,), gpus=2)
    assert (found.starts, promises(found)["large"]) == ({}, ("node1", 60))


def test_who_is_behind_one_without_a_certain_time_has_none_either() -> None:
    on = cluster({"node1": seen("node1", 1), "node2": seen("node2", 1)}, (BUSY, runs("u", "node2::0", 0, 500)))
    found = plan(on, [wish("a", "node1::0"), wish("b", "node2::0")], NOW, POLICIES, lengths={"t": 100})
    assert [promise and promise.about for promise in found.promises.values()] == [True, True]


def test_a_certain_time_is_not_given_up_for_an_earlier_one_that_is_not() -> None:
    """The second node is taken by a task that is expected to end sooner."""
    first = runs("t", "node1::0", 0, 100)
    before = cluster({"node1": seen("node1", 1), "node2": seen("node2", 1)}, (first, runs("u", "node2::0")))
    queue = [wish("a", limit=10)]
    was = plan(before, queue, NOW, POLICIES)
    now = plan(before, queue, NOW, POLICIES, was, lengths={"u": 20})
    assert now.promises == was.promises
    assert plan(before, queue, NOW, POLICIES, lengths={"u": 20}).promises != was.promises


def test_a_learned_length_that_finds_no_place_says_nothing_of_a_limit() -> None:
    limited = runs("t", "node1::0", 40, 100)
    queue = [wish("large", "2x"), wish("short"), wish("sure", limit=50)]
    assert places(planned(*queue, lengths={"short": 5}, busy=(limited,), gpus=2)) == {"sure": "node1::1"}


@given(clusters(), wishes())
def test_with_nothing_learned_and_for_tasks_with_a_limit_the_plan_is_the_same(on: Cluster, queue: list[Task]) -> None:
    plain = look(on, *queue)
    limited = {one.id: 1.0 for one in queue if one.spec.terms.time_limit}
    limited |= {a.task: 1.0 for node in on.nodes.values() for a in node.allocations if a.limit is not None}
    assert plan(on, queue, NOW, POLICIES, lengths=limited) == plain


@st.composite
def scenes(draw: st.DrawFn) -> tuple[int, list[Task], list[Task]]:
    """So many GPUs on each of two nodes, tasks that run there, and a queue; half of the tasks have a limit."""
    gpus = draw(st.integers(1, 3))
    limits = st.sampled_from([None, 20.0, 50.0, 100.0])
    busy = [
        runs(f"{node}-{index}", f"{node}::{index}", draw(st.integers(0, 9)), draw(limits))
        for node in ("node1", "node2")
        for index in range(gpus)
        if draw(st.booleans())
    ]
    wanted = st.sampled_from(["1x", "1x", f"{gpus}x", "node1::0", f"node1::0-{gpus - 1}"])
    queue = [wish(f"q{number}", draw(wanted), draw(limits)) for number in range(draw(st.integers(1, 7)))]
    return gpus, busy, queue


@settings(max_examples=120)
@given(scenes(), st.data())
def test_who_is_next_starts_at_its_certain_time_however_long_the_others_take(
    scene: tuple[int, list[Task], list[Task]], data: st.DataObject
) -> None:
    """Tasks with a limit end at it or before; those without take as long as they like, whatever was learned of them."""
    gpus, busy, queue = scene
    running = {one.id: one for one in busy}
    guessed = {one.id: data.draw(st.sampled_from([5.0, 15.0, 40.0, 90.0])) for one in (*busy, *queue)}
    took = {}
    for one in (*busy, *queue):
        limit = one.spec.terms.time_limit
        took[one.id] = data.draw(st.sampled_from([limit, limit / 2] if limit else [10.0, 45.0, 300.0]))
    nodes = {name: NodeConfig(name, name) for name in ("node1", "node2")}
    now, promised, found = NOW, dict[str, float](), Plan()
    for _ in range(60):
        fresh = {name: seen(name, gpus, sampled_at=now) for name in nodes}
        found = plan(survey(nodes, fresh, running.values(), now), queue, now, POLICIES, found, lengths=guessed)
        for name, where in found.starts.items():
            assert now <= promised.get(name, now) + 1e-6, f"{name} was promised {promised[name] - NOW}"
            (waiting,) = [one for one in queue if one.id == name]
            running[name] = replace(waiting, status=Running(where, CID, now))
        queue = [one for one in queue if one.id not in found.starts]
        assert all(now <= promised.get(one.id, now) + 1e-6 for one in queue), "its time has passed"
        if queue and (promise := found.promises[queue[0].id]) and promise.firm and promise.start is not None:
            promised.setdefault(queue[0].id, promise.start)
        if not running:
            break
        ends = {name: _end(one, took[name]) for name, one in running.items()}
        now = max(now, min(ends.values()))
        running = {name: one for name, one in running.items() if ends[name] > now}


def _end(running: Task, took: float) -> float:
    assert isinstance(running.status, Running)
    return running.status.started_at + took


# ---------------------------------------------------------------- what is remembered


def over(name: str, seconds: float, at: float = NOW, state: str = "completed", **fields: object) -> Task:
    status = Ended(state, at, 0, None, placement(), CID, at - seconds)  # type: ignore[arg-type]
    return replace(task(name, spec=spec("python", "x.py", needs=parse_target("node1::0")), **fields), status=status)


def test_it_is_learned_from_the_history_and_from_what_ends(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    for number in range(4):
        history.add(over(f"a{number}", 60))
    for number in range(9):
        history.add(over(f"b{number}", 9999, state="failed"))
    history.close()
    ledger = opened(tmp_path)
    history = RunHistory(ledger.tasks, ledger._bus, ledger._clock, HALF_LIFE)  # type: ignore[arg-type]
    waiting = replace(over("w", 1), status=task(state="pending").status)
    assert history.lengths([waiting]) == {}
    ledger.adopt(over("a9", 80), "recovered")
    assert history.lengths([waiting]) == {"w": 80}
    assert history.lengths([replace(waiting, owner="eve")]) == {}
    limited = replace(waiting.spec, terms=Terms(time_limit=5))
    assert history.lengths([replace(waiting, spec=limited)]) == {}


# ------------------------------------------------------------------------- in words


def test_an_uncertain_time_is_shown_as_one() -> None:
    shown = [
        task_view(task(state="pending"), (), Outlook(1, "", Promise("node1", NOW, (), about)), mine=True).about
        for about in (True, False)
    ]
    assert shown == [True, False]


@pytest.mark.parametrize(("text", "learn"), [("{}", False), ("{learn: true}", True), ("{learn: false}", False)])
def test_the_inventory_says_whether_to_learn(tmp_path: Path, text: str, learn: bool) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(f"version: 1\nqueue: {text}\nnodes: {{node1: {{host: h}}}}\n")
    assert load(path).learn is learn


def test_anything_but_true_or_false_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("version: 1\nqueue: {learn: maybe}\nnodes: {node1: {host: h}}\n")
    with pytest.raises(InventoryError, match=r"queue\.learn: is 'maybe'; must be true or false"):
        load(path)
