"""Slices of GPUs as devices: how they are asked for, who gets them, and what others are told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agentless.controller.usage.metrics import text
from agentless.controller.usage.metrics_snapshot import MetricsSnapshot
from agentless.controller.vps.replacement import anywhere
from agentless.engines import beside
from agentless.errors import UsageError
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import Result
from agentless.model.containers.claim import DAMAGED, GPUS, SPEC, claim_of, labels_of, task_of
from agentless.model.nodes.cluster import Cluster, Observation
from agentless.model.nodes.device import Device, devices_of, overlap
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.nodes.node_record import GpuRecord, NodeRecord, Trouble
from agentless.model.scheduling.needs import Needs, is_slice_type, parse_target
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.spec import TaskSpec, check_spec
from agentless.model.tasks.task import Placement, Running, Task
from agentless.model.units import format_indices
from agentless.rules.explain.obstacles import never, refusal
from agentless.rules.explain.remedy import remedies
from agentless.rules.nodes.gpu_exclusion import gated, looked
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.plan import plan
from agentless.rules.scheduling.policies import pack
from agentless.rules.views.publish import gpu_view, node_view
from tests.mig import Capture
from tests.pure.build import CID, NOW, NodeConfig, container, reading, seen, spec, task
from tests.pure.test_metrics import one, values

MARKS = {"node1": "000000000001", "node2": "000000000002"}


def sample(card: str, node: str = "node1", load: str = "idle", *more: GpuReading) -> GpuSample:
    found = Nvidia().parse({"nvidia": Result(0, Capture(card, MARKS[node]).output(load).encode())})
    return replace(found, gpus=(*found.gpus, *more))


WHOLE = reading("node1", 1, name="NVIDIA H100 80GB HBM3", memory_total_mib=81559, memory_used_mib=1)
"""A second GPU of node1, which is not in MIG mode."""


def on(*tasks: Task, node1: Observation | None = None, **config: Any) -> Cluster:
    """An H100 in slices on node1, and an H200 in slices, some in use, on node2."""
    seen_ = {
        "node1": node1 or seen(sample=sample("h100")),
        "node2": seen("node2", sample=sample("h200", "node2", "load")),
    }
    nodes = {name: NodeConfig(name, f"{name}.lab", **config) for name in seen_}
    return survey(nodes, seen_, tasks, NOW)


def holds(name: str, *numbers: Any, node1: Observation | None = None) -> Task:
    """A task of ann that runs on these GPUs of node1."""
    there = {gpu.reading.number: gpu.reading for gpu in on(node1=node1).nodes["node1"].gpus}
    given = [there[number] for number in numbers]
    parents = tuple(each.parent or "" for each in given)
    at = Placement("node1", numbers, tuple(each.uuid for each in given), parents=parents if any(parents) else ())
    return replace(task(name, "node1", owner="ann@a"), status=Running(at, CID, NOW - 60))


def given(cluster: Cluster, target: str, **needs: Any) -> str | None:
    """Where a task with this target starts now."""
    asked = task("new", target, "pending", spec=spec(needs=replace(parse_target(target), **needs)))
    found = plan(cluster, [asked], NOW, {None: pack.cost}).starts.get("new")
    return str(found) if found else None


# ---------------------------------------------------------------------- asking


@pytest.mark.parametrize(
    ("target", "numbers"),
    [("node1::0/1", ("0/1",)), ("node1::0/0-2,1", ("0/0", "0/1", "0/2", 1)), ("n:1::10/0,2", ("10/0", 2))],
)
def test_a_target_names_slices_by_the_gpu_and_their_number(target: str, numbers: tuple[Any, ...]) -> None:
    found = parse_target(target)
    assert (found.indices, found.gpus) == (numbers, len(numbers))
    assert parse_target(str(found)) == found


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("node1::0/", "'0/' is not a slice of a GPU"),
        ("node1::0/1/2", "'0/1/2' is not a slice of a GPU"),
        ("node1::/1", "'/1' is not a slice of a GPU"),
        ("mig:1::0/a", "'0/a' is not a slice of a GPU; use HOST::GPU/SLICE, like mig:1::0/1 for slice 1 of GPU 0"),
        ("node1::0/3-1", "in reverse order; use 0/1-3"),
        ("node1::0/1,0/1", "GPU 0/1 is listed twice"),
        ("node1::0,0/1", "GPU 0 is listed whole, and its slice 0/1 too; list one of both"),
    ],
)
def test_a_wrong_slice_is_said_at_once(target: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_target(target)
    assert words in str(error.value)


@pytest.mark.parametrize("number", ["0/", "x", "0/1\n", "00/1", "0/1;rm", "1" * 9 + "/1", "-1/1"])
def test_a_number_in_a_request_is_matched_against_a_strict_pattern(number: str) -> None:
    needs = Needs(1, nodes=("node1",), indices=(number,))
    with pytest.raises(UsageError, match="is not a slice of a GPU"):
        check_spec(TaskSpec(("true",), image="x", needs=needs))


@pytest.mark.parametrize(
    ("pattern", "is_one"),
    [("mig", True), ("MIG", True), ("1g.10gb", True), ("1g*", True), ("1c.2g.20gb", True), ("1g.10gb+me", True),
     ("H100", False), ("3090", False), ("80GB", False), ("*", False), ("3*", False)],
)  # fmt: skip
def test_types_that_mean_slices(pattern: str, is_one: bool) -> None:
    assert is_slice_type(pattern) == is_one


def test_numbers_are_shortened_to_ranges() -> None:
    assert format_indices(["0/0", "0/1", "0/2", "1/0"]) == "0/0-2,1/0"
    assert format_indices([0, 1, 2, "3/0", "3/1"]) == "0-2,3/0,3/1"


# ---------------------------------------------------------------------- placing


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("1x:10G", "node1::0/2"),
        ("1x:15G", "node1::0/1"),
        ("1xmig", "node1::0/2"),
        ("2xmig", "node1::0/2,0/3"),
        ("1x1g.10gb", "node1::0/2"),
        ("1x1g.18gb", "node2::0/3"),
        ("1x2g*", "node1::0/1"),
        ("node1::0/1", "node1::0/1"),
        ("node1::0/0-1", "node1::0/0,0/1"),
        ("1x", None),
        ("1xH100", None),
        ("1xH100:10G", None),
        ("2x:10G", None),
        ("1x*", None),
        ("node1::0", None),
        ("node2::0/1", None),  # in use
    ],
)
def test_a_slice_is_given_to_who_asks_for_one(target: str, place: str | None) -> None:
    assert given(on(), target) == place


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("1x:10G", "node1::0/2"),
        ("1x:60G", "node1::1"),
        ("1x", "node1::1"),
        ("1xH100", "node1::1"),
        ("1xH100:10G", "node1::1"),
    ],
)
def test_a_whole_gpu_is_given_where_no_slice_fits_or_none_is_meant(target: str, place: str) -> None:
    cluster = on(node1=seen(sample=sample("h100", "node1", "idle", WHOLE)))
    only = replace(cluster, nodes={"node1": cluster.nodes["node1"]})
    assert given(only, target) == place


def test_a_slice_goes_before_a_small_gpu() -> None:
    small = replace(WHOLE, name="Tesla T4", memory_total_mib=15360)
    cluster = on(node1=seen(sample=sample("h100", "node1", "idle", small)))
    only = replace(cluster, nodes={"node1": cluster.nodes["node1"]})
    assert given(only, "1x:15G") == "node1::0/1"
    assert given(only, "1xT4:15G") == "node1::1"


def test_slices_are_full_one_after_the_other_and_the_gpu_is_nobodys() -> None:
    node1 = seen(sample=sample("h100", "node1", "idle", WHOLE))
    tasks = [holds("t1", "0/2", node1=node1), holds("t2", "0/3", node1=node1)]
    cluster = on(*tasks, node1=node1)
    only = replace(cluster, nodes={"node1": cluster.nodes["node1"]})
    assert given(only, "1x:10G") == "node1::0/1"
    assert given(only, "2x") is None
    assert node_view(cluster.nodes["node1"]).gpus == 5
    assert node_view(cluster.nodes["node1"]).gpus_free == 3


def test_a_slice_is_shared_as_a_gpu_is() -> None:
    one = holds("t1", "0/2")
    shared = replace(one, spec=spec(needs=Needs(1, 4 * 10**9, nodes=("node1",), gpu_share=2)))
    assert given(on(shared), "node1::0/2", gpu_share=2, gpu_memory=4 * 10**9) == "node1::0/2"
    assert given(on(shared), "node1::0/2", gpu_share=2, gpu_memory=8 * 10**9) is None


# ---------------------------------------------------------------------- what others are told


def told(cluster: Cluster, target: str) -> str:
    """Why it does not start on node1."""
    only = replace(cluster, nodes={"node1": cluster.nodes["node1"]})
    asked = task("new", target, "pending", spec=spec(needs=parse_target(target)))
    return str(refusal(only, asked.spec, "bob@b")).partition(": ")[2]


def test_who_wants_the_gpu_hears_who_holds_its_slices_and_how_to_ask_for_one() -> None:
    cluster = on(holds("t1", "0/1"), holds("t2", "0/2", "0/3"))
    words = (
        "in MIG mode: slice 0/1 is held by task t1 of ann@a, slices 0/2,0/3 are held by task t2 of ann@a, 1 free; "
        "ask for a slice, like node1::0/0"
    )
    assert told(cluster, "node1::0") == f"GPU 0 is {words}"
    assert told(cluster, "1xH100") == f"needs 1 GPU; none on node1 match (GPU 0 is {words})"
    found = cluster.nodes["node1"].gpus[0]
    assert (found.state, found.reason, found.holders) == ("partitioned", words, ())


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("node1::0/7", "GPU 0 of node1 has no slice 0/7, only 0/0-3"),
        ("node1::1/0", "node1 has no GPU 1/0, only GPU 0"),
        (
            "1x7g.80gb",
            "needs 1 slice; none on node1 match (GPU 0/0 is 3g.40gb; GPU 0/1 is 2g.20gb; GPUs 0/2,0/3 are 1g.10gb)",
        ),
        ("6xmig", "needs 6 slices; only 4 on node1 match"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_said_with_what_does(target: str, words: str) -> None:
    assert told(on(), target) == words
    asked = task("new", target, "pending", spec=spec(needs=parse_target(target)))
    assert never(on(), asked.spec)


def test_a_gpu_that_is_whole_has_no_slices() -> None:
    whole = seen(sample=GpuSample((replace(WHOLE, index=0),)))
    assert told(on(node1=whole), "node1::0/1") == "GPU 0 of node1 has no slice 0/1; it is not divided into slices"
    assert told(on(node1=whole), "1xmig") == "needs 1 slice; no slices of GPUs there"


def test_nodes_without_slices_share_a_line() -> None:
    nodes = {f"n{number}": seen(f"n{number}") for number in range(11)}
    cluster = survey({name: NodeConfig(name, name) for name in nodes}, nodes, (), NOW)
    words = "needs 1 slice; no slices of GPUs there"
    asked = spec(needs=parse_target("1x1g.10gb"))
    assert never(cluster, asked) == (
        f"no node can run 1x1g.10gb:\n  n0, n1, n2, n3, n4, n5, n6, n7 and 3 more: {words}"
    )


def test_a_gpu_that_would_do_if_it_were_not_divided_is_named() -> None:
    words = "in MIG mode, and no slice of it has 60G; ask for less, or ask the admin of the node to divide it otherwise"
    assert told(on(), "1x:60G") == f"needs 1 GPU; none on node1 match (GPU 0 is {words})"
    assert told(on(), "1x:100G").endswith("(GPU 0 has 79.6 GiB of memory, not 100G)")
    asked = task("new", "1x:60G", "pending", spec=spec(needs=parse_target("1x:60G")))
    assert "--gpu-memory 42G" in [each.text for each in remedies(on(), "node1", asked)]
    held = on(holds("t1", "0/0"))
    assert told(held, "1x:40G") == (
        "needs 1 GPU; 0 of 1 on node1 are free (GPU 0/0 is allocated: held by task t1 of ann@a)"
    )


def test_what_would_help_who_waits_for_a_gpu_is_a_slice() -> None:
    asked = task("new", "1x", "pending", spec=spec(needs=parse_target("1x")))
    assert "--gpu-type mig (a slice)" in [each.text for each in remedies(on(), "node1", asked)]


# ---------------------------------------------------------------------- who holds what


def test_a_slice_is_held_by_who_holds_its_gpu_and_a_gpu_by_who_holds_a_slice() -> None:
    """The GPU was divided, or is whole again, under a task; nothing of it is given to anybody else."""
    owner = holds("t1", 1, node1=seen(sample=sample("h100", "node1", "idle", WHOLE)))
    whole = replace(
        owner,
        status=Running(Placement("node1", (0,), (Capture("h100", MARKS["node1"]).gpus("idle")[0]["uuid"],)), CID, NOW),
    )
    assert {(gpu.state, gpu.holder and gpu.holder.task) for gpu in on(whole).nodes["node1"].gpus} == {
        ("allocated", "t1")
    }
    slice_ = holds("t2", "0/1")
    again = sample("h100").whole[0]
    node1 = seen(sample=GpuSample((replace(again, mig=False),)))
    (gpu,) = on(slice_, node1=node1).nodes["node1"].gpus
    assert (gpu.state, gpu.reason) == ("allocated", "held by task t2 of ann@a")
    assert given(on(slice_, node1=node1), "node1::0") is None


def test_a_slice_that_was_removed_is_not_given_and_its_holder_is_named() -> None:
    slice_ = holds("t2", "0/3")
    left = sample("h100")
    cluster = on(slice_, node1=seen(sample=replace(left, gpus=left.gpus[:-1])))
    assert given(cluster, "node1::0/3") is None
    assert cluster.nodes["node1"].gpus[0].reason == (
        "in MIG mode: task t2 of ann@a still holds a slice that was removed, 3 unknown; ask for a slice"
    )


def test_no_slice_of_a_gpu_that_was_divided_anew_is_free_while_an_old_one_is_held() -> None:
    slice_ = holds("t2", "0/3")
    before = sample("h100")
    anew = [replace(gpu, uuid=f"MIG-{gpu.part}") if gpu.parent else gpu for gpu in before.gpus]
    now = on(slice_, node1=seen(sample=replace(before, gpus=tuple(anew))))
    left = [gpu for gpu in now.nodes["node1"].gpus if gpu.reading.parent]
    assert {(gpu.state, gpu.reason) for gpu in left} == {
        ("unknown", "task t2 of ann@a still holds a slice of its GPU that was removed")
    }
    assert given(now, "node1::0/0") is None


def test_the_inventory_a_drain_and_an_ill_gpu_hold_for_the_slices() -> None:
    assert {gpu.state for gpu in on(exclude_gpus=(0,)).nodes["node1"].gpus} == {"excluded"}
    node = on().nodes["node1"]
    uuid = node.gpus[0].reading.uuid
    ill = NodeRecord(gpus={uuid: GpuRecord(node.gpus[0].reading, (Trouble("xid 79 1", "Xid 79: off the bus", NOW),))})
    assert {gpu.state for gpu in gated(node, ill).gpus} == {"unhealthy"}


def test_slices_that_come_and_go_are_not_remembered_as_gpus_that_vanished() -> None:
    left = sample("h100")
    record = looked({}, "node1", left, (), NOW, policy=_policy())
    assert [each.reading.number for each in record.gpus.values()] == [0]


def _policy() -> Any:
    from agentless.model.nodes.node_record import HealthPolicy

    return HealthPolicy()


def test_a_reservation_of_a_gpu_is_one_of_its_slices_and_the_other_way_round() -> None:
    whole = Reservation("r1", "node1", (0,), "ann", NOW, NOW + 60)
    part = Reservation("r2", "node1", ("0/1",), "bob", NOW, NOW + 60)
    other = Reservation("r3", "node1", ("0/2",), "eve", NOW, NOW + 60)
    assert whole.clashes(part)
    assert part.clashes(whole)
    assert not part.clashes(other)
    assert whole.covers("0/1")
    assert not part.covers("0/2")
    assert (part.target, overlap("0/1", 0), overlap("0/1", "1/1")) == ("node1::0/1", True, False)


_TARGETS = st.sampled_from(
    [
        "1x:10G",
        "1xmig",
        "2xmig",
        "1x1g.10gb",
        "1x",
        "1xH100",
        "2x",
        "node1::0",
        "node1::1",
        "node1::0/0",
        "node1::0/1",
        "node1::0/1-2",
    ]
)


@settings(deadline=None)
@given_(st.lists(st.tuples(_TARGETS, st.booleans()), max_size=8), st.booleans())
def test_two_controllers_never_give_a_slice_or_its_gpu_twice(asked: Any, divided: bool) -> None:
    """Each sees the tasks of the other by the labels of their containers; somebody may divide a GPU in the middle."""
    whole = replace(sample("h100").whole[0], mig=False)
    samples = [GpuSample((whole, WHOLE)), sample("h100", "node1", "idle", WHOLE)]
    held: list[tuple[Task, bool]] = []
    for n, (target, mine) in enumerate(asked):
        now = samples[1] if n > 3 or divided else samples[0]
        theirs = [
            container(of, labels=labels_of(of, of.placement, "c2"), id=f"{k:064x}")
            for k, (of, by) in enumerate(held)
            if by != mine and of.placement
        ]
        cluster = survey(
            {"node1": NodeConfig("node1", "h")},
            {"node1": seen(sample=now, containers=theirs)},
            [of for of, by in held if by == mine],
            NOW,
        )
        new = task(f"t{n}", target, "pending", spec=spec(needs=parse_target(target)))
        at = plan(cluster, [new], NOW, {None: pack.cost}).starts.get(new.id)
        if at:
            for of, _ in held:
                assert of.placement
                taken = {device.id: device for device in of.placement.devices}
                for device in at.devices:
                    assert device.id not in taken
                    assert device.parent not in taken
                    assert device.id not in {each.parent for each in taken.values()}
            held.append((replace(new, status=Running(at, CID, NOW)), mine))


# ---------------------------------------------------------------------- labels, state, JSON


def test_labels_name_the_gpu_beside_its_slice_and_bring_both_back() -> None:
    of = holds("t1", "0/1", "0/2")
    assert of.placement
    labels = labels_of(of, of.placement, "c1")
    gpu, one, two = of.placement.parents[0], *of.placement.gpu_uuids
    assert labels[GPUS] == f"{gpu},{gpu}_{one},{gpu}_{two}"
    assert json.loads(labels[SPEC])["gpus"] == ["0/1", "0/2"]
    found = task_of(container(of, labels=labels), "node1", NOW)
    assert found
    assert found.placement
    assert (found.placement.gpus, found.placement.devices) == (("0/1", "0/2"), of.placement.devices)
    assert found.placement.tokens == (f"{gpu}_{one}", f"{gpu}_{two}")


def test_a_label_of_an_earlier_version_is_a_whole_gpu() -> None:
    claim = claim_of(container(task(), labels={"agentless.task": "t9", GPUS: "GPU-a,GPU-b"}))
    assert claim
    assert (claim.gpu_uuids, claim.parents) == (("GPU-a", "GPU-b"), ())


def test_a_label_with_a_number_of_a_slice_that_makes_no_sense_is_damaged() -> None:
    """Anybody may have written it; its claim holds all the same."""
    of = holds("t1", "0/1")
    assert of.placement
    labels = labels_of(of, of.placement, "c1")
    for odd in ("0/x", "0/1/2", "../1"):
        there = container(of, labels={**labels, SPEC: labels[SPEC].replace("0/1", odd)})
        found = task_of(there, "node1", NOW)
        assert found
        assert found.placement
        assert (found.spec.command, found.placement.gpus) == ((DAMAGED,), ())
        assert found.placement.devices == of.placement.devices


def test_any_label_makes_devices() -> None:
    """Labels are untrusted."""
    assert devices_of(["GPU-a", "GPU-a_MIG-1", "GPU-b", "_", "GPU-c_", "_x"]) == (
        Device("MIG-1", "slice", "GPU-a"),
        Device("GPU-b"),
        Device("_"),
        Device("GPU-c_"),
        Device("_x"),
    )


def test_a_task_on_slices_is_read_from_the_state_as_it_was_written() -> None:
    kinds, of = TypeAdapter(Task), holds("t1", "0/1", "0/2")
    assert kinds.validate_json(kinds.dump_json(of)) == of
    old = json.loads(kinds.dump_json(task()))
    del old["status"]["placement"]["parents"]
    assert kinds.validate_python(old).placement == task().placement


def test_a_placement_of_an_earlier_version_is_of_whole_gpus() -> None:
    at = Placement("node1", (0, 1), ("GPU-a", "GPU-b"))
    assert at.tokens == at.claimed == ("GPU-a", "GPU-b")
    assert [device.kind for device in at.devices] == ["gpu", "gpu"]


def test_a_slice_in_the_name_of_a_control_group() -> None:
    at = holds("t1", "0/1").placement
    assert at
    named = [digits for _, digits in beside.group_names(at.tokens)]
    assert named == ["00000000", "00000000_00000001"] or all(len(each) in (8, 17) for each in named)


def test_metrics_tell_slices_by_their_numbers_and_name_their_gpu() -> None:
    cluster = on(holds("t1", "0/1"))
    only = replace(cluster, nodes={"node1": cluster.nodes["node1"]})
    found = MetricsSnapshot(only, (), {}, {}, 0)
    gpu, uuid = only.nodes["node1"].gpus[0].reading.uuid, only.nodes["node1"].gpus[2].reading.uuid
    its = {"node": "node1", "gpu": "0/1", "uuid": uuid}
    assert one(found, "agentless_gpu_state", **its, state="allocated") == 1
    assert one(found, "agentless_gpu_memory_size_bytes", **its) == 20096 << 20
    assert one(found, "agentless_gpu_slice_info", **its, parent=gpu, profile="2g.20gb") == 1
    assert values(found, "agentless_gpu_utilization_ratio") == {}
    series = [line.rpartition(" ")[0] for line in text(found).decode().splitlines() if line[0] != "#"]
    assert len(set(series)) == len(series)


def test_a_vps_on_a_slice_goes_to_another_slice() -> None:
    on_slice = spec(needs=parse_target("node1::0/1"))
    assert anywhere(on_slice).needs == Needs(1, gpu_types=("mig",))
    assert anywhere(spec(needs=parse_target("node1::0"))).needs == Needs(1)


def test_what_is_published_of_a_slice() -> None:
    gpu = on(holds("t1", "0/1")).nodes["node1"].gpus[2]
    view = gpu_view("node1", gpu)
    assert (view.index, view.number, view.part, view.kind, view.profile) == (0, "0/1", 1, "slice", "2g.20gb")
    assert (view.parent, view.task) == (on().nodes["node1"].gpus[0].reading.uuid, "t1")
