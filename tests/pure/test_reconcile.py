"""What the node says of a task against what is remembered of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.model.containers.claim import labels_of
from agentless.model.containers.container import DATED_LATE, Container, ContainerState
from agentless.model.containers.signature import SIGNATURE
from agentless.model.nodes.node_record import MAX_KEPT, NodeRecord
from agentless.model.tasks.task import Ended, Placement, Running, Submitted
from agentless.model.tasks.task_event import (
    Assigned,
    Dated,
    Exited,
    Launched,
    LaunchFailed,
    LostContact,
    Restarted,
    Vanished,
)
from agentless.model.tasks.terms import Terms
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.reconcile import (
    HIDDEN,
    LAUNCH_BOUND,
    REAP_AFTER,
    container_of,
    is_forsaken,
    is_hidden,
    reconcile,
)
from agentless.rules.tasks.retry import another_try
from tests.pure.build import CID, NOW, STATES, container, placement, spec, task

CONTAINER_STATES = get_args(ContainerState)

# Remembered state x the container's state: what the task is afterwards. `created` says nothing yet.
AFTERWARDS: dict[str, dict[str, str]] = {
    "assigning": {
        "created": "assigning",
        "queued": "submitted",
        "running": "running",
        "paused": "paused",
        "restarting": "running",
        "removing": "running",
        "exited": "completed",
        "dead": "completed",
    },
    "running": {
        "created": "running",
        "queued": "submitted",
        "running": "running",
        "paused": "paused",
        "restarting": "running",
        "removing": "running",
        "exited": "completed",
        "dead": "completed",
    },
    "paused": {
        "created": "paused",
        "queued": "submitted",
        "running": "running",
        "paused": "paused",
        "restarting": "paused",
        "removing": "paused",
        "exited": "completed",
        "dead": "completed",
    },
    "lost": {
        "created": "lost",
        "queued": "submitted",
        "running": "running",
        "paused": "paused",
        "restarting": "running",
        "removing": "running",
        "exited": "completed",
        "dead": "completed",
    },
    "blocked": dict.fromkeys(CONTAINER_STATES, "blocked"),
    "scheduled": dict.fromkeys(CONTAINER_STATES, "scheduled"),
    "pending": dict.fromkeys(CONTAINER_STATES, "pending"),
    "ended": dict.fromkeys(CONTAINER_STATES, "completed")
    | {"queued": "submitted", "running": "running", "restarting": "running", "paused": "paused"},
    "submitted": {
        "created": "submitted",
        "queued": "submitted",
        "running": "running",
        "paused": "paused",
        "restarting": "running",
        "removing": "running",
        "exited": "completed",
        "dead": "completed",
    },
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
    assert event == Vanished("its container was removed on the node, outside agentless")


@pytest.mark.parametrize(("state", "lost"), [("running", True), ("paused", True), ("lost", True), ("hidden", False)])
def test_a_container_that_another_image_store_hides_makes_its_task_lost_and_not_ended(state: str, lost: bool) -> None:
    known = task(state="lost" if state == "hidden" else state)
    if state == "hidden":
        known = apply(known, LostContact(HIDDEN.format(known.id)), NOW)
    events = reconcile(known, None, NOW, record=NodeRecord(keeps="here").switched("there", NOW))
    assert [type(event) for event in events] == [LostContact] * lost
    assert isinstance(reconcile(known, None, NOW, record=NodeRecord(keeps="here").switched("there", 1.0))[0], Vanished)


@pytest.mark.parametrize("state", ["submitted", "running", "paused", "lost"])
def test_a_task_whose_cluster_is_another_slurm_now_is_lost_until_it_is_that_one_again(state: str) -> None:
    """Also if the other one has a job of its number; if Slurm has only lost its state, the job is gone."""
    known = task(state=state)
    known = replace(known, status=replace(known.status, container=f"7:{known.container_name}"))
    record = NodeRecord(keeps="lab at a").switched("lab at b", NOW)
    (event,) = reconcile(known, None, NOW, record=record)
    lost = apply(known, event, NOW)
    assert lost.status.reason.startswith(f"{known.node} is another Slurm now (ClusterName lab at b, it was lab at a)")
    job = replace(container(known, "running"), id=known.container, labels={}, doubtful=True)
    assert (is_hidden(lost), reconcile(lost, job, NOW, record=record)) == (True, ())
    assert settle(lost, replace(job, doubtful=False)).state == "running"
    back = record.switched("lab at a", NOW + 5)
    gone = LaunchFailed if state == "submitted" else Vanished
    assert isinstance(reconcile(known, None, NOW + 9, record=back)[-1], gone)


@pytest.mark.parametrize("state", ["submitted", "running", "paused", "lost"])
def test_a_task_whose_job_may_be_another_one_is_lost_until_that_has_ended(state: str) -> None:
    """Of a job that began when that of the task did, there is no doubt."""
    known = task(state=state)
    known = replace(known, status=replace(known.status, container=f"7:{known.container_name}"))
    job = replace(container(known, "running"), id=known.container, labels={}, doubtful=True, started_at=NOW - 7)
    (event,) = reconcile(known, job, NOW)
    lost = apply(known, event, NOW)
    assert (lost.state, is_hidden(lost), reconcile(lost, job, NOW)) == ("lost", True, ())
    assert f"scontrol update jobid=7 name={known.container_name}" in lost.status.reason
    ended = replace(job, state="exited", exit_code=0)
    assert isinstance(reconcile(lost, ended, NOW)[-1], LaunchFailed if state == "submitted" else Vanished)
    assert settle(lost, replace(job, doubtful=False)).state == "running"
    over = Ended("completed", NOW, placement=placement(), container=known.container)
    assert reconcile(replace(known, status=over), job, NOW) == ()
    if state != "submitted":
        same = replace(known, status=replace(known.status, run=NOW - 7))
        assert settle(same, job).state == "running"


@pytest.mark.parametrize("state", ["running", "paused", "lost"])
def test_a_container_that_is_gone_where_it_was_kept_ends_its_task_after_a_switch_and_back(
    state: str,
) -> None:
    record = NodeRecord(keeps="here").switched("there", NOW).switched("here", NOW + 5)
    (event,) = reconcile(task(state=state), None, NOW + 10, record=record)
    assert isinstance(event, Vanished)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=20))
def test_a_container_is_hidden_exactly_if_it_began_in_another_store_or_a_forgotten_one(
    stores: list[str],
) -> None:
    """The store is another at each full second; what began half a second later is in it."""
    record = NodeRecord()
    for at, store in enumerate(stores):
        record = record if store == record.keeps else record.switched(store, float(at))
    switches = [at for at in range(1, len(stores)) if stores[at] != stores[at - 1]]
    known_since = 0 if len(switches) <= MAX_KEPT else switches[-MAX_KEPT]
    for at, store in enumerate(stores):
        assert record.hides(at + 0.5) == (store != stores[-1] or at < known_since)
    assert len(record.kept) <= MAX_KEPT


def test_of_an_early_record_only_the_last_switch_is_known() -> None:
    record = NodeRecord(keeps="here", switched_at=5.0)
    assert (record.hides(4.0), record.hides(6.0)) == (True, False)


@pytest.mark.parametrize("state", ["running", "paused", "lost"])
def test_a_service_is_forgotten_by_systemd_when_its_node_goes_down(state: str) -> None:
    """It failed as a container would have; where no reboot was seen, somebody may have stopped it."""
    bare = task(state=state, spec=spec(container="NULL"))
    began = bare.status.started_at
    assert reconcile(bare, None, NOW, began + 1) == (Exited(255, error="the node went down while it ran"),)
    for booted in (None, began - 1):
        (event,) = reconcile(bare, None, NOW, booted)
        assert event == Vanished("its service ended: stopped on the node outside agentless, or the node went down")


@pytest.mark.parametrize("state", ["assigning", "lost before an answer"])
def test_a_launch_without_an_answer_is_left_to_a_second_launch(state: str) -> None:
    assert reconcile(task(state=state), None, NOW + 3600) == ()


@pytest.mark.parametrize("state", ["assigning", "lost before an answer"])
def test_a_stop_of_an_unanswered_launch_holds_once_no_launch_can_be_under_way(state: str) -> None:
    asked = task(state=state, stop="stop")
    since = asked.status.since
    assert reconcile(asked, None, since + LAUNCH_BOUND) == ()
    assert reconcile(asked, None, since + LAUNCH_BOUND + 1) == (LaunchFailed("stopped before it started"),)


@pytest.mark.parametrize("state", ["blocked", "scheduled", "pending", "ended"])
def test_what_is_not_on_a_node_has_nothing_to_agree_on(state: str) -> None:
    assert reconcile(task(state=state), None, NOW) == ()


def test_an_ending_is_what_the_engine_says_of_it() -> None:
    """Learned of a day later."""
    found = container(task(), "exited", exit_code=137, oom_killed=True, error="why")
    ended = settle(task(state="running"), found, NOW + 86_400).status
    assert (ended.state, ended.exit_code, ended.reason) == ("killed_oom", 137, "why")
    assert (ended.started_at, ended.ended_at) == (NOW - 60, NOW - 10)


def test_a_launch_and_an_end_that_nobody_saw_have_their_own_times() -> None:
    ended = settle(task(state="assigning"), container(task(), "exited"), NOW + 86_400).status
    assert (ended.started_at, ended.ended_at) == (NOW - 60, NOW - 10)


def test_a_process_that_ended_before_its_engine_dated_its_start_ran_for_no_time() -> None:
    found = container(task(), "exited", started_at=NOW - 9.9, finished_at=NOW - 9.902)
    ended = settle(task(state="running"), found).status
    assert ended.ended_at == ended.started_at == NOW - 9.9


@pytest.mark.parametrize("times", [{"started_at": NOW, "finished_at": NOW - 3600}, {"finished_at": None}])
def test_an_end_whose_time_makes_no_sense_is_when_it_was_noticed(times: dict[str, float | None]) -> None:
    assert settle(task(state="running"), container(task(), "exited", **times)).status.ended_at == NOW


@pytest.mark.parametrize(("seconds", "ran"), [(2.5, 2.5), (-DATED_LATE, 0.0), (-DATED_LATE - 0.5, None)])
def test_a_run_is_known_unless_its_end_is_well_before_its_start(seconds: float, ran: float | None) -> None:
    assert container(task(), "exited", started_at=NOW, finished_at=NOW + seconds).ran == ran


def test_a_start_in_the_future_is_when_its_end_was_noticed() -> None:
    found = container(task(), "exited", started_at=NOW + 50, finished_at=None)
    ended = settle(task(state="running"), found).status
    assert (ended.started_at, ended.ended_at) == (NOW, NOW)


@pytest.mark.parametrize("hours", [-26, 26])
def test_a_nodes_clock_that_is_hours_off_changes_no_date(hours: int) -> None:
    off = hours * 3600.0
    found = container(task(), "exited", started_at=NOW - 60 + off, finished_at=NOW - 10 + off, clock=off)
    ended = settle(task(state="running"), found).status
    assert (ended.started_at, ended.ended_at) == (NOW - 60, NOW - 10)


# ------------------------------------------------------------------ somebody else's hand


def seen(state: str = "running") -> Any:
    """A task whose container was looked at before."""
    return settle(task(state=state), container(task()))


def test_the_engines_start_is_taken_over_once() -> None:
    found = container(task(), started_at=NOW - 58)
    (event,) = reconcile(task(state="running"), found, NOW)
    assert event == Dated(NOW - 58, NOW - 58)
    assert reconcile(apply(task(state="running"), event, NOW), found, NOW) == ()


def test_a_container_that_was_restarted_has_a_new_start() -> None:
    (event,) = reconcile(seen(), container(task(), started_at=NOW - 5), NOW)
    assert event == Restarted(NOW - 5, NOW - 5)
    assert apply(seen(), event, NOW).status.started_at == NOW - 5


def test_a_node_whose_clock_was_set_right_has_restarted_nothing() -> None:
    found = container(task(), clock=-3600.0)
    assert reconcile(seen(), found, NOW) == ()


def test_a_container_that_was_restarted_after_its_end_is_a_live_task_again() -> None:
    over = settle(seen(), container(task(), "exited"))
    assert isinstance(over.status, Ended)
    again = settle(over, container(task(), started_at=NOW - 1))
    assert (again.state, again.status.started_at) == ("running", NOW - 1)
    assert (again.stop, reconcile(over, container(task(), "exited"), NOW)) == (None, ())


def test_a_stop_is_done_with_when_somebody_starts_the_container_again() -> None:
    over = settle(task(state="running", stop="stop"), container(task(), "exited"))
    assert settle(over, container(task(), started_at=NOW - 1)).stop is None


@pytest.mark.parametrize(("shown", "state"), [("running", "running"), ("paused", "paused"), ("exited", "completed")])
def test_a_launch_that_was_given_up_and_came_about_all_the_same_is_a_task_again(shown: Any, state: str) -> None:
    given_up = apply(task(state="assigning", stop="stop"), LaunchFailed("stopped before it started"), NOW)
    after = settle(given_up, container(task(), shown))
    assert (after.state.replace("stopped", "completed"), after.stop) == (state, "stop")


@pytest.mark.parametrize(("shown", "state"), [("running", "running"), ("paused", "paused"), ("exited", "completed")])
def test_a_container_that_was_not_to_be_seen_for_a_while_is_its_task_again(shown: Any, state: str) -> None:
    """The node was reached under another name, or another engine was asked."""
    vanished = settle(seen(), None)
    assert (vanished.state, vanished.status.exit_code) == ("failed", None)
    again = settle(vanished, container(task(), shown))
    assert (again.state, again.status.started_at) == (state, seen().status.started_at)
    assert reconcile(again, container(task(), shown), NOW) == ()


def test_a_task_that_was_cancelled_in_the_queue_has_no_container() -> None:
    cancelled = replace(task(state="ended"), status=Ended("cancelled", NOW - 1))
    assert reconcile(cancelled, container(task()), NOW) == ()


def test_another_container_does_not_revive_an_ended_task() -> None:
    assert reconcile(task(state="ended"), container(task(), id="another"), NOW) == ()


def test_a_container_that_restarted_and_ended_while_nobody_looked_has_its_last_end() -> None:
    found = container(task(), "exited", started_at=NOW - 30, finished_at=NOW - 20, exit_code=7)
    ended = settle(seen(), found).status
    assert (ended.exit_code, ended.started_at, ended.ended_at) == (7, NOW - 30, NOW - 20)


def test_a_run_is_as_long_as_it_was_although_the_clock_was_set_back_before_anybody_looked() -> None:
    """By the clock as it is now the run would be in the future."""
    found = container(task(), "exited", started_at=NOW + 7200, finished_at=NOW + 7230)
    ended = settle(task(state="assigning"), found).status
    assert (ended.ended_at, ended.ended_at - ended.started_at) == (NOW, 30)


def test_a_stop_of_a_launch_that_died_before_the_start_ends_in_the_end() -> None:
    asked = task(state="assigning", stop="stop")
    created = container(asked, "created")
    assert reconcile(asked, created, asked.status.since + LAUNCH_BOUND - 1) == ()
    late = asked.status.since + LAUNCH_BOUND + 1
    assert reconcile(asked, created, late) == (LaunchFailed("stopped before it started"),)


@pytest.mark.parametrize("off", [0.0, 7200.0])
def test_a_container_that_nobody_started_is_forsaken_after_a_grace_time(off: float) -> None:
    created = container(task(), "created", created_at=NOW + off, clock=off)
    assert not is_forsaken(created, NOW + REAP_AFTER)
    assert is_forsaken(created, NOW + REAP_AFTER + 1)
    assert not is_forsaken(container(task()), NOW + 86_400)


# ------------------------------------------------------------------ which container


def test_a_container_is_known_by_its_id_whatever_it_is_called() -> None:
    renamed = container(task(), name="somebody-renamed-it", labels={})
    assert container_of(task(state="running"), [container(task(), id="other"), renamed]) == renamed


@pytest.mark.parametrize("state", ["assigning", "lost before an answer"])
def test_the_container_of_an_unanswered_launch_is_found_by_its_label(state: str) -> None:
    renamed = container(task(), name="somebody-renamed-it")
    remembered = task(state=state)
    assert container_of(remembered, [container(task("t2")), renamed]) == renamed
    assert settle(remembered, renamed).status.container == CID
    assert container_of(remembered, [container(task("t2"))]) is None


@pytest.mark.parametrize(
    ("changes", "remembered", "found"),
    [
        ({}, {}, True),
        ({}, {"signed": True}, False),
        ({}, {"state": "ended"}, False),
        ({"name": "copy"}, {}, False),
        ({"labels": labels_of(task(), placement(), "c1") | {SIGNATURE: "1:0"}}, {}, False),
    ],
)
def test_without_a_signature_it_is_the_one_with_the_name_that_an_early_version_was_launching(
    changes: dict[str, Any], remembered: dict[str, Any], found: bool
) -> None:
    unsigned = container(task(), **({"signed": False} | changes))
    one = task(**({"state": "assigning"} | remembered))
    one = replace(one, status=replace(one.status, container=None)) if isinstance(one.status, Ended) else one
    assert (container_of(one, [unsigned]) == unsigned) is found


def test_what_is_assigned_now_is_signed() -> None:
    assert apply(task(state="pending"), Assigned(placement()), NOW).signed


def test_of_renamed_containers_with_one_label_the_oldest_is_the_tasks() -> None:
    renamed, copy = (container(task(), id=name, name=name, created_at=at) for name, at in (("a", NOW - 9), ("b", NOW)))
    assert container_of(task(state="assigning"), [copy, renamed]) == renamed


def test_a_copy_of_a_container_is_not_taken_for_it() -> None:
    copy = container(task(), id="copy", name="copy", created_at=NOW - 1000)
    ours = container(task())
    assert container_of(task(state="assigning"), [copy, ours]) == ours
    assert reconcile(task(state="assigning"), ours, NOW)[0] == Launched(CID)


@pytest.mark.parametrize(("agreed", "ends", "again"), [(True, "preempted", True), (False, "failed", False)])
def test_a_job_that_slurm_preempts_is_tried_again_if_its_task_agreed_to_that(
    agreed: bool, ends: str, again: bool
) -> None:
    before = replace(task("2abcdef", "hpc"), status=Running(Placement("hpc"), "7:agentless-2abcdef", NOW))
    before = replace(before, spec=replace(before.spec, terms=Terms(preemptible=agreed)))
    job = Container(
        "7:agentless-2abcdef", "agentless-2abcdef", "exited", {}, exit_code=143, error="was preempted",
        outcome="preempted", started_at=NOW,
    )  # fmt: skip
    after = before
    for event in reconcile(before, job, NOW):
        after = apply(after, event, NOW)
    assert (after.state, bool(another_try(before, after, NOW))) == (ends, again)


@pytest.mark.parametrize(("stop", "how", "after"), [(None, "killed", None), ("stop", "cancelled", "stop")])
def test_a_job_that_is_in_the_queue_again_after_its_end_is_submitted_and_stopped_once_more_if_it_was(
    stop: Any, how: str, after: str | None
) -> None:
    """Slurm may forget, in a crash, that a job was cancelled."""
    waiting = replace(task(state="submitted", stop=stop), signed=True)
    (gone,) = reconcile(waiting, None, NOW)
    ended = apply(waiting, gone, NOW)
    assert ended.state == how
    (again,) = reconcile(ended, container(ended, "queued", signed=True), NOW)
    found = apply(ended, again, NOW)
    assert (found.state, found.stop) == ("submitted", after)


@pytest.mark.parametrize(
    ("stop", "reason", "expected"),
    [
        (None, None, ("killed", "its job was removed from the queue of its cluster, outside agentless")),
        ("stop", None, ("cancelled", "stopped before it started")),
        ("stop", "gave up", ("cancelled", "gave up")),
    ],
)
@pytest.mark.parametrize("state", ["submitted", "lost"])
def test_a_job_that_is_missing_before_it_began_was_stopped_or_removed_from_its_queue(
    state: str, stop: Any, reason: str | None, expected: tuple[str, str]
) -> None:
    """Also if its cluster was silent meanwhile, and also an element of an array, which Slurm forgets at once."""
    status = Submitted(Placement("hpc"), "4711_2:agentless-t1", NOW)
    waits = replace(task(stop=stop, stop_reason=reason), status=status)
    found = waits if state == "submitted" else apply(waits, LostContact("cut off"), NOW)
    (event,) = reconcile(found, None, NOW)  # nothing says that it is in the queue
    found = apply(found, event, NOW)
    assert isinstance(found.status, Ended)
    assert (found.state, found.status.reason, found.status.container) == (*expected, status.container)
