"""What is published: documented names, RFC 3339 times, None for what is not known."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest

from agentless.model.nodes.gpu import GpuSample, GpuTopology
from agentless.model.nodes.host_load import Disk, HostLoad
from agentless.model.nodes.node import HostFacts, NodeConfig, NumaNode
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.task import Assigning, Rank
from agentless.model.view import GpuView, NodeView, NumaView, TaskView
from agentless.rules.scheduling.plan import Outlook, Promise
from agentless.rules.views.publish import (
    address_of,
    gpu_view,
    node_view,
    reservation_view,
    task_view,
    timestamp,
)
from tests.pure.build import CID, NOW, STATES, cluster, placement, process, reading, seen, spec, task, uuid

TASK = "id name state node gpus gpu_uuids image command env_names batch owner created_at started_at ended_at exit_code "
GPU = "node index uuid name driver memory_total_mib memory_used_mib memory_free_mib utilization_pct temperature_c "
NODE = "name state reason gpus cores memory_mib docker driver"


@pytest.mark.parametrize(
    ("view", "names"),
    [(TaskView, TASK + "reason container"), (GpuView, GPU + "power_w state task processes"), (NodeView, NODE)],
)
def test_the_documented_fields_are_there(view: type, names: str) -> None:
    assert set(names.split()) <= {field.name for field in fields(view)}


def test_times_are_rfc_3339_in_utc() -> None:
    assert timestamp(1_800_000_000.1234) == "2027-01-15T08:00:00.123Z"
    assert timestamp(None) is None


# What is known of a task in each state: its GPUs, its container, its start, its end.
KNOWN = {
    "blocked": (False, False, False, False),
    "scheduled": (False, False, False, False),
    "pending": (False, False, False, False),
    "assigning": (True, False, False, False),
    "submitted": (True, True, False, False),
    "running": (True, True, True, False),
    "paused": (True, True, True, False),
    "lost": (True, True, True, False),
    "lost before an answer": (True, False, False, False),
    "ended": (True, True, True, True),
}


@pytest.mark.parametrize("state", STATES)
def test_a_task_shows_what_is_known_in_its_state(state: str) -> None:
    view = task_view(task("t1", "node1::1", state), (), Outlook(), mine=True)
    known = (bool(view.gpu_uuids), view.container == CID, view.started_at is not None, view.ended_at is not None)
    assert known == KNOWN[state]
    assert (view.id, view.node, view.gpus, view.target) == ("t1", "node1", (1,), "node1::1")
    assert view.exit_code == (0 if state == "ended" else None)
    assert view.created_at == "2027-01-15T07:58:20.000Z"
    assert view.scheduled_for == ("2027-01-15T08:01:00.000Z" if state == "scheduled" else None)


@pytest.mark.parametrize(
    ("state", "stop", "reason"),
    [
        ("running", None, None),
        ("running", "stop", "stopping"),
        ("paused", "kill", "killing"),
        ("assigning", "stop", "stopping"),
        ("lost before an answer", "kill", "killing: node1 has yet to confirm that the task has not started"),
        ("lost", None, "cut off"),
    ],
)
def test_a_task_says_why_it_is_not_simply_running(state: str, stop: str | None, reason: str | None) -> None:
    assert task_view(task(state=state, stop=stop), (), Outlook(), mine=True).reason == reason


@pytest.mark.parametrize(("stop", "reason"), [(None, "pulling"), ("stop", "stopping")])
def test_a_launch_says_what_it_does_until_it_is_to_stop(stop: str | None, reason: str) -> None:
    launched = replace(task(stop=stop), status=Assigning(placement(), NOW, "pulling"))
    assert task_view(launched, (), Outlook(), mine=True).reason == reason


def test_who_waits_shows_what_it_is_promised() -> None:
    about = Outlook(promise=Promise("node1", NOW, about=True))
    view = task_view(task(state="pending"), (), about, mine=True)
    assert (view.expected_start, view.about) == ("2027-01-15T08:00:00.000Z", True)
    view = task_view(task(state="pending"), (), Outlook(), mine=True)
    assert (view.expected_start, view.about) == (None, False)


@pytest.mark.parametrize(
    ("state", "rank", "moved"),
    [("pending", Rank((), 1), True), ("pending", None, False), ("running", Rank((), 1), False)],
)
def test_only_who_waits_can_have_been_moved(state: str, rank: Rank | None, moved: bool) -> None:
    assert task_view(task(state=state, rank=rank), (), Outlook(), mine=True).moved is moved


def test_variables_are_published_by_name_only() -> None:
    view = task_view(task(spec=spec(env={"A": "value-of-a"}, secret_env=("TOKEN",))), (), Outlook(), mine=True)
    assert view.env_names == ("A", "TOKEN")
    assert "value-of-a" not in str(asdict(view))


def test_a_gpu_shows_its_holder_and_why_it_is_not_free() -> None:
    node = cluster(seen(processes=(process("node1", 1),)), (task("t1"),)).nodes["node1"]
    held, foreign = (gpu_view("node1", gpu) for gpu in node.gpus)
    assert (held.state, held.task, held.owner, held.reason) == (
        "allocated",
        "t1",
        "me@here",
        "held by task t1 of me@here",
    )
    assert (foreign.state, foreign.task, [p.pid for p in foreign.processes]) == ("foreign", None, [4711])
    assert (held.uuid, held.memory_total_mib, held.temperature_c) == (uuid("node1", 0), 23034, None)


@pytest.mark.parametrize(
    ("asking", "mine"), [("me@here", [True, False]), ("bob@b", [False, False]), (None, [False] * 2)]
)
def test_a_gpu_is_mine_while_a_task_of_mine_holds_it(asking: str | None, mine: list[bool]) -> None:
    node = cluster(seen(), (task("t1"),)).nodes["node1"]
    assert [gpu_view("node1", gpu, asking=asking).mine for gpu in node.gpus] == mine


@pytest.mark.parametrize(("now", "active"), [(NOW - 1, False), (NOW, True), (NOW + 9, True), (NOW + 10, False)])
def test_a_reservation_is_active_from_its_beginning_until_its_end(now: float, active: bool) -> None:
    view = reservation_view(Reservation("r1", "node1", (0,), "ann", NOW, NOW + 10), ("task t1",), now)
    assert view.active is active
    assert (view.begins_at, view.ends_at) == ("2027-01-15T08:00:00.000Z", "2027-01-15T08:00:10.000Z")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (NodeConfig("n", "h", connection="local"), "this machine"),
        (NodeConfig("n", "h"), "h"),
        (NodeConfig("n", "h", user="ann", port=22), "ann@h:22"),
    ],
)
def test_an_address_is_as_people_write_it(config: NodeConfig, words: str) -> None:
    assert address_of(config) == words


def test_a_gpu_names_its_vendor_if_known() -> None:
    sample = GpuSample((reading("node1", 0, vendor="amd"), reading("node1", 1)))
    assert [gpu_view("node1", gpu).vendor for gpu in cluster(seen(sample=sample)).nodes["node1"].gpus] == ["amd", None]


def test_a_node_counts_its_gpus_and_the_free_ones() -> None:
    view = node_view(cluster(seen(gpus=3), (task("t1"),), user="ann", port=2222).nodes["node1"])
    assert (view.gpus, view.gpus_free, view.cores, view.memory_mib) == (3, 2, 32, 131072)
    assert (view.state, view.docker, view.driver, view.address) == (
        "online",
        "28.2.2",
        "550.54.15",
        "ann@node1.lab:2222",
    )


def test_a_node_that_was_never_reached_shows_nothing_it_cannot_know() -> None:
    view = node_view(cluster(replace(seen(), error="no route", sample=None, engine=None, host=None)).nodes["node1"])
    assert (view.state, view.reason, view.gpus, view.cores, view.docker) == ("offline", "no route", 0, None, None)


LOAD = HostLoad(12.3, (11.2, 10.9, 10.5), 62669, 68403, Disk("/var/lib/docker", 431200, 1875000), 61, 9, 9, 1e6, 2e3)


def test_how_busy_a_node_is_stands_beside_what_tasks_have() -> None:
    busy = task("t1", spec=spec(cores=8.0, memory=16 << 30))
    view = node_view(cluster(seen(load=LOAD), (busy,)).nodes["node1"])
    assert (view.cores_busy, view.cores_set_aside, view.cores) == (12.3, 8.0, 32)
    assert (view.memory_used_mib, view.memory_available_mib, view.memory_set_aside_mib) == (62669, 68403, 16384)
    assert (view.load_1m, view.load_5m, view.load_15m, view.temperature_c) == (11.2, 10.9, 10.5, 61)
    assert (view.disk_path, view.disk_used_mib, view.disk_total_mib) == ("/var/lib/docker", 431200, 1875000)
    assert (view.network_in_bytes_per_second, view.network_out_bytes_per_second) == (1e6, 2e3)


def test_how_busy_a_node_was_is_not_shown_as_how_busy_it_is() -> None:
    """Nor is an unknown value shown as 0."""
    for away in (seen(load=LOAD, error="no route"), seen()):
        view = node_view(cluster(away).nodes["node1"])
        names = [name for name in view.__slots__ if name.startswith(("load", "disk", "temp", "network", "cores_busy"))]
        assert [getattr(view, name) for name in (*names, "memory_used_mib")] == [None] * 11


def test_a_numa_node_has_its_gpus_by_the_kernel_else_by_the_driver() -> None:
    readings = [reading("node1", at, pci_bus_id=f"0000:0{at}:00.0") for at in range(4)]
    host = HostFacts(32, 131072, (NumaNode(0, "0-15", ("0000:01:00.0",), 65536), NumaNode(1, "16-31", (), None)))
    topology = GpuTopology(numa={0: 0, 1: 1, 2: 1, 3: 7})
    node = cluster(seen(sample=GpuSample(tuple(readings)), host=host, topology=topology)).nodes["node1"]
    assert node_view(node).numa == (NumaView(0, "0-15", 16, 65536, (0, 1)), NumaView(1, "16-31", 16, None, (2,)))
