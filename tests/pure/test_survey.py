"""The cluster out of what is known: which GPU is free, and why the others are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.gpus.nvidia.probe import in_its_mode
from agentless.model.containers.container import Container
from agentless.model.nodes.cluster import Allocation, Gpu, Node, Observation
from agentless.model.nodes.gpu import GpuProcess, GpuSample
from agentless.model.nodes.node import EngineFacts, NodeConfig
from agentless.model.scheduling.reservation import Reservation
from agentless.model.scheduling.sharing import Sharing
from agentless.rules.nodes.survey import STALE_AFTER, describe, survey
from tests.pure.build import CID, NOW, cluster, container, process, reading, seen, spec, task, uuid


def node(observation: Observation, *tasks: object, **config: object) -> Node:
    return cluster(observation, tasks, **config).nodes["node1"]


def gpu(observation: Observation, *tasks: object, index: int = 0, **config: object) -> Gpu:
    return node(observation, *tasks, **config).gpus[index]


def test_an_idle_gpu_of_a_healthy_node_is_free() -> None:
    found = node(seen(gpus=2))
    assert (found.state, found.reason) == ("online", "")
    assert [(g.state, g.reason, g.holder) for g in found.gpus] == [("free", "", None)] * 2


@pytest.mark.parametrize("state", ["assigning", "running", "paused", "lost", "lost before an answer"])
def test_a_task_holds_its_gpus_in_every_state_between_assignment_and_end(state: str) -> None:
    found = node(seen(gpus=2), task("t1", "node1::1", state))
    assert [g.state for g in found.gpus] == ["free", "allocated"]
    assert found.gpus[1].holder == found.allocations[0]
    assert found.gpus[1].reason == "held by task t1 of me@here"


@pytest.mark.parametrize("state", ["scheduled", "pending", "ended"])
def test_a_task_that_is_nowhere_holds_nothing(state: str) -> None:
    assert gpu(seen(), task("t1", "node1::0", state)).state == "free"


def test_a_gpu_is_held_by_its_uuid_whatever_its_index_is_after_a_reboot() -> None:
    swapped = (reading("node1", 0, uuid=uuid("node1", 1)), reading("node1", 1, uuid=uuid("node1", 0)))
    found = node(seen(sample=GpuSample(swapped)), task("t1", "node1::0"))
    assert [g.state for g in found.gpus] == ["free", "allocated"]


def test_a_task_holds_gpus_of_its_own_node_only() -> None:
    found = cluster({"node1": seen("node1"), "node2": seen("node2")}, (task("t1", "node1::0"),))
    assert [g.state for g in found.nodes["node2"].gpus] == ["free", "free"]


@pytest.mark.parametrize("state", ["created", "running", "paused", "restarting"])
def test_the_container_of_another_controller_holds_its_gpus(state: str) -> None:
    theirs = container(task("t9", "node1::1", owner="ann@there"), state)
    assert gpu(seen(containers=[theirs]), index=1).reason == "held by task t9 of ann@there"


@pytest.mark.parametrize("state", ["exited", "dead", "removing"])
def test_a_container_that_has_ended_holds_nothing(state: str) -> None:
    assert gpu(seen(containers=[container(task("t9"), state)])).state == "free"


@pytest.mark.parametrize("wants", [{}, {"cores": 2.5, "memory": 3 << 30}])
def test_a_task_takes_the_same_by_its_record_and_by_its_container(wants: dict[str, float]) -> None:
    """What it does not name it takes nothing of."""
    mine = task(spec=spec(**wants))
    (allocation,) = node(seen(), mine).allocations
    assert (allocation.cores, allocation.memory) == (wants.get("cores", 0), wants.get("memory", 0))
    assert allocation.since == NOW - 60
    assert node(seen(containers=[container(mine)])).allocations == (allocation,)


@pytest.mark.parametrize(("state", "since"), [("running", NOW - 60), ("created", NOW - 61)])
def test_a_container_that_was_not_started_yet_counts_from_when_it_was_made(state: str, since: float) -> None:
    found = node(seen(containers=[container(task(), state)]))
    assert [allocation.since for allocation in found.allocations] == [since]


def test_the_last_start_on_a_node_is_that_of_whatever_started_last() -> None:
    """By our clock; also of what has ended."""
    assert node(seen()).last_start == 0
    over = container(task("t1"), "exited", started_at=NOW - 20, clock=5.0)
    assert node(seen(containers=[over]), task("t2", state="running")).last_start == NOW - 25
    assert node(seen(), task("t2", state="running")).last_start == NOW - 60


def test_a_reservation_is_over_at_its_end_and_the_first_to_begin_comes_first() -> None:
    found = survey(
        {"node1": NodeConfig("node1", "h")},
        {"node1": seen()},
        (),
        NOW,
        reservations=[Reservation(f"r{end}", "node1", (), None, NOW - end, NOW + end) for end in (0, 1, 2)],
    )
    assert [each.id for each in found.nodes["node1"].reservations] == ["r2", "r1"]


def test_a_container_without_our_labels_holds_nothing() -> None:
    assert gpu(seen(containers=[container(task("t9"), labels={"com.example": "x"})])).state == "free"


def test_a_claim_counts_although_the_rest_of_its_labels_is_damaged() -> None:
    labels = {"agentless.task": "t9", "agentless.gpus": uuid("node1", 0), "agentless.spec": "{"}
    assert gpu(seen(containers=[container(task("t9"), labels=labels)])).reason == "held by task t9 of unknown"


def test_a_process_outside_agentless_makes_a_gpu_foreign() -> None:
    found = gpu(seen(processes=(process("node1", 0), process("node1", 0, 4712))))
    assert (found.state, found.reason) == ("foreign", "used by bob's process 4711 (python train.py, 2 GiB) and 1 more")
    assert [p.pid for p in found.processes] == [4711, 4712]


def test_a_process_of_the_task_that_holds_the_gpu_is_not_foreign() -> None:
    mine = task("t1")
    found = gpu(
        seen(processes=(process("node1", 0, container=container(mine).id),), containers=[container(mine)]), mine
    )
    assert found.state == "allocated"


def test_a_process_in_a_container_of_ours_is_foreign_on_a_gpu_that_the_container_does_not_claim() -> None:
    """Privileged containers see every GPU."""
    elsewhere = container(task("t1", "node1::1"))
    found = gpu(seen(processes=(process("node1", 0, container=elsewhere.id),), containers=[elsewhere]))
    assert found.state == "foreign"


@pytest.mark.parametrize("field", ["memory_total_mib", "memory_used_mib"])
def test_a_gpu_whose_memory_is_unknown_is_unknown(field: str) -> None:
    found = gpu(seen(sample=GpuSample((reading("node1", 0, **{field: None}),))))
    assert (found.state, found.reason) == ("unknown", "cannot read its memory")


def test_gpus_whose_processes_are_unknown_are_unknown() -> None:
    found = node(seen(processes=None))
    assert [(g.state, g.reason) for g in found.gpus] == [("unknown", "cannot read its processes")] * 2


def test_an_excluded_gpu_is_excluded_whatever_else_is_known_of_it() -> None:
    found = node(seen(gpus=2, processes=(process("node1", 1),)), exclude_gpus=(1,))
    assert [(g.state, g.reason) for g in found.gpus] == [("free", ""), ("excluded", "excluded by the inventory")]


@pytest.mark.parametrize(
    ("observation", "state", "reason"),
    [
        (Observation(), "offline", "not connected yet"),
        (seen(error="no route to host"), "offline", "no route to host"),
        (seen(sample=None), "degraded", "no sample yet"),
        (seen(engine=None), "degraded", "no sample yet"),
        (seen(sample=GpuSample((reading("node1", 0),), None, "the driver hangs")), "degraded", "the driver hangs"),
        (seen(sampled_at=NOW - STALE_AFTER - 5), "degraded", "its last sample is 20 s old"),
        (seen(engine=EngineFacts(error="the daemon does not run")), "degraded", "the daemon does not run"),
        (seen(engine=EngineFacts("28.2.2")), "degraded", "cannot list its containers"),
    ],
)
def test_a_node_that_is_not_well_has_no_free_gpu_and_a_reason(
    observation: Observation, state: str, reason: str
) -> None:
    found = node(observation)
    assert (found.state, found.reason) == (state, reason)
    assert {(g.state, g.reason) for g in found.gpus} <= {("unknown", reason)}


def test_an_error_of_one_gpu_does_not_take_the_others_along() -> None:
    """The driver has lost a GPU and still says who uses the rest."""
    found = node(seen(sample=GpuSample((reading("node1", 0),), (), "GPU 1 is lost; reboot the node")))
    assert (found.state, found.gpus[0].state) == ("online", "free")


def test_a_sample_may_be_as_old_as_that_and_no_older() -> None:
    assert node(seen(sampled_at=NOW - STALE_AFTER)).state == "online"
    assert node(seen(sampled_at=NOW - STALE_AFTER - 0.1)).state == "degraded"


def test_a_gpu_of_a_lost_node_is_still_held_by_its_task() -> None:
    assert gpu(seen(error="cut off"), task("t1", state="lost")).state == "allocated"


def test_a_node_without_gpus_is_online() -> None:
    assert node(seen(gpus=0)).state == "online"


def test_a_node_that_was_never_heard_of_is_offline() -> None:
    assert survey({"node1": NodeConfig("node1", "h")}, {}, (), NOW).nodes["node1"].state == "offline"


def test_a_foreign_process_is_described_by_what_is_known() -> None:
    plain = process("node1", 0)
    assert describe(plain) == "bob's process 4711 (python train.py, 2 GiB)"
    assert describe(replace(plain, user=None, command=None)) == "process 4711 (python, 2 GiB)"
    unknown = replace(plain, user=None, command=None, name=None, memory_mib=None)
    assert describe(unknown) == "process 4711 (unknown program)"
    assert describe(replace(plain, command="x" * 1000)) == f"bob's process 4711 ({'x' * 60}, 2 GiB)"


# ------------------------------------------------------------------ intruders


def held_by(*containers: Container, processes: tuple[GpuProcess, ...]) -> Gpu:
    return cluster(seen(containers=containers, processes=processes), (task(),)).nodes["node1"].gpus[0]


def test_a_process_outside_the_container_that_holds_a_gpu_is_an_intruder() -> None:
    inside, intruder = process("node1", 0, pid=1, container=CID), process("node1", 0, pid=2)
    found = held_by(container(task()), processes=(inside, intruder))
    assert found.intruders == (intruder,)
    assert found.state == "allocated"
    assert found.reason == "held by task t1 of me@here, also used by bob's process 2 (python train.py, 2 GiB)"


def test_a_gpu_that_nobody_has_is_for_one() -> None:
    assert [gpu.shares for gpu in cluster(seen()).nodes["node1"].gpus] == [1, 1]


def test_of_several_intruders_one_is_named_and_the_others_are_counted() -> None:
    strangers = tuple(process("node1", 0, pid=pid) for pid in (2, 3, 4))
    found = held_by(container(task()), processes=strangers)
    assert found.reason.endswith(", also used by bob's process 2 (python train.py, 2 GiB) and 2 more")


def test_a_process_in_another_container_is_an_intruder_too() -> None:
    other = process("node1", 0, container="another")
    assert held_by(container(task()), processes=(other,)).intruders == (other,)


def test_nobody_is_an_intruder_as_long_as_no_container_is_known_that_holds_the_gpu() -> None:
    """A launch is under way: its first processes are seen before its container is."""
    assert held_by(processes=(process("node1", 0, container=CID),)).intruders == ()


def test_who_shares_a_gpu_with_a_task_that_wanted_it_so_is_no_intruder() -> None:
    shared = task(spec=spec(share=True))
    found = cluster(seen(containers=(container(shared),), processes=(process("node1", 0),)), (shared,))
    assert found.nodes["node1"].gpus[0].intruders == ()


def test_who_is_on_a_gpu_beside_its_task_is_told_whether_the_task_wanted_it_so_or_not() -> None:
    shared, stranger = task(spec=spec(share=True)), process("node1", 0)
    found = gpu(seen(containers=(container(shared),), processes=(stranger,)), shared)
    assert found.strangers == (stranger,)
    assert found.reason == "held by task t1 of me@here, shared with bob's process 4711 (python train.py, 2 GiB)"


def test_before_the_container_of_its_task_is_known_only_who_is_in_none_is_a_stranger_on_a_gpu() -> None:
    """A launch is under way, on a GPU that is shared with a stranger."""
    stranger = process("node1", 0, pid=2)
    found = gpu(seen(processes=(process("node1", 0, pid=1, container=CID), stranger)), task("t1", state="assigning"))
    assert (found.strangers, found.intruders) == ((stranger,), ())
    assert found.closed == "its processes are not known yet"


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [({"mig": True}, "partitioned", "MIG"), ({"compute_mode": "Prohibited"}, "unknown", "mode")],
)
def test_a_gpu_that_no_task_could_use_is_not_free(changes: dict[str, object], state: str, words: str) -> None:
    found = gpu(seen(sample=GpuSample((in_its_mode(reading("node1", 0, **changes)),))))
    assert (found.state, words in found.reason) == (state, True)


@pytest.mark.parametrize(("since", "limit", "ends"), [(100, 20, 120), (100, None, None), (None, 20, None)])
def test_a_task_ends_at_its_limit_where_both_its_begin_and_its_limit_are_known(
    since: float | None, limit: float | None, ends: float | None
) -> None:
    assert Allocation("t1", "ann", since=since, limit=limit).ends_at == ends


def test_of_several_holders_the_first_is_named_and_the_least_willing_allows() -> None:
    both = tuple(Allocation(f"t{most}", "ann", sharing=Sharing(most, 1)) for most in (4, 3))
    held, free = (Gpu(reading("node1", 0), "allocated", holders=holders) for holders in (both, ()))
    assert (held.holder, held.shares) == (both[0], 3)
    assert (free.holder, free.shares) == (None, 1)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 1),
        ({"error": "no route"}, None),
        ({"engine": None}, None),
        ({"engine": EngineFacts("28", containers=None)}, None),
    ],
)
def test_how_many_tasks_a_node_has_is_known_as_long_as_it_says_so(changes: Any, count: int | None) -> None:
    assert node(seen(**changes), task("t1")).tasks == count
