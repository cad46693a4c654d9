"""What Prometheus is told: in its own format, with the names it asks for, and without a guess."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentless.controller.usage.metrics import OTHERS, OWNERS, text
from agentless.controller.usage.metrics_snapshot import MetricsSnapshot
from agentless.model.nodes.host_load import Disk, HostLoad
from agentless.model.view import ClusterView
from tests.pure.build import NOW, cluster, process, reading, seen, spec, task

GPU = {"node": "node1", "gpu": "0", "uuid": "GPU-node1-0"}
READ = reading(
    "node1", 0, utilization_pct=37, memory_used_mib=1024, memory_total_mib=2048, temperature_c=61, power_w=250.5
)


def figures(of=None, **fields):
    return MetricsSnapshot(
        of or cluster(shown(READ)), **{"tasks": (), "ended": {}, "gpu_seconds": {}, "warnings": 0, **fields}
    )


def shown(*readings, **changes):
    plain = seen("node1", 0, **changes)
    return replace(plain, sample=replace(plain.sample, gpus=readings))


def families(of: MetricsSnapshot):
    return {family.name: family for family in text_string_to_metric_families(text(of).decode())}


def values(of: MetricsSnapshot, name: str):
    """The samples of a metric, by their labels."""
    found = [s for family in families(of).values() for s in family.samples if s.name == name]
    return {tuple(sample.labels.values()): sample.value for sample in found}


def one(of: MetricsSnapshot, name: str, **labels: str):
    (found,) = [s.value for f in families(of).values() for s in f.samples if s.name == name and s.labels == labels]
    return found


def test_clusters_say_their_gpus_and_our_tasks_there():
    hpc = ClusterView(
        "hpc", "slurm", "online", "", "login", 1, 3, {"a100": 8}, {"a100": 5}, 1, 1, {"c2": "fan"}, "2026-11-27"
    )
    job = task("t1", "hpc")
    found = figures(clusters=(hpc, replace(hpc, name="far", state="offline", asked_at=None)), tasks=(job,))
    assert values(found, "agentless_cluster_up") == {("hpc",): 1, ("far",): 0}
    assert one(found, "agentless_cluster_gpus", cluster="hpc", type="a100") == 8
    assert values(found, "agentless_cluster_gpus_allocated") == {("hpc", "a100"): 5}
    assert values(found, "agentless_cluster_gpus_free") == values(found, "agentless_cluster_nodes_out") == {("hpc",): 1}
    assert one(found, "agentless_cluster_tasks", cluster="hpc", state="running") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("agentless_gpu_utilization_ratio", 0.37),
        ("agentless_gpu_memory_used_bytes", 2**30),
        ("agentless_gpu_memory_size_bytes", 2**31),
        ("agentless_gpu_temperature_celsius", 61),
        ("agentless_gpu_power_watts", 250.5),
    ],
)
def test_readings_are_in_base_units(name, value):
    assert one(figures(), name, **GPU) == pytest.approx(value)


@pytest.mark.parametrize("field", ["utilization_pct", "memory_used_mib", "temperature_c", "power_w"])
def test_what_cannot_be_read_is_absent(field):
    names = dict(zip(["utilization_pct", "memory_used_mib", "temperature_c", "power_w"], _READ, strict=True))
    assert values(figures(cluster(shown(replace(READ, **{field: None})))), names[field]) == {}


_READ = [
    f"agentless_gpu_{name}" for name in ("utilization_ratio", "memory_used_bytes", "temperature_celsius", "power_watts")
]


@pytest.mark.parametrize("changes", [{"error": "no route"}, {"sampled_at": NOW - 60}], ids=["cut off", "stale"])
def test_the_last_readings_of_a_node_that_is_silent_are_not_shown_as_those_of_now(changes):
    found = figures(cluster(shown(READ, **changes)))
    assert [values(found, name) for name in _READ] == [{}] * 4
    assert one(found, "agentless_gpu_state", **GPU, state="unknown") == 1


def test_a_gpu_has_one_state():
    used = shown(READ, processes=(process("node1", 0),))
    assert values(figures(cluster(used)), "agentless_gpu_state") == {("0", "node1", "foreign", "GPU-node1-0"): 1.0}


def test_a_node_is_up_while_it_answers():
    both = cluster({"node1": seen("node1"), "node2": seen("node2", error="no route")})
    assert values(figures(both), "agentless_node_up") == {("node1",): 1.0, ("node2",): 0.0}


LOAD = HostLoad(12.3, (11.2, 10.9, 10.5), 1024, 2048, Disk("/var/lib/docker", 3, 4), 61, 10**12, 7, 1e6, 2e3)
_LOADS = {
    "agentless_node_cores_busy": 12.3,
    "agentless_node_load1": 11.2,
    "agentless_node_memory_used_bytes": 2**30,
    "agentless_node_memory_available_bytes": 2**31,
    "agentless_node_disk_used_bytes": 3 * 2**20,
    "agentless_node_disk_size_bytes": 4 * 2**20,
    "agentless_node_temperature_celsius": 61,
    "agentless_node_network_receive_bytes_total": 10**12,
    "agentless_node_network_transmit_bytes_total": 7,
}


def test_a_machine_is_in_base_units():
    found = figures(cluster(shown(READ, load=LOAD), (task("r1", spec=spec(cores=2.0, memory=2**30)),)))
    assert {name: one(found, name, node="node1") for name in _LOADS} == pytest.approx(_LOADS)
    assert one(found, "agentless_node_cores", node="node1") == 32
    assert one(found, "agentless_node_cores_set_aside", node="node1") == 2
    assert one(found, "agentless_node_memory_set_aside_bytes", node="node1") == 2**30


@pytest.mark.parametrize(
    "changes", [{"load": None}, {"load": HostLoad()}, {"error": "no route"}, {"sampled_at": NOW - 60}], ids=str
)
def test_what_is_not_known_of_a_machine_is_absent(changes):
    found = figures(cluster(shown(READ, **{"load": LOAD, **changes})))
    assert [values(found, name) for name in _LOADS] == [{}] * len(_LOADS)


def test_tasks_are_counted_by_state_and_the_queue_says_for_how_long_they_wait():
    waiting = [task(f"w{n}", state="pending", created_at=NOW - 10 * n) for n in (1, 3, 2)]
    found = figures(tasks=(*waiting, task("r1"), task("s1", state="scheduled")))
    states = values(found, "agentless_tasks")
    assert states == {
        **dict.fromkeys([(s,) for s in ("assigning", "submitted", "paused", "lost", "blocked")], 0.0),
        ("pending",): 3.0,
        ("running",): 1.0,
        ("scheduled",): 1.0,
    }
    assert (one(found, "agentless_queue_length"), one(found, "agentless_queue_oldest_wait_seconds")) == (3, 30)


def test_where_nobody_waits_there_is_no_wait():
    assert one(figures(), "agentless_queue_length") == 0
    assert values(figures(), "agentless_queue_oldest_wait_seconds") == {}


def test_every_way_to_end_is_counted_from_nothing_on():
    found = values(figures(ended={"failed": 3}), "agentless_tasks_ended_total")
    assert (found[("failed",)], found[("completed",)], len(found)) == (3.0, 0.0, 8)


def test_of_very_many_owners_the_first_have_a_series_each_and_nothing_is_lost():
    many = {f"owner{n}@x": 1.0 for n in range(OWNERS + 50)}
    found = values(figures(gpu_seconds=many), "agentless_gpu_seconds_total")
    assert (len(found), found[("owner0@x",)], found[(OTHERS,)]) == (OWNERS + 1, 1.0, 50.0)


def test_nothing_typed_is_syntax():
    found = values(figures(gpu_seconds={'a"\\\n{}': 1.0}), "agentless_gpu_seconds_total")
    assert found == {('a"\\\n{}',): 1.0}


def test_names_are_as_prometheus_wants_them():
    everything = figures(cluster(shown(READ, load=LOAD)), tasks=(task(state="pending"),), gpu_seconds={"a": 1.0})
    for name, family in families(everything).items():
        assert family.documentation, name
        assert name.startswith(("agentless_", "process_")), name
        assert all(sample.name.endswith("_total") for sample in family.samples) == (family.type == "counter"), name
        assert all(math.isfinite(sample.value) for sample in family.samples)


def test_two_scrapes_share_nothing():
    assert families(figures(warnings=1)).keys() == families(figures()).keys()
    assert one(figures(warnings=1), "agentless_controller_warnings") == 1
