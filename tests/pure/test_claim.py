"""A container carries its whole task in labels, and whatever is in them, reading them is safe."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.model.containers.claim import (
    CORES,
    DAMAGED,
    GPUS,
    MEMORY,
    NUMA,
    SPEC,
    TASK,
    claim_of,
    labels_of,
    task_of,
)
from agentless.model.containers.container import Container
from agentless.model.images.env import NULL
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import Mount, TaskSpec, check_spec
from agentless.model.tasks.task import Assigning, Ended, Placement, Running, Task
from agentless.model.tasks.terms import Terms
from agentless.rules.scheduling.plan import Outlook
from agentless.rules.views.publish import task_view
from tests.pure.build import CID, NOW, container, placement, spec, task

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
names = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).filter(lambda name: not name.startswith("AGENTLESS_"))
specs = st.builds(
    TaskSpec,
    command=st.lists(words, min_size=1, max_size=4).map(tuple),
    image=st.just("busybox"),
    name=st.none() | st.from_regex(r"[a-z][a-z0-9._-]{0,10}", fullmatch=True),
    cores=st.none() | st.floats(0.01, 1024),
    memory=st.none() | st.integers(2**23, 2**62),
    shm_size=st.none() | st.integers(2**20, 2**62),
    env=st.dictionaries(names, words, max_size=3),
    secret_env=st.lists(st.just("TOKEN") | st.just("KEY"), unique=True).map(tuple),
    mounts=st.lists(st.builds(Mount, words, words, st.booleans()), max_size=2).map(tuple),
    workdir=st.none() | st.just("/w"),
    user=st.none() | st.just("1000:1000"),
    network=st.none() | st.just("host"),
    privileged=st.booleans(),
    stop_grace=st.floats(0, 1e6),
    labels=st.dictionaries(st.from_regex(r"[a-z][a-z./-]{0,8}", fullmatch=True), words, max_size=3),
    needs=st.builds(
        Needs,
        gpus=st.integers(1, 8),
        gpu_memory=st.none() | st.integers(2**20, 2**40),
        gpu_types=st.lists(st.just("A100") | st.just("RTX*"), max_size=2).map(tuple),
        exclude=st.lists(st.just("node9"), max_size=1).map(tuple),
        on=st.dictionaries(st.just("rack"), words, max_size=1),
        exclusive=st.booleans(),
        policy=st.none() | st.just("spread"),
    ),
    terms=st.builds(
        Terms,
        priority=st.integers(-1000, 1000),
        time_limit=st.none() | st.floats(1, 1e6),
        wait_for=st.none() | st.floats(0, 1e6),
    ),
)
places = st.tuples(st.none() | st.integers(0, 3), st.lists(st.integers(0, 15), unique=True, max_size=4).map(tuple))


@given(specs, places)
def test_a_task_comes_back_from_the_labels_of_its_container(
    wanted: TaskSpec, place: tuple[int | None, tuple[int, ...]]
) -> None:
    check_spec(wanted)
    numa, gpus = place
    at = Placement("node1", gpus, tuple(f"GPU-{n}" for n in gpus), "0-3" if numa else None, numa)
    before = task(spec=wanted)
    found = Container(CID, before.container_name, "running", labels_of(before, at, "c1"), started_at=NOW)
    back = task_of(found, "node1", NOW)
    assert back is not None
    for field in ("id", "spec", "batch", "owner", "created_at", "placement"):
        expected = at if field == "placement" else getattr(before, field)
        assert getattr(back, field) == expected
    claim = claim_of(found)
    assert claim
    assert claim.numa == numa


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("2.5", 2.5),
        ("0.5", 0.5),
        ("1073741824", 2**30),
        ("inf", None),
        ("nan", None),
        ("-1", None),
        ("0", None),
        ("two", None),
    ],
)
def test_amounts_in_labels_are_numbers_or_unknown(said: str, read: float | None) -> None:
    """Anybody may have written them, and what is endless or negative would set the room of the node aside."""
    labels = labels_of(task(), placement(), "c1")
    found = claim_of(container(task(), labels={**labels, CORES: said, MEMORY: said}))
    assert found
    assert (found.cores, found.memory) == (read, read)


@pytest.mark.parametrize(
    ("shown", "changes", "state"),
    [
        ("created", {}, "assigning"),
        ("running", {}, "running"),
        ("restarting", {}, "running"),
        ("paused", {}, "paused"),
        ("exited", {}, "completed"),
        ("exited", {"exit_code": 3}, "failed"),
        ("exited", {"exit_code": 137, "oom_killed": True}, "killed_oom"),
        ("exited", {"oom_killed": True}, "completed"),
        ("dead", {"exit_code": None}, "failed"),
    ],
)
def test_the_state_of_the_task_is_that_of_its_container(shown: Any, changes: dict[str, Any], state: str) -> None:
    back = task_of(container(task(), shown, **changes), "node1", NOW)
    assert back is not None
    assert back.state == state
    if isinstance(back.status, Ended):
        assert (back.status.started_at, back.status.ended_at) == (NOW - 60, NOW - 10)


def test_the_node_is_called_as_this_inventory_calls_it() -> None:
    back = task_of(container(task()), "gpu-box", NOW)
    assert back is not None
    assert back.placement == Placement("gpu-box", (0,), ("GPU-node1-0",))


def test_a_users_label_cannot_replace_one_of_ours() -> None:
    """`check_spec` refuses it; the labels hold even so."""
    labels = labels_of(task(spec=spec(labels={TASK: "evil", "a": "b"})), placement(), "c1")
    assert (labels[TASK], labels["a"]) == ("t1", "b")


def test_the_value_of_a_secret_has_no_way_into_the_labels() -> None:
    labels = labels_of(task(spec=spec(env={"A": "plain"}, secret_env=("TOKEN",))), placement(), "c1")
    assert json.loads(labels[SPEC])["spec"]["secret_env"] == ["TOKEN"]
    assert json.loads(labels[SPEC])["spec"]["env"] == {"A": "plain"}


def test_a_container_of_somebody_else_has_no_claim() -> None:
    assert claim_of(container(task(), labels={})) is None
    assert task_of(container(task(), labels={"com.example": "x"}), "node1", NOW) is None


def test_a_claim_without_gpus_claims_none() -> None:
    found = claim_of(container(task(target="node1")))
    assert found is not None
    assert found.gpu_uuids == ()


def test_labels_of_a_newer_version_are_read_as_far_as_they_are_known() -> None:
    labels = labels_of(task(), placement(), "c1")
    whole = json.loads(labels[SPEC])
    whole["priority"] = whole["spec"]["priority"] = 7
    back = task_of(container(task(), labels=labels | {SPEC: json.dumps(whole)}), "node1", NOW)
    assert back is not None
    assert back.spec == task().spec


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "{}", '"x"', '{"spec":{}}', "\x00", '{"target":1,"batch":"b","created_at":0,"gpus":[]}'],
)
def test_a_task_whose_spec_is_damaged_is_shown_with_what_the_other_labels_say(text: str) -> None:
    damaged = container(task(), labels=labels_of(task(), placement(), "c1") | {SPEC: text})
    found = task_of(damaged, "node1", NOW)
    assert found is not None
    assert (found.id, found.owner, found.state, found.spec.command) == ("t1", "me@here", "running", (DAMAGED,))
    assert found.placement is not None
    assert (found.placement.node, found.placement.gpu_uuids) == ("node1", ("GPU-node1-0",))


def test_names_in_labels_are_one_line() -> None:
    forged = replace(task(), batch="b\nBcc: x", spec=replace(task().spec, name="evil\nBcc: x"))
    found = task_of(container(task(), labels=labels_of(forged, placement(), "c1")), "node1", NOW)
    assert found is not None
    assert (found.spec.name, found.batch, found.spec.command) == ("evil Bcc: x", "b Bcc: x", task().spec.command)


def test_a_missing_spec_is_a_damaged_one() -> None:
    labels = labels_of(task(), placement(), "c1")
    found = task_of(container(task(), labels={TASK: labels[TASK], GPUS: labels[GPUS]}), "node1", NOW)
    assert found is not None
    assert (found.owner, found.spec.command) == ("unknown", (DAMAGED,))


def test_a_task_is_on_the_node_as_it_is_called_here() -> None:
    """Its owner may have another name for the same machine."""
    found = task_of(container(task(target="gpu7::0")), "node1", NOW)
    assert found is not None
    assert (found.node, found.placement and found.placement.node) == ("node1", "node1")


@pytest.mark.parametrize("off", [-26, 26])
def test_times_are_by_our_clock_whatever_the_nodes_clock_shows(off: int) -> None:
    ahead = off * 3600.0
    there = {"created_at": NOW - 61 + ahead, "started_at": NOW - 60 + ahead, "finished_at": NOW - 10 + ahead}
    found = task_of(container(task(), "exited", clock=ahead, **there), "node1", NOW)
    assert found is not None
    assert isinstance(found.status, Ended)
    assert (found.status.started_at, found.status.ended_at) == (NOW - 60, NOW - 10)


def test_nothing_is_in_the_future_when_the_clock_was_another_one_at_the_start() -> None:
    """The node's clock was set back by hours while the container ran; how long it ran is still right."""
    found = task_of(container(task(), "exited", started_at=NOW + 7200, finished_at=NOW + 7230), "node1", NOW)
    assert found is not None
    assert isinstance(found.status, Ended)
    assert (found.status.started_at, found.status.ended_at) == (NOW - 30, NOW)


def test_the_labels_say_which_state_folder_the_task_came_from_and_whether_it_shares() -> None:
    claim = claim_of(container(task(), labels=labels_of(task(spec=spec(share=True)), placement(), "c1")))
    assert claim is not None
    assert (claim.controller, claim.share) == ("c1", True)
    plain = claim_of(container(task()))
    assert plain is not None
    assert not plain.share


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.data())
def test_whatever_stands_in_a_label_can_be_read_and_shown(data: st.DataObject) -> None:
    """Anybody who may use docker on a node can write labels; one bad container must not break `ps` for all."""
    before = task(spec=spec(env={"A": "1"}, mounts=(Mount("/a", "/b"),)))
    whole: dict[str, Any] = json.loads(labels_of(before, placement(), "c1")[SPEC])
    place = data.draw(st.sampled_from([whole, whole["spec"]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(json_values)
    back = task_of(container(before, labels={TASK: "t1", SPEC: json.dumps(whole)}), "node1", NOW)
    assert back is None or isinstance(task_view(back, (), Outlook(), mine=False).id, str)
    assert back is None or isinstance(back, Task)


def test_the_labels_say_what_else_of_the_node_is_set_aside_and_until_when() -> None:
    asks = spec(cores=0.5, memory=2**40 + 1, needs=Needs(exclusive=True), terms=Terms(time_limit=60.0), stop_grace=10.0)
    claims = [
        claim_of(container(task(), labels=labels_of(task(spec=each), placement(), "c1"))) for each in (asks, spec())
    ]
    assert [each and (each.cores, each.memory, each.limit, each.exclusive) for each in claims] == [
        (0.5, 2**40 + 1, 70, True),
        (None, None, None, False),
    ]


def test_a_spec_is_written_as_version_2_and_without_what_was_not_asked_for() -> None:
    whole = json.loads(labels_of(task(), placement(), "c1")[SPEC])
    assert whole["version"] == 2
    assert None not in (*whole.values(), *whole["spec"].values())


def test_a_spec_of_version_1_says_with_its_place_what_was_asked_for() -> None:
    whole = json.loads(labels_of(task(), placement(), "c1")[SPEC])
    whole |= {"target": "elsewhere::0,1", "version": 1}
    found = task_of(container(task(), labels={TASK: "t1", SPEC: json.dumps(whole)}), "node1", NOW)
    assert found is not None
    assert (found.spec.needs.nodes, found.spec.needs.indices) == (("node1",), (0, 1))


@pytest.mark.parametrize(("number", "read"), [("", None), ("0", 0), ("9999", 9999), ("12345", None), ("-1", None)])
def test_a_numa_node_in_a_label_is_a_number_or_unknown(number: str, read: int | None) -> None:
    found = claim_of(container(task(), labels={TASK: "t1", NUMA: number}))
    assert found
    assert found.numa == read


@pytest.mark.parametrize(
    ("times", "submitted", "began"),
    [
        ({"created_at": NOW - 70}, NOW - 70, NOW - 60),
        ({"created_at": NOW - 70, "started_at": None}, NOW - 70, NOW - 70),
        ({"created_at": None, "started_at": None}, 0, 0),
        ({"created_at": 5.0, "clock": 10.0, "started_at": 5.0}, 0, 0),
    ],
)
def test_a_task_whose_spec_is_damaged_was_submitted_when_its_container_was_made(
    times: dict[str, Any], submitted: float, began: float
) -> None:
    found = task_of(container(task(), labels={TASK: "t1"}, **times), "node1", NOW)
    assert found is not None
    assert isinstance(found.status, Running)
    assert (found.batch, found.created_at, found.status.started_at) == ("t1", submitted, began)


@pytest.mark.parametrize(("runs_it", "kind"), [(CID, None), ("agentless-t1.service", NULL)])
def test_a_damaged_task_is_of_the_kind_that_runs_it(runs_it: str, kind: str | None) -> None:
    found = task_of(container(task(), labels={TASK: "t1"}, id=runs_it), "node1", NOW)
    assert found is not None
    assert found.spec.container == kind


def test_a_spec_that_says_it_is_no_container_is_not_believed_of_one() -> None:
    labels = labels_of(task(spec=spec(image=None, container=NULL)), placement(), "c1")
    found = [task_of(container(task(), labels=labels, id=each), "node1", NOW) for each in (CID, "t1.service")]
    assert [each and each.spec.command for each in found] == [(DAMAGED,), ("true",)]


@pytest.mark.parametrize("damage", [{}, {SPEC: ""}])
def test_one_without_a_right_to_its_name_is_called_otherwise(damage: dict[str, str]) -> None:
    labels = labels_of(task(), placement(), "c1") | damage
    found = task_of(container(task(), labels=labels), "node1", NOW, "c0ffee")
    assert found is not None
    assert (found.id, found.batch) == ("c0ffee", "c0ffee" if damage else "t1")


@pytest.mark.parametrize(
    ("state", "changes", "began"),
    [
        ("running", {"started_at": NOW}, NOW),
        ("created", {}, NOW - 61),
        ("running", {"started_at": NOW - 200}, NOW - 100),
        ("running", {"started_at": NOW + 5}, NOW),
    ],
)
def test_a_task_began_when_its_container_did_between_its_submit_and_now(
    state: Any, changes: dict[str, Any], began: float
) -> None:
    found = task_of(container(task(), state, **changes), "node1", NOW)
    assert found is not None
    assert isinstance(found.status, Assigning | Running)
    assert (found.status.since if isinstance(found.status, Assigning) else found.status.started_at) == began


def test_one_whose_end_is_not_told_has_ended_when_it_began() -> None:
    found = task_of(container(task(), "exited", finished_at=None), "node1", NOW)
    assert found is not None
    assert isinstance(found.status, Ended)
    assert (found.status.started_at, found.status.ended_at) == (NOW - 60, NOW - 60)


def test_nobody_has_submitted_a_task_in_the_future() -> None:
    found = task_of(container(task(created_at=NOW + 50)), "node1", NOW)
    assert found is not None
    assert found.created_at == NOW


def test_how_often_it_was_preempted_is_in_its_labels_and_nothing_if_it_never_was() -> None:
    often = replace(task("t1-4"), preemptions=3)
    found = task_of(container(often), "node1", NOW)
    assert found
    assert (found.preemptions, found.tries) == (3, 1)
    assert "preemptions" not in labels_of(task(), placement(), "c1")[SPEC]
