"""Who starts now, where, and when the others will."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.controller import plugins
from agentless.model.containers.claim import labels_of, task_of
from agentless.model.containers.container import Container
from agentless.model.nodes.cluster import Cluster, Observation
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.node import EngineFacts, HostFacts, NodeConfig, NumaNode
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.task import Placement, Running, Task
from agentless.model.tasks.terms import Terms
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.plan import Plan, Promise, plan
from agentless.rules.scheduling.search import Cost
from agentless.rules.scheduling.shape import shape_of
from tests.pure.build import CID, NOW, READY, cluster, container, placement, process, reading, seen, spec, task, uuid

POLICIES: dict[str | None, Cost] = {
    name: plugins.load("rules.scheduling.policies", name).cost for name in plugins.names("rules.scheduling.policies")
}
POLICIES[None] = POLICIES["pack"]


def wish(name: str, target: str = "1x", limit: float | None = None, **fields: Any) -> Task:
    """A task that waits; `limit` in seconds."""
    needs = replace(parse_target(target), **fields.pop("needs", {}))
    return task(name, state="pending", spec=spec(needs=needs, terms=Terms(time_limit=limit), stop_grace=0, **fields))


def runs(name: str, target: str, since: float = 0.0, limit: float | None = None, **fields: Any) -> Task:
    """A task that has run for `since` seconds."""
    wanted = spec(needs=parse_target(target), terms=Terms(time_limit=limit), stop_grace=0, **fields)
    return replace(task(name, target, spec=wanted), status=Running(placement(target), CID, NOW - since))


def look(on: Cluster, *queue: Task, **bounds: int) -> Plan:
    return plan(on, queue, NOW, POLICIES, **bounds)


def two_nodes(*tasks: Task, gpus: int = 4, **changes: Any) -> Cluster:
    return cluster({name: seen(name, gpus, **changes) for name in ("node1", "node2")}, tasks)


def promises(found: Plan) -> dict[str, tuple[str, float | None]]:
    """The node, and in how many seconds."""
    return {
        name: (promise.node, None if promise.start is None else promise.start - NOW)
        for name, promise in found.promises.items()
        if promise
    }


def places(found: Plan) -> dict[str, str]:
    return {name: f"{at.node}::{','.join(map(str, at.gpus))}" for name, at in found.starts.items()}


# ---------------------------------------------------------------------- now


def test_exact_gpus_are_given_in_the_order_that_was_asked() -> None:
    found = look(two_nodes(), wish("a", "node1::1,0")).starts["a"]
    assert (found.node, found.gpus, found.gpu_uuids) == ("node1", (1, 0), (uuid("node1", 1), uuid("node1", 0)))


def test_any_gpus_are_all_on_one_node() -> None:
    busy = two_nodes(runs("t", "node1::0,1,2"))
    assert places(look(busy, wish("a", "2x"))) == {"a": "node2::0,1"}


def test_no_gpu_is_given_twice_in_one_look() -> None:
    found = look(two_nodes(), *[wish(f"a{n}", "2x") for n in range(6)])
    given_away = [gpu for at in found.starts.values() for gpu in at.gpu_uuids]
    assert len(given_away) == len(set(given_away)) == 8


def test_one_node_may_be_asked_for_any_of_its_gpus() -> None:
    assert places(look(two_nodes(), wish("a", "node2", needs={"gpus": 2}))) == {"a": "node2::0,1"}


@pytest.mark.parametrize(
    ("needs", "node"),
    [
        ({"nodes": ("node2",)}, "node2"),
        ({"exclude": ("node1",)}, "node2"),
        ({"on": {"rack": "b"}}, "node2"),
        ({"nodes": ("node1", "node2"), "exclude": ("node2",)}, "node1"),
    ],
)
def test_only_nodes_that_will_do_are_taken(needs: dict[str, Any], node: str) -> None:
    seen_by = {name: seen(name) for name in ("node1", "node2")}
    nodes = {
        "node1": NodeConfig("node1", "h", labels={"rack": "a"}),
        "node2": NodeConfig("node2", "h", labels={"rack": "b"}),
    }
    found = look(survey(nodes, seen_by, (), NOW), wish("a", needs=needs))
    assert [at.node for at in found.starts.values()] == [node]


MIXED = {
    "node1": [("NVIDIA L4", 23034)] * 2,
    "node2": [("NVIDIA A100-SXM4-40GB", 40960), ("NVIDIA A100-SXM4-40GB", 40960), ("NVIDIA L4", 23034)],
    "node3": [("NVIDIA H100 PCIe", 81559)] * 2,
}


def mixed(*tasks: Task, **changes: Any) -> Cluster:
    return cluster(
        {
            name: seen(
                name,
                sample=GpuSample(
                    tuple(
                        reading(name, index, name=kind, memory_total_mib=total, **changes)
                        for index, (kind, total) in enumerate(gpus)
                    )
                ),
            )
            for name, gpus in MIXED.items()
        },
        tasks,
    )


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("1xA100", "node2::0"),
        ("2xA100", "node2::0,1"),
        ("1xH100,A100", "node3::0"),
        ("1xT4,A100", "node2::0"),
        ("1x:40G", "node3::0"),
        ("1xA100:40G", "node2::0"),
        ("1x:60G", "node3::0"),
        ("3x", "node2::0,1,2"),
        ("2xL4", "node1::0,1"),
    ],
)
def test_gpus_are_of_the_type_and_memory_asked_for(target: str, place: str) -> None:
    assert places(look(mixed(), wish("a", target))) == {"a": place}


@pytest.mark.parametrize(
    ("target", "busy", "place"),
    [
        ("1xA100,H100", ["node1::0"], "node2::0"),
        ("2xA100,H100", [], "node2::0,1"),
        ("1xA100,H100", ["node1::0", "node2::0,1,2,3"], "node1::1"),
        ("2xA100,H100", ["node2::0,1,2"], "node1::0,1"),
    ],
)
def test_on_a_node_with_several_types_it_counts_what_the_task_would_get(
    target: str, busy: list[str], place: str
) -> None:
    both, one = ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe"], ["NVIDIA A100-SXM4-80GB"] * 4
    on = of_kinds({"node1": both, "node2": one}, *[runs(f"t{n}", at) for n, at in enumerate(busy)])
    assert places(look(on, wish("a", target))) == {"a": place}


def of_kinds(nodes: dict[str, list[str]], *tasks: Task, **totals: int) -> Cluster:
    """Nodes with GPUs of these names."""
    return cluster(
        {
            name: seen(
                name,
                sample=GpuSample(
                    tuple(
                        reading(name, index, name=kind, memory_total_mib=totals.get(kind, 81920))
                        for index, kind in enumerate(gpus)
                    )
                ),
            )
            for name, gpus in nodes.items()
        },
        tasks,
    )


def test_of_types_in_an_order_the_first_that_is_there_is_given_though_others_are_more_alike() -> None:
    on = of_kinds({"node1": ["A100 40", "A100 80", "H100", "H100"]}, **{"A100 40": 40960})
    assert places(look(on, wish("a", "2xA100,H100"))) == {"a": "node1::0,1"}


def test_the_least_memory_is_that_of_the_gpus_that_are_free() -> None:
    kinds_ = {"node1": ["small", "large"], "node2": ["middle"]}
    on = of_kinds(kinds_, runs("t", "node1::0"), small=16384, large=81920, middle=24576)
    assert places(look(on, wish("a", "1x:12G", needs={"policy": "best_fit"}))) == {"a": "node2::0"}


def test_a_gpu_that_is_promised_soon_is_none_that_a_long_task_would_get() -> None:
    """node1's A100 is free and promised to `both`, which wants it with the H100."""
    on = of_kinds({"node1": ["A100", "H100", "H100"], "node2": ["A100"] * 2}, runs("t", "node1::1", 0, 50))
    large = wish("both", "node1::0,1", 100)
    assert places(look(on, large, wish("a", "1xA100,H100"))) == {"a": "node2::0"}


def test_the_second_best_type_is_taken_when_the_best_is_busy() -> None:
    busy = mixed(runs("t", "node3::0,1"))
    assert places(look(busy, wish("a", "1xH100,A100"))) == {"a": "node2::0"}


def test_memory_has_to_be_free_now_too() -> None:
    crowded = seen(sample=GpuSample((reading("node1", 0, memory_used_mib=20000), reading("node1", 1))))
    assert places(look(cluster(crowded), wish("a", "1x:10G"))) == {"a": "node1::1"}
    assert not look(cluster(crowded), wish("a", "2x:10G")).starts


def test_a_foreign_process_keeps_a_gpu_out_unless_it_may_be_shared() -> None:
    foreign = cluster(seen(processes=(process("node1", 0), process("node1", 1))))
    assert not look(foreign, wish("a")).starts
    assert places(look(foreign, wish("a", share=True))) == {"a": "node1::0"}


def test_a_numa_node_becomes_its_cpus_and_has_to_be_there() -> None:
    found = look(cluster(near()), wish("a", "node1:1"), wish("b", "node1:7"))
    assert [(one, at.cpus, at.numa) for one, at in found.starts.items()] == [("a", "16-31", 1)]


def test_cores_and_memory_are_set_aside_like_gpus() -> None:
    held = runs("t", "node1")
    held = replace(held, spec=replace(held.spec, cores=30.0, memory=100 << 30))
    busy = cluster(seen(), (held,))
    assert look(busy, wish("a", "node1", cores=2.0)).starts
    assert not look(busy, wish("a", "node1", cores=2.5)).starts
    assert look(busy, wish("a", "node1", memory=28 << 30)).starts
    assert not look(busy, wish("a", "node1", memory=29 << 30)).starts


def test_what_is_placed_in_one_look_is_set_aside_for_the_next_in_it() -> None:
    found = look(cluster(seen()), *[wish(f"a{n}", "node1", cores=10.0) for n in range(5)])
    assert list(found.starts) == ["a0", "a1", "a2"]


def test_who_wants_a_node_alone_gets_it_alone() -> None:
    found = look(two_nodes(runs("t", "node1::0")), wish("a", needs={"exclusive": True}), wish("b"), wish("c"))
    assert places(found) == {"a": "node2::0", "b": "node1::1", "c": "node1::2"}


def near(gpus: int = 4) -> Observation:
    """The first half of the GPUs at NUMA node 0, the second at 1."""
    numa = [
        NumaNode(
            n, f"{16 * n}-{16 * n + 15}", tuple(f"0000:{i:02x}:00.0" for i in range(gpus) if i * 2 // gpus == n), 65536
        )
        for n in (0, 1)
    ]
    readings = tuple(reading("node1", i, pci_bus_id=f"0000:{i:02x}:00.0") for i in range(gpus))
    return seen(sample=GpuSample(readings), host=HostFacts(32, 131072, tuple(numa)))


def test_gpus_of_one_task_are_near_each_other_and_their_cpus_are_pinned() -> None:
    found = look(cluster(near(), (runs("t", "node1::0"),)), wish("a", "2x")).starts["a"]
    assert (found.gpus, found.cpus, found.numa) == ((2, 3), "16-31", 1)


def test_single_gpus_leave_pairs_whole() -> None:
    found = look(cluster(near(), (runs("t", "node1::0"),)), wish("a")).starts["a"]
    assert (found.gpus, found.numa) == ((1,), 0)


def test_gpus_of_both_numa_nodes_pin_nothing() -> None:
    found = look(cluster(near()), wish("a", "3x")).starts["a"]
    assert (len(found.gpus), found.cpus, found.numa) == (3, None, None)


@pytest.mark.parametrize(
    ("wants", "pinned"),
    [
        ({"cores": 16.0, "memory": 64 << 30}, True),
        ({"cores": 17.0}, False),
        ({"memory": 65 << 30}, False),
        ({"cores": 24.0, "memory": 100 << 30}, False),
    ],
)
def test_who_wants_more_than_a_numa_node_has_is_not_pinned_to_it(wants: dict[str, Any], pinned: bool) -> None:
    found = look(cluster(near()), wish("a", **wants), wish("asked", "node1:1")).starts
    assert (found["a"].cpus, found["a"].numa) == (("0-15", 0) if pinned else (None, None))
    assert found["asked"].numa == 1


def test_no_more_are_pinned_to_a_numa_node_than_it_has_cpus_for() -> None:
    """The first is of another controller, the third is started in the same look as the second."""
    theirs = replace(runs("t", "node1::0", cores=6.0), status=Running(replace(placement("node1::0"), numa=0), CID, NOW))
    on = cluster(replace(near(), engine=EngineFacts("28.2.2", containers=(boxed(theirs),))))
    found = look(on, *[wish(name, f"node1::{n}", cores=8.0) for n, name in ((1, "b"), (2, "c"), (3, "d"))]).starts
    assert [at.numa for at in found.values()] == [0, 1, 1]
    more = look(cluster(near()), wish("a", "node1::0", cores=12.0), wish("b", "node1::1", cores=12.0)).starts
    assert [at.cpus for at in more.values()] == ["0-15", None]


def test_no_more_are_pinned_to_a_numa_node_than_it_has_memory_for() -> None:
    """Pinned, the second would be killed when both use what they may."""
    wants = [wish(name, f"node1::{n}", memory=40 << 30) for n, name in enumerate("ab")]
    assert [at.numa for at in look(cluster(near()), *wants).starts.values()] == [0, None]
    small = [wish(name, f"node1::{n}", memory=32 << 30) for n, name in enumerate("ab")]
    assert [at.numa for at in look(cluster(near()), *small).starts.values()] == [0, 0]


def test_memory_of_a_numa_node_that_is_not_known_is_not_counted_on() -> None:
    unknown = near()
    assert unknown.host
    nodes = tuple(replace(numa, memory_mib=None) for numa in unknown.host.numa)
    on = cluster(replace(unknown, host=replace(unknown.host, numa=nodes)))
    found = look(on, wish("a", memory=1 << 20), wish("b")).starts
    assert [at.numa for at in found.values()] == [None, 0]


@pytest.mark.parametrize(
    ("policy", "place"),
    [
        ("first_fit", "node1::1"),
        ("pack", "node2::3"),
        ("spread", "node3::0"),
        ("least_loaded", "node3::0"),
        ("round_robin", "node3::0"),
    ],
)
def test_policies_choose_among_the_nodes_that_will_do(policy: str, place: str) -> None:
    busy = cluster(
        {name: seen(name, 4) for name in ("node1", "node2", "node3")},
        (runs("t1", "node1::0", 50), runs("t2", "node2::0,1,2", 100)),
    )
    assert places(look(busy, wish("a", needs={"policy": policy}))) == {"a": place}


def test_of_nodes_with_as_many_open_gpus_pack_takes_the_one_with_fewer_cores_left() -> None:
    busy = two_nodes(runs("t", "node2", cores=8.0))
    assert places(look(busy, wish("a", needs={"policy": "pack"}))) == {"a": "node2::0"}


def test_best_fit_wastes_the_least_memory() -> None:
    assert places(look(mixed(), wish("a", "1x:20G", needs={"policy": "best_fit"}))) == {"a": "node1::0"}
    assert places(look(mixed(), wish("a", "1x:30G", needs={"policy": "best_fit"}))) == {"a": "node2::0"}


def test_round_robin_goes_round() -> None:
    found = look(two_nodes(), *[wish(f"a{n}", needs={"policy": "round_robin"}) for n in range(4)])
    assert {at.node for at in list(found.starts.values())[:2]} == {"node1", "node2"}


@pytest.mark.parametrize("changes", [{"error": "no route"}, {"sampled_at": NOW - 3600}])
def test_nothing_starts_on_a_node_that_is_not_well(changes: Any) -> None:
    assert look(cluster(seen(**changes)), wish("a"), wish("b", "node1")).starts == {}


# ---------------------------------------------------------------------- later


def test_who_has_to_wait_is_promised_the_end_of_the_first_that_ends() -> None:
    busy = two_nodes(runs("t1", "node1::0", 60, 100), runs("t2", "node2::0", 60, 90), gpus=1)
    assert promises(look(busy, wish("a"))) == {"a": ("node2", 30)}


def test_where_one_promise_gives_way_there_is_room_for_more_than_one() -> None:
    """`large` is promised all of node1 for later; then it is empty, and those in front are three."""
    full = two_nodes(runs("t", "node1::0,1", 0, 100), runs("u", "node2::0,1", 0, 300), gpus=2)
    large, others = wish("large", "2x", 300), [wish(name, limit=300) for name in ("a", "b")]
    before = look(full, large)
    assert promises(before) == {"large": ("node1", 100)}
    free = two_nodes(runs("u", "node2::0,1", 0, 300), gpus=2)
    found = plan(free, [*others, large], NOW, POLICIES, Plan({}, {"a": None, "b": None, **before.promises}))
    assert set(found.starts) == {"a", "b"}


def test_promises_follow_each_other() -> None:
    busy = two_nodes(runs("t1", "node1::0", 60, 100), runs("t2", "node2::0", 60, 90), gpus=1)
    found = look(busy, wish("a", limit=100), wish("b", limit=100), wish("c", limit=100))
    assert promises(found) == {"a": ("node2", 30), "b": ("node1", 40), "c": ("node2", 130)}


def test_a_task_that_is_over_its_limit_is_expected_to_end_any_moment() -> None:
    busy = cluster(seen(gpus=1), (runs("t", "node1::0", 500, 100),))
    assert promises(look(busy, wish("a"))) == {"a": ("node1", 1)}


def test_who_waits_for_something_without_a_limit_is_promised_a_place_and_no_time() -> None:
    busy = cluster(seen(gpus=1), (runs("t", "node1::0"),))
    assert promises(look(busy, wish("a"))) == {"a": ("node1", None)}


def test_a_short_task_may_go_first_where_that_delays_nobody() -> None:
    busy = cluster(seen(gpus=2), (runs("t", "node1::0", 0, 100),))
    found = look(busy, wish("large", "2x", 100), wish("short", limit=100), wish("long", limit=101))
    assert (places(found), list(promises(found))) == ({"short": "node1::1"}, ["large", "long"])


def test_a_task_without_a_limit_does_not_go_in_front_of_a_promise() -> None:
    busy = cluster(seen(gpus=2), (runs("t", "node1::0"),))
    assert look(busy, wish("large", "2x"), wish("endless")).starts == {}


def test_a_promise_is_made_where_the_least_is_missing() -> None:
    busy = two_nodes(runs("t1", "node1::0,1,2"), runs("t2", "node2::0"))
    assert promises(look(busy, wish("a", "4x"))) == {"a": ("node2", None)}


def test_a_gpu_that_a_stranger_uses_beside_its_task_is_not_promised_for_the_end_of_that() -> None:
    held = runs("t", "node1::0", 0, 10)
    intruded = seen(gpus=1, processes=(process("node1", 0),), containers=[container(held)])
    assert promises(look(cluster(intruded, (held,)), wish("a"))) == {"a": ("node1", None)}


def test_what_was_promised_is_kept_although_another_place_would_do_now() -> None:
    """Both GPUs are free at the moment for which the first was promised one, and the second the other."""
    busy = two_nodes(runs("t1", "node1::0", 0, 10), runs("t2", "node2::0", 0, 10), gpus=1)
    queue = [wish("a", limit=5), wish("b", limit=5)]
    first = look(busy, *queue)
    again = plan(busy, queue, NOW, POLICIES, first)
    assert again == first


@pytest.mark.parametrize("limit", [None, 100.0])
def test_whoever_is_next_gets_what_is_free_first_whatever_was_promised_to_those_behind(limit: float | None) -> None:
    """The second one was promised the GPU whose task has ended sooner than expected."""
    one, other = runs("t1", "node1::0", 0, limit), runs("t2", "node2::0", 0, limit and 2 * limit)
    queue = [wish("a", limit=limit), wish("b", limit=limit)]
    first = look(two_nodes(one, other, gpus=1), *queue)
    for ended in (one, other):
        left = two_nodes(*(task_ for task_ in (one, other) if task_ != ended), gpus=1)
        assert list(plan(left, queue, NOW, POLICIES, first).starts) == ["a"]


def promised(on: Cluster, queue: list[Task], **before: Promise | None) -> dict[str, tuple[str, float | None]]:
    """What is promised after a look with these promises."""
    return promises(plan(on, queue, NOW, POLICIES, Plan({}, before)))


@pytest.mark.parametrize(("late", "kept"), [(0.0, True), (5.0, True), (5.1, False)])
def test_a_promise_is_kept_although_it_is_a_little_late(late: float, kept: bool) -> None:
    """From one in front, too, which was promised nothing before, and could have the place otherwise."""
    busy = cluster(seen(gpus=1), (runs("t", "node1::0", 0, 10),))
    queue = [wish("a", limit=100), wish("b", limit=50)]
    before = Promise("node1", NOW + 10 - late, (uuid("node1", 0),))
    found = promised(busy, queue, a=None, b=before)
    assert found == {"a": ("node1", 60 if kept else 10), "b": ("node1", 10 if kept else 110)}


def test_a_promise_on_a_node_that_is_gone_is_made_anew_and_those_behind_give_way() -> None:
    busy = cluster(seen(gpus=1), (runs("t", "node1::0", 0, 10),))
    queue = [wish("a", limit=100), wish("b", limit=50)]
    gone, here = Promise("node9", NOW + 5), Promise("node1", NOW + 10, (uuid("node1", 0),))
    assert promised(busy, queue, a=gone, b=here) == {"a": ("node1", 10), "b": ("node1", 110)}


def test_a_promise_that_was_not_looked_at_any_more_names_the_time_at_which_it_comes_true_now() -> None:
    busy = cluster(seen(gpus=2), (runs("t", "node1::0", 0, 10),))
    before = Plan({}, {"a": None, "b": Promise("node1", NOW + 7, (uuid("node1", 0),))})
    found = plan(busy, [wish("a", limit=5), wish("b", "node1::0")], NOW, POLICIES, before, starts=1)
    assert (list(found.starts), promises(found)) == (["a"], {"b": ("node1", 10)})


def test_whoever_is_next_takes_the_place_that_is_free_of_several_that_are_promised() -> None:
    busy = two_nodes(runs("t", "node1::0", 0, 10), gpus=1)
    there_ = {name: Promise(node, NOW + 20, (uuid(node, 0),)) for name, node in (("b", "node1"), ("c", "node2"))}
    queue = [wish("a", needs={"exclude": ("node1",)}), wish("b", "node1::0", 10), wish("c", "node2::0", 10)]
    assert places(plan(busy, queue, NOW, POLICIES, Plan({}, {"a": None, **there_}))) == {"a": "node2::0"}


def test_whoever_is_next_takes_no_place_on_a_node_that_it_does_not_want() -> None:
    busy = two_nodes(runs("t", "node2::0", 0, 10), gpus=1)
    queue = [wish("a", needs={"exclude": ("node1",)}), wish("b", limit=10)]
    before = {"a": None, "b": Promise("node1", NOW + 10, (uuid("node1", 0),))}
    assert places(plan(busy, queue, NOW, POLICIES, Plan({}, before))) == {"b": "node1::0"}


def test_who_starts_before_its_promise_is_promised_nothing_any_more() -> None:
    """Although one in front has tried to take the place that was promised."""
    busy = cluster(seen(gpus=2), (runs("t", "node1::0", 0, 100, cores=1.0),))
    before = {"a": None, "b": Promise("node1", NOW + 30, (uuid("node1", 1),))}
    found = plan(busy, [wish("a", limit=10, cores=32.0), wish("b", limit=10)], NOW, POLICIES, Plan({}, before))
    assert (places(found), promises(found)) == ({"b": "node1::1"}, {"a": ("node1", 100)})


def test_nothing_is_promised_on_a_node_that_cannot_be_reached() -> None:
    assert promises(look(cluster(seen(error="no route")), wish("a"))) == {}


def test_so_many_are_promised_a_place_and_no_more() -> None:
    busy = cluster(seen(gpus=1), (runs("t", "node1::0", 0, 10),))
    found = look(busy, *[wish(f"a{n}", limit=10) for n in range(5)], promises=2)
    assert list(promises(found)) == ["a0", "a1"]


def test_so_many_are_started_and_no_more_and_nobody_is_overtaken() -> None:
    found = look(two_nodes(), *[wish(f"a{n}") for n in range(6)], starts=2)
    assert list(found.starts) == ["a0", "a1"]


# ---------------------------------------------------------------- over all of them

kinds = st.sampled_from([("NVIDIA L4", 23034), ("NVIDIA A100-SXM4-40GB", 40960), ("NVIDIA A100-SXM4-80GB", 81920)])
limits = st.none() | st.integers(1, 500).map(float)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A few nodes, some with GPUs of several kinds, with tasks and strangers on them, here and there both at once."""
    observations, tasks = {}, []
    for name in ("node1", "node2", "node3")[: draw(st.integers(1, 3))]:
        gpus = draw(st.integers(0, 4))
        alike, mixed_ = draw(kinds), draw(st.booleans())
        of = [draw(kinds) if mixed_ else alike for _ in range(gpus)]
        readings = [reading(name, i, name=kind, memory_total_mib=total) for i, (kind, total) in enumerate(of)]
        uses = [draw(st.sampled_from(["nobody", "task", "task", "stranger", "task, stranger"])) for _ in range(gpus)]
        foreign = [process(name, index) for index, who in enumerate(uses) if "stranger" in who]
        here = [
            runs(f"{name}-{i}", f"{name}::{i}", draw(st.integers(0, 50)), draw(limits), share="stranger" in who)
            for i, who in enumerate(uses)
            if "task" in who
        ]
        host = HostFacts(draw(st.integers(2, 16)), 65536)
        sample = GpuSample(tuple(readings), tuple(foreign))
        observations[name] = seen(name, sample=sample, host=host, containers=[boxed(each) for each in here])
        tasks += here
    return cluster(observations, tuple(tasks))


def boxed(of: Task) -> Container:
    """The container that it runs in."""
    assert of.placement
    return replace(container(task()), id=of.id, labels=labels_of(of, of.placement, "c1"))


def there(on: Cluster) -> dict[str, Task]:
    """What runs in such a cluster."""
    there = [each for node in on.nodes.values() for each in (node.observation.engine or EngineFacts()).containers or ()]
    found = [task_of(each, each.id.partition("-")[0], NOW) for each in there]
    held = {a.task: a for node in on.nodes.values() for a in node.allocations}
    return {
        each.id: replace(each, status=Running(each.placement, CID, held[each.id].since or NOW))
        for each in found
        if each and each.placement
    }


def later(on: Cluster, running: Iterable[Task], now: float) -> Cluster:
    """The same nodes and strangers with these tasks at another time."""
    running = list(running)
    observations = {
        name: replace(
            node.observation,
            sampled_at=now,
            engine=EngineFacts("28.2.2", toolkits=READY, containers=tuple(boxed(t) for t in running if t.node == name)),
        )
        for name, node in on.nodes.items()
    }
    return survey({name: node.config for name, node in on.nodes.items()}, observations, running, now)


@st.composite
def wishes(draw: st.DrawFn) -> list[Task]:
    """A queue of tasks of all shapes."""
    return [
        wish(
            f"q{number}",
            limit=draw(limits),
            cores=draw(st.none() | st.integers(1, 8).map(float)),
            memory=draw(st.none() | st.integers(1, 64).map(lambda gib: gib << 30)),
            share=draw(st.integers(0, 3)) == 0,
            needs={
                "gpus": draw(st.integers(0, 4)),
                "gpu_types": draw(st.sampled_from([(), ("A100",), ("A100", "L4")])),
                "exclusive": draw(st.integers(0, 9)) == 0,
                "policy": draw(st.sampled_from([None, *filter(None, POLICIES)])),
            },
        )
        for number in range(draw(st.integers(0, 12)))
    ]


@given(clusters(), wishes())
def test_nothing_is_ever_over_a_limit(on: Cluster, queue: list[Task]) -> None:
    found = look(on, *queue)
    wanted = {one.id: one.spec for one in queue}
    for name, node in on.nodes.items():
        here = {one: at for one, at in found.starts.items() if at.node == name}
        given_away = [gpu for at in here.values() for gpu in at.gpu_uuids]
        assert len(given_away) == len(set(given_away))
        for one, at in here.items():
            open_ = {"free", "foreign"} if wanted[one].share else {"free"}
            assert {gpu.state for gpu in node.gpus if gpu.reading.uuid in at.gpu_uuids} <= open_
        host = node.observation.host
        assert host is not None
        assert sum(wanted[one].cores or 0 for one in here) <= (host.cores or 0)
        assert sum(wanted[one].memory or 0 for one in here) <= (host.memory_mib or 0) << 20
        if any(wanted[one].needs.exclusive for one in here):
            assert len(here) + len(node.allocations) == 1


@given(clusters(), wishes())
def test_who_comes_later_changes_nothing_for_those_before(on: Cluster, queue: list[Task]) -> None:
    whole = look(on, *queue)
    for length in range(len(queue)):
        part = look(on, *queue[:length])
        before = {one.id for one in queue[:length]}
        assert part.starts == {one: at for one, at in whole.starts.items() if one in before}
        assert part.promises == {one: at for one, at in whole.promises.items() if one in before}


@given(clusters(), wishes())
def test_no_node_alone_would_give_better_gpus(on: Cluster, queue: list[Task]) -> None:
    """The best of the types that were asked for, and with best_fit, of those, the least memory."""
    totals = {gpu.reading.uuid: gpu.reading for node in on.nodes.values() for gpu in node.gpus}
    for one in queue:
        for policy in ("pack", "best_fit"):
            wanted = replace(one, spec=replace(one.spec, needs=replace(one.spec.needs, policy=policy)))

            def worth(place: Placement, wanted: Task = wanted) -> tuple[int, int]:
                given_ = [totals[uuid] for uuid in place.gpu_uuids]
                rank = max((shape_of(wanted.spec).rank(each.name) or 0 for each in given_), default=0)
                least = wanted.spec.needs.policy == "best_fit"
                return rank, sum(each.memory_total_mib or 0 for each in given_) if least else 0

            alone = [look(replace(on, nodes={name: node}), wanted).starts for name, node in on.nodes.items()]
            found = look(on, wanted).starts
            assert bool(found) == any(alone)
            if found:
                assert worth(found[one.id]) == min(worth(each[one.id]) for each in alone if each)
