"""Reservations: who may not use what, when, and how that is said."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.cli.app import run
from agentless.errors import AgentlessError, Refused, StateError, Unreachable, UsageError
from agentless.model.moment import check_future, format_moment, parse_moment
from agentless.model.nodes.cluster import Cluster
from agentless.model.scheduling.needs import parse_target
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.task import Task
from agentless.model.tasks.terms import Terms
from agentless.model.view import ReservedView
from agentless.rules.explain.obstacles import never, refusal
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.plan import Plan, plan
from agentless.rules.scheduling.timeline.reservations import (
    LATE,
    LATEST,
    MAX_REASON,
    check_reservation,
    in_the_way,
    shown,
)
from agentless.rules.views.publish import gpu_view, timestamp
from agentless.stores.state.reservations import ReservationStore
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import NOW, cluster, process, seen, spec, task
from tests.pure.test_plan import POLICIES, clusters, later, look, places, promises, runs, two_nodes, wish, wishes

HOUR = 3600.0


def reserved(target: str, owner: str | None = "ann", begin: float = 0.0, end: float = HOUR, **more: Any) -> Reservation:
    """A reservation from so many seconds after `NOW` to so many."""
    needs = parse_target(target)
    plain = Reservation("r1", needs.node or "", needs.indices, owner, NOW + begin, NOW + end)
    return replace(plain, **more)


def on(plain: Cluster, *reservations: Reservation) -> Cluster:
    """The cluster with these reservations."""
    return replace(
        plain,
        nodes={
            name: replace(node, reservations=tuple(each for each in reservations if each.node == name))
            for name, node in plain.nodes.items()
        },
    )


def of(owner: str, wanted: Task) -> Task:
    return replace(wanted, owner=owner)


# ------------------------------------------------------------------ in the plan


def test_what_is_reserved_is_left_to_its_owner() -> None:
    node = on(cluster(seen(gpus=2)), reserved("node1::0"))
    found = look(node, of("bob@b", wish("b1")), of("bob@b", wish("b2")), of("ann@a", wish("a")))
    assert places(found) == {"b1": "node1::1", "a": "node1::0"}


@pytest.mark.parametrize("owner", ["bob@b", "annette@a", "ann@b"])
def test_an_owner_with_a_machine_is_only_that_one(owner: str) -> None:
    node = on(cluster(seen(gpus=1)), reserved("node1", "ann@a"))
    assert list(look(node, of(owner, wish("x"))).starts) == []
    assert list(look(node, of("ann@a", wish("x"))).starts) == ["x"]


def test_maintenance_is_for_nobody_and_for_tasks_without_gpus_too() -> None:
    node = on(cluster(seen(gpus=1)), reserved("node1", None))
    assert look(node, wish("g"), wish("c", "node1")).starts == {}


def test_who_wants_no_gpu_runs_beside_reserved_gpus_and_who_wants_the_node_alone_does_not() -> None:
    node = on(cluster(seen(gpus=2)), reserved("node1::0"))
    assert list(look(node, wish("c", "node1"), wish("alone", "node1", needs={"exclusive": True})).starts) == ["c"]


@pytest.mark.parametrize(("limit", "starts"), [(100.0, True), (101.0, False), (None, False)])
def test_before_the_window_only_what_is_over_by_then(limit: float | None, starts: bool) -> None:
    node = on(cluster(seen(gpus=1)), reserved("node1::0", begin=100, end=200))
    found = look(node, wish("a", limit=limit))
    assert list(found.starts) == (["a"] if starts else [])
    assert promises(found) == ({} if starts else {"a": ("node1", 200)})


def test_a_look_that_is_late_lets_nobody_run_into_the_window() -> None:
    """There is time for it from the end of the other task until the window begins, if the look comes in time."""
    node, window, one = cluster(seen(gpus=1)), reserved("node1::0", None, begin=40), wish("a", limit=30)
    first = plan(on(later(node, [runs("x", "node1::0", 0, 10)], NOW), window), [one], NOW, POLICIES)
    assert promises(first) == {"a": ("node1", 10)}
    for late, starts in ((0.0, ["a"]), (0.2, [])):
        now = NOW + 10 + late
        assert list(plan(on(later(node, [], now), window), [one], now, POLICIES, first).starts) == starts


def test_in_her_time_an_owner_does_not_wait_for_what_others_were_promised_for_afterwards() -> None:
    """Bob is first in the queue and promised the GPU from the end of the window on, without a limit."""
    node = on(cluster(seen(gpus=1)), reserved("node1::0", end=HOUR))
    queue = [of("bob@b", wish("b")), of("ann@a", wish("a1")), of("ann@a", wish("a2"))]
    first = look(node, *queue)
    assert (places(first), promises(look(node, queue[0]))) == ({"a1": "node1::0"}, {"b": ("node1", HOUR)})
    again = plan(node, queue, NOW, POLICIES, look(node, queue[0]))
    assert places(again) == {"a1": "node1::0"}


def test_each_owner_has_what_is_reserved_for_her() -> None:
    node = on(cluster(seen(gpus=2)), reserved("node1::0", "ann"), reserved("node1::1", "bob", id="r2"))
    found = look(node, of("ann@a", wish("a", "node1::0")), of("bob@b", wish("b", "node1::1")))
    assert places(found) == {"a": "node1::0", "b": "node1::1"}


@pytest.mark.parametrize(
    ("windows", "first", "hers"),
    [
        ([reserved("node1::0"), reserved("node1::1", "cat", 5 * HOUR, 6 * HOUR, id="r2")],
         wish("b", "node1::0"), wish("a", "node1::0")),
        ([reserved("node1::0")], wish("b", "node1::0,1"), wish("a", "node1::0")),
        ([reserved("node1")], wish("b", "node1", cores=32.0), wish("a", "node1", cores=32.0)),
    ],
    ids=["another GPU is reserved for another", "one of two GPUs is hers", "cores of the whole node"],
)  # fmt: skip
def test_what_is_promised_to_others_for_afterwards_gives_way_to_her(
    windows: list[Reservation], first: Task, hers: Task
) -> None:
    node = on(cluster(seen(gpus=2)), *windows)
    assert list(look(node, of("bob@b", first), of("ann@a", hers)).starts) == ["a"]


def test_from_the_end_of_her_time_on_an_owner_waits_for_those_in_front() -> None:
    node = on(cluster(seen(gpus=2), (runs("t", "node1::0", 0, 10),)), reserved("node1", begin=-HOUR, end=0.0))
    assert look(node, of("bob@b", wish("b", "2x")), of("ann@a", wish("a"))).starts == {}


def test_among_the_tasks_of_one_owner_the_queue_is_in_force_in_her_time_too() -> None:
    node = on(cluster(seen(gpus=2), (runs("t", "node1::0"),)), reserved("node1"))
    found = look(node, of("ann@a", wish("large", "2x")), of("ann@a", wish("endless")))
    assert (places(found), promises(found)) == ({}, {"large": ("node1", None)})


def test_an_exact_target_goes_the_same_way() -> None:
    node = on(cluster(seen(gpus=2)), reserved("node1::0"))
    assert places(look(node, wish("a", "node1::0"), wish("b", "node1::1"))) == {"b": "node1::1"}


def test_a_gpu_of_a_stranger_that_may_be_shared_is_reserved_all_the_same() -> None:
    node = on(cluster(seen(gpus=1, processes=(process("node1", 0),))), reserved("node1::0"))
    assert look(node, wish("b", share=True)).starts == {}


def test_a_promise_is_given_up_when_its_place_is_reserved_for_another() -> None:
    busy = two_nodes(runs("t1", "node1::0", 0, 10), runs("t2", "node2::0", 0, 20), gpus=1)
    first = look(busy, wish("a", limit=10))
    again = plan(on(busy, reserved("node1", end=100)), [wish("a", limit=10)], NOW, POLICIES, first)
    assert (promises(first), promises(again)) == ({"a": ("node1", 10)}, {"a": ("node2", 20)})


def test_windows_one_after_another_are_all_respected() -> None:
    windows = [reserved("node1", begin=10, end=20, id="r1"), reserved("node1", None, begin=25, end=40, id="r2")]
    found = look(on(cluster(seen(gpus=1)), *windows), wish("a", limit=5), wish("b", limit=6), wish("c", limit=11))
    assert (list(found.starts), promises(found)) == (["a"], {"b": ("node1", 40), "c": ("node1", 46)})


# ------------------------------------------------------------ over all of them

OWNERS = ["ann@a", "ann@b", "bob@b", "cat@c"]
windows = st.tuples(st.integers(-100, 300), st.integers(1, 300))


@st.composite
def reservations(draw: st.DrawFn) -> tuple[Reservation, ...]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        begin, length = draw(windows)
        gpus = draw(st.lists(st.integers(0, 3), unique=True, max_size=3))
        node = draw(st.sampled_from(["node1", "node2", "node3"]))
        owner = draw(st.sampled_from([None, "ann", "ann@a", "bob"]))
        end = max(begin + length, 1)
        found.append(Reservation(f"r{number}", node, tuple(gpus), owner, NOW + begin, NOW + end))
    return tuple(sorted(found, key=lambda each: each.begin))


@st.composite
def owned(draw: st.DrawFn) -> list[Task]:
    return [of(draw(st.sampled_from(OWNERS)), one) for one in draw(wishes())]


def used(found: Plan, queue: list[Task], plain: Cluster) -> list[tuple[Task, str, set[int], float, float]]:
    """Each task with its node, its GPUs, and from when to when it may be there."""
    index = {gpu.reading.uuid: gpu.reading.index for node in plain.nodes.values() for gpu in node.gpus}
    at: dict[str, tuple[str, tuple[str, ...], float]] = {
        name: (place.node, place.gpu_uuids, NOW) for name, place in found.starts.items()
    }
    for name, promise in found.promises.items():
        if promise and promise.start is not None:
            at[name] = (promise.node, promise.gpu_uuids, promise.start)
    return [
        (one, *at[one.id][:1], {index[uuid] for uuid in at[one.id][1]}, begin, begin + length)
        for one in queue
        if one.id in at
        for begin, length in [(at[one.id][2], one.spec.terms.time_limit or math.inf)]
    ]


def overlap(found: Plan, queue: list[Task], plain: Cluster, those: tuple[Reservation, ...]) -> list[Any]:
    return [
        (one.id, each.id)
        for one, node, gpus, begin, end in used(found, queue, plain)
        for each in those
        if each.node == node and each.begin < end and begin < each.end
        if each.owner is None or one.owner not in (each.owner, *(o for o in OWNERS if o.startswith(f"{each.owner}@")))
        if not each.gpus or gpus & set(each.gpus) or one.spec.needs.exclusive
    ]


@given(clusters(), owned(), reservations())
def test_no_task_of_another_owner_ever_overlaps_a_reservation(
    plain: Cluster, queue: list[Task], those: tuple[Reservation, ...]
) -> None:
    assert overlap(look(on(plain, *those), *queue), queue, plain, those) == []


@given(clusters(), owned(), reservations(), reservations())
def test_nor_does_one_when_the_reservations_were_made_after_the_promises(
    plain: Cluster, queue: list[Task], before: tuple[Reservation, ...], those: tuple[Reservation, ...]
) -> None:
    first = look(on(plain, *before), *queue)
    waiting = [one for one in queue if one.id not in first.starts]
    found = plan(on(plain, *those), waiting, NOW, POLICIES, first)
    assert overlap(found, waiting, plain, those) == []


@given(clusters(), owned(), reservations())
def test_reservations_for_everybody_who_waits_change_nothing(
    plain: Cluster, queue: list[Task], those: tuple[Reservation, ...]
) -> None:
    anns = [of("ann@a", one) for one in queue]
    assert look(on(plain, *(replace(each, owner="ann") for each in those)), *anns) == look(plain, *anns)


@given(clusters(), owned(), reservations())
def test_who_may_use_nothing_of_it_may_use_the_rest_as_if_the_reserved_nodes_were_not_there(
    plain: Cluster, queue: list[Task], those: tuple[Reservation, ...]
) -> None:
    for_ever = [replace(each, gpus=(), owner=None, begin=NOW - 1, end=math.inf) for each in those]
    left = {name: node for name, node in plain.nodes.items() if name not in {each.node for each in those}}
    assert look(on(plain, *for_ever), *queue).starts == look(Cluster(left), *queue).starts


@given(clusters(), owned(), reservations())
def test_there_is_a_reason_exactly_when_it_does_not_start(
    plain: Cluster, queue: list[Task], those: tuple[Reservation, ...]
) -> None:
    cluster_ = on(plain, *those)
    for one in queue:
        assert (refusal(cluster_, one.spec, one.owner) is None) == (one.id in look(cluster_, one).starts)
        assert (never(cluster_, one.spec, one.owner) is None) == (never(plain, one.spec) is None)


# ---------------------------------------------------------------------- in words


def why(node: Cluster, target: str, owner: str = "bob@b", **wanted: Any) -> str:
    return str(refusal(node, spec(needs=parse_target(target), **wanted), owner))


def test_the_reservation_is_named_with_its_owner_times_and_reason() -> None:
    of_ann = reserved("node1::0,1", end=7200, reason="deadline")
    when = f"from {format_moment(NOW)} to {format_moment(NOW + 7200)}"
    node = on(cluster(seen(gpus=2)), of_ann)
    assert why(node, "node1::1") == f"node1::1: GPU 1 is reserved for ann {when} (deadline)"
    assert f"(GPUs 0,1 are reserved for ann {when} (deadline))" in why(node, "1x")
    alone = str(refusal(node, replace(spec(), needs=replace(parse_target("node1"), exclusive=True)), "bob@b"))
    assert f"needs node1 to itself; node1::0,1 is reserved for ann {when} (deadline)" in alone


def test_a_whole_node_is_named_as_such() -> None:
    node = on(cluster(seen(gpus=2)), reserved("node1", None, reason="new fans"))
    assert why(node, "node1").startswith("node1: node1 is reserved for maintenance from ")


def test_in_front_of_a_window_it_is_said_what_would_help() -> None:
    node = on(cluster(seen(gpus=1)), reserved("node1::0", begin=60, end=120))
    assert why(node, "node1::0").endswith("; to start before it, set a --time-limit that ends in time")
    assert why(node, "node1::0", terms=Terms(time_limit=HOUR)).endswith(
        "; the task may run for 1h 0m, into the reservation"
    )


def test_what_is_reserved_soon_is_told_beside_its_gpus_and_what_is_later_is_not() -> None:
    soon = reserved("node1::0", begin=24 * HOUR, end=30 * HOUR)
    later = reserved("node1::1", begin=25 * HOUR, end=30 * HOUR)
    (node,) = on(cluster(seen(gpus=2)), soon, later).nodes.values()
    assert (shown(node, 0, NOW), shown(node, 1, NOW)) == (soon, None)
    view = gpu_view("node1", node.gpus[0], soon)
    assert view.reserved == str(soon)
    assert view.reservation == ReservedView("ann", timestamp(soon.begin), timestamp(soon.end), "")


def test_what_is_over_is_nobodys_concern() -> None:
    node = cluster(seen()).nodes["node1"]
    over = reserved("node1", begin=-HOUR, end=0)
    assert (
        survey({"node1": node.config}, {"node1": node.observation}, (), NOW, reservations=[over])
        .nodes["node1"]
        .reservations
        == ()
    )


def test_tasks_of_others_that_may_still_be_there_are_in_the_way() -> None:
    tasks = (
        runs("endless", "node1::0"),
        runs("short", "node1::1", 0, 100),
        runs("long", "node1::2", 0, 500),
        runs("elsewhere", "node1::3"),
        of("ann@a", runs("hers", "node1::0")),
    )
    node = cluster(seen(gpus=4), tasks).nodes["node1"]
    assert in_the_way(reserved("node1::0,1,2", begin=100, end=200), node) == (
        "task endless of me@here (no time limit)",
        f"task long of me@here (may run until {format_moment(NOW + 500)})",
    )


# -------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("new", "error", "words"),
    [
        (reserved("node1", begin=10, end=10), UsageError, "the end, "),
        (reserved("node1", begin=-HOUR, end=HOUR), UsageError, "has passed"),
        (reserved("node1", end=LATEST - NOW), UsageError, "out of range"),
        (reserved("node1", begin=-LATEST - NOW), UsageError, "out of range"),
        (reserved("node1::0,2"), Refused, "node1::0,2: no GPU 2; list GPUs with: agentless gpus node1"),
        (reserved("node1", ""), UsageError, "owner '': use USER@HOST"),
        (reserved("node1", "ann smith"), UsageError, "use USER@HOST, as in agentless ps, or USER"),
        (reserved("node1", "a\x1b[2J"), UsageError, "owner 'a\\x1b[2J'"),
        (reserved("node1", reason="two\nlines"), UsageError, "one line"),
        (reserved("node1", reason="x" * 201), UsageError, "at most 200 characters"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_is_wrong(
    new: Reservation, error: type[AgentlessError], words: str
) -> None:
    with pytest.raises(error) as found:
        check_reservation(new, (), cluster(seen(gpus=2)).nodes["node1"], NOW)
    assert words in str(found.value)


def test_a_begin_that_was_now_when_it_was_sent_is_not_in_the_past() -> None:
    check_reservation(reserved("node1", begin=-LATE), (), cluster(seen()).nodes["node1"], NOW)


def test_a_gpu_of_a_node_that_nobody_has_seen_is_not_reserved_but_the_whole_node_is() -> None:
    unseen = cluster(seen(error="no route", sample=None)).nodes["node1"]
    check_reservation(reserved("node1", None), (), unseen, NOW)
    with pytest.raises(Unreachable, match="cannot tell whether GPU 0 exists"):
        check_reservation(reserved("node1::0"), (), unseen, NOW)


@pytest.mark.parametrize(
    ("other", "clashes"),
    [
        (reserved("node1::1,2", "bob"), True),
        (reserved("node1", "bob"), True),
        (reserved("node1::1", None), True),
        (reserved("node1::2", "bob"), False),
        (reserved("node2::1", "bob"), False),
        (reserved("node1::1", "ann"), False),
        (reserved("node1::1", "bob", HOUR, 2 * HOUR), False),
        (reserved("node1::1", "bob", -HOUR, 0), False),
    ],
)
def test_the_same_is_not_reserved_for_two_owners_at_a_time(other: Reservation, clashes: bool) -> None:
    node, new = cluster(seen(gpus=4)).nodes["node1"], reserved("node1::0,1", "ann")
    assert new.clashes(other) == other.clashes(new) == clashes
    if not clashes:
        check_reservation(new, [other], node, NOW)
        return
    with pytest.raises(
        Refused, match=f"{other.target} is already reserved for .*; cancel that with: agentless unreserve r1"
    ):
        check_reservation(new, [other], node, NOW)


@pytest.mark.parametrize(
    ("owner", "begin", "end", "bars"),
    [
        ("bob@b", -1, 1, True),
        ("bob@b", HOUR - 1, HOUR + 1, True),
        ("bob@b", -1, 0, False),
        ("bob@b", HOUR, HOUR + 1, False),
        ("ann@a", 0, 1, False),
    ],
)
def test_others_are_barred_in_its_time_and_not_at_its_ends(owner: str, begin: float, end: float, bars: bool) -> None:
    assert reserved("node1").bars(owner, NOW + begin, NOW + end) is bars


@pytest.mark.parametrize(("target", "covered"), [("node1", [0, 1, 2]), ("node1::0,2", [0, 2])])
def test_a_whole_node_is_all_of_its_gpus(target: str, covered: list[int]) -> None:
    assert [gpu for gpu in range(3) if reserved(target).covers(gpu)] == covered


def test_a_reservation_without_a_reason_gives_none() -> None:
    when = f"from {format_moment(NOW)} to {format_moment(NOW + HOUR)}"
    assert str(reserved("node1", None)) == f"reserved for maintenance {when}"


def test_a_reason_may_be_as_long_as_is_said() -> None:
    node = cluster(seen(gpus=4)).nodes["node1"]
    check_reservation(reserved("node1", reason="x" * MAX_REASON), [], node, NOW)
    with pytest.raises(UsageError, match=f"at most {MAX_REASON} characters"):
        check_reservation(reserved("node1", reason="x" * (MAX_REASON + 1)), [], node, NOW)


# ------------------------------------------------------------------------ times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", NOW),
        ("2h", NOW + 7200),
        ("1d12h", NOW + 36 * HOUR),
        ("2027-01-15T08:00:00Z", NOW),
        ("2027-01-15T09:00+01:00", NOW),
        ("2027-01-15 13:30+05:30", NOW),
        ("08:30", NOW + HOUR / 2),
        ("8:00", NOW + 24 * HOUR),
        ("7:30", NOW + 23.5 * HOUR),
    ],
)
def test_moments_are_read(text: str, seconds: float) -> None:
    assert parse_moment(text, NOW) == seconds


@pytest.mark.parametrize(
    ("zone", "shown"),
    [("UTC", " UTC"), ("Europe/Berlin", "+01:00"), ("Asia/Kolkata", "+05:30"), ("Europe/London", " UTC")],
)
def test_a_date_without_a_zone_is_local_time_and_is_shown_with_one(
    zone: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert format_moment(parse_moment("2026-11-22T08:00", NOW)) == f"2026-11-22 08:00{shown}"
        assert parse_moment("2026-11-22 08:00", NOW) == time.mktime((2026, 11, 22, 8, 0, 0, 0, 0, -1))
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "-2h", "0001-01-01", "2026-11-22T25:00", "T"])
def test_what_is_no_moment_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time; use 2026-11-22T08:00"):
        parse_moment(text, NOW)


def test_a_minute_ago_is_still_meant_and_what_is_before_is_over() -> None:
    assert check_future(NOW - 60, NOW, "x") == NOW - 60
    with pytest.raises(UsageError, match="'x' was 1m 0s ago; use a time in the future"):
        check_future(NOW - 60.5, NOW, "x")


# ---------------------------------------------------------------------- on disk


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def test_reservations_are_there_after_a_restart_beside_the_tasks(file: Path) -> None:
    made = [reserved("node1::0,1", reason="é", made_by="me@here"), reserved("node2", None, id="r2")]
    store = TaskStore(file)
    store.save(task("t1"))
    ReservationStore(store).save(made)
    store.save(task("t2"))
    again = TaskStore(file)
    assert ReservationStore(again).load() == {"r1": made[0], "r2": made[1]}
    assert sorted(again.load()) == ["t1", "t2"]


def test_one_that_was_given_back_is_gone(file: Path) -> None:
    store = ReservationStore(TaskStore(file))
    store.save([reserved("node1"), reserved("node2", id="r2")])
    store.remove("r1")
    assert list(ReservationStore(TaskStore(file)).load()) == ["r2"]


def test_a_file_without_reservations_has_none(file: Path) -> None:
    assert ReservationStore(TaskStore(file)).load() == {}


def test_a_damaged_reservation_is_refused_with_what_to_do(file: Path) -> None:
    ReservationStore(TaskStore(file)).save([reserved("node1")])
    tables = orjson.loads(file.read_bytes())
    tables["reservations"]["r1"]["begin"] = "soon"
    file.write_bytes(orjson.dumps(tables))
    with pytest.raises(StateError, match="damaged reservation"):
        ReservationStore(TaskStore(file)).load()


# ----------------------------------------------------------------- what is typed


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("node1 --from now --to 2h", "Specify --for OWNER"),
        ("node1 --for ann --maintenance --from now --to 2h", "Specify --for OWNER"),
        ("node1 --for ann --from tomorrow --to 2h", "'tomorrow' is not a time; use 2026-11-22T08:00"),
        ("node1 --for ann --from now", "Missing option '--to'"),
        ("--for ann --from now --to 2h", "Missing argument 'TARGET...'"),
    ],
)
def test_what_cannot_be_meant_ends_with_exit_code_2_before_anybody_is_asked(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reserve", *words.split()]) == 2
    assert complaint in capsys.readouterr().err
