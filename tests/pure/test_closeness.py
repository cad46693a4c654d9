"""Which GPUs of a node a task gets: the slowest link between them is as fast as can be had."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.nodes.cluster import Gpu
from agentless.model.nodes.gpu import GpuSample, GpuTopology
from agentless.model.scheduling.needs import parse_target
from agentless.model.scheduling.sharing import Sharing
from agentless.model.tasks.task import Placement
from agentless.rules.scheduling.gpu_choice import choose
from agentless.rules.scheduling.shape import shape_of
from agentless.rules.scheduling.timeline.gpu import GpuTimeline
from tests.engines import joined
from tests.pure.build import cluster, reading, seen, spec
from tests.pure.test_plan import look, near, runs, wish

RECORDS = Path(__file__).parent / "data" / "topology"
KINDS = ["SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV4", "NV12"]
NOTHING = GpuTopology()


def recorded(name: str) -> GpuTopology:
    """A topology as it was printed by a real driver."""
    expected = json.loads((RECORDS / f"{name}.json").read_text())["expected"]
    pairs = {tuple(map(int, pair.split("-"))): kind for pair, kind in expected["links"].items()}
    return joined(pairs, {int(gpu): numa for gpu, numa in expected["numa"].items()})


def bridged(gpus: int) -> GpuTopology:
    """Pairs that are joined by NVLink, on the two halves of a machine."""

    def kind(one: int, other: int) -> str:
        if one // 2 == other // 2:
            return "NV4"
        return "NODE" if one * 2 // gpus == other * 2 // gpus else "SYS"

    return joined({pair: kind(*pair) for pair in combinations(range(gpus), 2)})


def timelines(numas: list[int | None], **changes: Any) -> list[GpuTimeline]:
    return [GpuTimeline(Gpu(reading("node1", i, **changes), "free"), numa) for i, numa in enumerate(numas)]


def chosen(count: int, topology: GpuTopology, open_ones: list[GpuTimeline]) -> tuple[int, ...]:
    found = choose(open_ones, shape_of(spec(needs=parse_target(f"{count}x"))), topology)
    assert found is not None
    return tuple(gpu.index for gpu in found)


def slowest(gpus: tuple[int, ...], topology: GpuTopology) -> int:
    return min((topology.closeness(one, other) for one, other in combinations(gpus, 2)), default=0)


# ---------------------------------------------------------------------- what is near


@pytest.mark.parametrize(
    ("name", "taken", "count", "gpus"),
    [
        ("nvlink-bridge-and-one-more", (), 2, (0, 1)),
        ("nvlink-bridge-and-one-more", (), 1, (2,)),
        ("five-pcie-two-sockets", (), 2, (1, 2)),
        ("five-pcie-two-sockets", (2,), 2, (3, 4)),
        ("five-pcie-two-sockets", (), 1, (0,)),
        ("five-pcie-two-sockets", (), 4, (1, 2, 3, 4)),
        ("five-pcie-two-sockets", (0, 4), 1, (3,)),
        ("dgx-1-nvlink-cube", (), 2, (0, 1)),
        ("dgx-1-nvlink-cube", (), 3, (0, 1, 2)),
        ("dgx-1-nvlink-cube", (0,), 2, (2, 3)),
        ("eight-nvlink-underlined", (0,), 3, (1, 2, 3)),
        ("eight-nvlink-underlined", (0,), 4, (4, 5, 6, 7)),
    ],
)
def test_gpus_of_real_machines_are_chosen_by_how_they_are_joined(
    name: str, taken: tuple[int, ...], count: int, gpus: tuple[int, ...]
) -> None:
    """The nearest that are left; and who wants one takes one that others have the least of."""
    topology = recorded(name)
    everyone = timelines([topology.numa.get(i) for i in range(1 + max(max(pair) for pair in topology.links))])
    assert chosen(count, topology, [gpu for gpu in everyone if gpu.index not in taken]) == gpus


def test_a_link_decides_before_the_numa_node() -> None:
    """What a task over several GPUs waits for is the link, not the memory of the host."""
    assert chosen(2, joined({(0, 1): "SYS", (0, 2): "NV4", (1, 2): "SYS"}), timelines([0, 0, 1])) == (0, 2)


def test_one_fast_link_is_worth_nothing_beside_a_slow_one() -> None:
    """A task over three is as fast as the slowest link between them."""
    links = {(0, 1): "NV12", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "PIX", (1, 3): "PIX", (2, 3): "PIX"}
    assert chosen(3, joined(links), timelines([0] * 4)) == (1, 2, 3)


def test_of_equal_links_the_same_numa_node_decides() -> None:
    """Its CPUs can be pinned then."""
    links = dict.fromkeys(combinations(range(4), 2), "NV12") | {(0, 1): "PHB"}
    assert chosen(2, joined(links), timelines([0, 0, 1, 1])) == (2, 3)


def test_the_numa_node_that_was_asked_for_comes_before_any_link() -> None:
    """`node1:1` with two GPUs means GPUs there."""
    topology = joined({(0, 1): "NV4", (2, 3): "SYS", (0, 2): "SYS"})
    shape = shape_of(spec(needs=replace(parse_target("node1:1"), gpus=2)))
    found = choose(timelines([0, 0, 1, 1]), shape, topology)
    assert found is not None
    assert [gpu.index for gpu in found] == [2, 3]


def test_gpus_that_are_alike_come_before_gpus_that_are_near() -> None:
    """The slower one would be waited for at each step."""
    mixed = timelines([0, 0]) + [
        replace_index(gpu, 2) for gpu in timelines([0], name="NVIDIA A100", memory_total_mib=40960)
    ]
    assert chosen(2, joined({(0, 2): "NV4", (0, 1): "SYS", (1, 2): "SYS"}), mixed) == (0, 1)


def replace_index(gpu: GpuTimeline, index: int) -> GpuTimeline:
    gpu.index = gpu.number = index
    return gpu


def test_a_single_gpu_is_the_one_whose_partner_is_gone() -> None:
    """Whole pairs stay for those who want pairs."""
    everyone = timelines([None] * 8)
    assert chosen(1, bridged(8), [gpu for gpu in everyone if gpu.index != 4]) == (5,)


def test_pairs_are_whole_on_sixteen_gpus_too() -> None:
    """There are too many sets of six to compare them all."""
    open_ones = [gpu for gpu in timelines([i // 8 for i in range(16)]) if gpu.index not in (0, 8)]
    found = chosen(6, bridged(16), open_ones)
    assert slowest(found, bridged(16)) == joined({(0, 1): "NODE"}).closeness(0, 1)
    assert {gpu ^ 1 for gpu in found} == set(found)


def test_a_single_gpu_leaves_the_fast_links_to_others() -> None:
    """GPU 4 has no slow link and no fast one."""
    links = dict.fromkeys(combinations(range(5), 2), "SYS") | {(n, 4): "PHB" for n in range(4)}
    assert chosen(1, joined(links | {(0, 1): "NV4", (2, 3): "NV4"}), timelines([0] * 5)) == (4,)


def test_of_few_gpus_all_sets_are_compared() -> None:
    """Grown from one GPU, the set with the most fast links would not be found."""
    fast = [(0, 1), (0, 4), (0, 5), (1, 2), (1, 5), (2, 5), (3, 4), (3, 5), (3, 6), (4, 5), (4, 6)]
    links = dict.fromkeys(combinations(range(7), 2), "PHB") | dict.fromkeys(fast, "NV1")
    assert chosen(4, joined(links), timelines([0, 1, 1, 1, 1, 1, 1])) == (3, 4, 5, 6)


def test_of_many_gpus_sets_are_grown_by_what_is_nearest() -> None:
    """Twelve, joined at random."""
    dice = random.Random(0)
    links = {pair: dice.choice(["NODE", "SYS"]) for pair in combinations(range(12), 2)}
    assert chosen(4, joined(links), timelines([None] * 12)) == (4, 5, 6, 9)


# ---------------------------------------------------------------------- of the best type, and alike


def pick(target: str, *kinds: str, of: Any = None) -> tuple[int, ...] | None:
    """What a task gets of GPUs with these names, each with more memory after a space: `A 40`."""
    everyone = [
        replace_index(timelines([None], name=kind.split()[0], memory_total_mib=1024 * int(kind.split()[1]))[0], index)
        for index, kind in enumerate(kinds)
    ]
    found = choose(everyone, of or shape_of(spec(needs=parse_target(target))), NOTHING)
    return found and tuple(gpu.index for gpu in found)


@pytest.mark.parametrize(
    ("target", "kinds", "gpus"),
    [
        ("2x", ["A 40"], None),
        ("2x", ["A 40", "B 80"], (0, 1)),
        ("2x", ["B 80", "A 40", "B 80"], (0, 2)),
        ("2x", ["A 80", "A 80", "A 40", "A 40"], (2, 3)),
        ("2x", ["A 40", "B 80", "C 24"], (0, 1)),
        ("2xA,B", ["B 40", "B 40", "A 40", "A 80"], (2, 3)),
        ("2xA,B", ["A 40", "B 40", "B 80"], (1, 2)),
        ("3xA,B", ["B 40", "B 40", "A 40", "A 40"], (0, 2, 3)),
        ("1xB,A", ["A 40", "B 80"], (1,)),
        ("2xA,B,C", ["C 24", "C 24", "B 40", "A 40"], (2, 3)),
        ("node1::1,0", ["A 40", "B 40"], (1, 0)),
    ],
)
def test_gpus_are_of_the_best_type_and_alike_if_that_goes(
    target: str, kinds: list[str], gpus: tuple[int, ...] | None
) -> None:
    assert pick(target, *kinds) == gpus


# ---------------------------------------------------------------------- near, as far as the NUMA nodes say


@pytest.mark.parametrize(
    ("numas", "count", "gpus"),
    [
        ([0, 0, 0, 1, 1], 2, (3, 4)),
        ([0, 0, 0, 1, 1], 1, (3,)),
        ([0, 0, 1, 1], 1, (0,)),
        ([0, 0, 1, 1, 1], 3, (2, 3, 4)),
        ([0, 1, 1, 1, 2, 2], 4, (1, 2, 3, 4)),
        ([0, 1, 1, 2, 2, 2], 5, (1, 2, 3, 4, 5)),
        ([1, 0, 0, 1], 2, (0, 3)),
    ],
)
def test_on_one_numa_node_with_few_to_spare_or_on_as_few_as_possible(
    numas: list[int | None], count: int, gpus: tuple[int, ...]
) -> None:
    assert chosen(count, NOTHING, timelines(numas)) == gpus


def test_of_a_numa_node_that_was_asked_for_all_are_taken_before_any_other() -> None:
    shape = shape_of(spec(needs=replace(parse_target("node1:1"), gpus=3)))
    found = choose(timelines([0, 0, 0, 1, 1]), shape, NOTHING)
    assert found is not None
    assert [gpu.index for gpu in found] == [0, 3, 4]


def test_a_gpu_of_no_known_numa_node_is_not_taken_for_one_that_was_asked_for() -> None:
    near = joined({(0, 1): "SYS", (0, 2): "SYS", (1, 2): "NV4"})
    assert chosen(2, near, timelines([None, 0, 0])) == (1, 2)


# ---------------------------------------------------------------------- shared


def sharing(limit: int, begun: tuple[int, ...]) -> tuple[int, ...]:
    """What one that wants two of four GPUs gets, with two at most or alone, where some are taken for a time to come."""
    everyone = timelines([0, 0, 0, 0])
    for index in begun:
        everyone[index].taken.append((1e12, 2e12, Sharing(2, 1)))
    shape = shape_of(spec(needs=parse_target("2x")))._replace(sharing=Sharing(limit, 1))
    found = choose(everyone, shape, NOTHING)
    assert found is not None
    return tuple(gpu.index for gpu in found)


def test_who_shares_goes_where_so_many_share_and_who_does_not_goes_anywhere() -> None:
    assert sharing(2, (2, 3)) == (2, 3)
    assert sharing(2, (1, 2, 3)) == (1, 2)
    assert sharing(2, (3,)) == (0, 1)
    assert sharing(1, (2, 3)) == (0, 1)


# ---------------------------------------------------------------------- over all of them


@st.composite
def machines(draw: st.DrawFn, most: int) -> tuple[list[GpuTimeline], GpuTopology]:
    """Some open GPUs, joined in whatever way; of some pairs it is not known how."""
    numas = draw(st.lists(st.sampled_from([None, 0, 1]), min_size=1, max_size=most))
    few = draw(st.lists(st.sampled_from(["", *KINDS]), min_size=1, max_size=3))
    pairs = combinations(range(len(numas)), 2)
    links = {pair: kind for pair in pairs if (kind := draw(st.sampled_from(few)))}
    return timelines(list(numas)), joined(links)


@settings(deadline=None)
@given(machines(most=8), st.data())
def test_no_other_set_has_a_faster_slowest_link(
    machine: tuple[list[GpuTimeline], GpuTopology], data: st.DataObject
) -> None:
    """For all that want two to eight of eight GPUs."""
    everyone, topology = machine
    count = data.draw(st.integers(1, len(everyone)))
    best = max(slowest(gpus, topology) for gpus in combinations(range(len(everyone)), count))
    assert slowest(chosen(count, topology, everyone), topology) == best


@settings(deadline=None)
@given(machines(most=16), st.data())
def test_never_are_gpus_farther_from_each_other_than_without_a_topology(
    machine: tuple[list[GpuTimeline], GpuTopology], data: st.DataObject
) -> None:
    """Also where not all sets are compared; and they are as many as were asked for, each once."""
    everyone, topology = machine
    count = data.draw(st.integers(1, len(everyone)))
    found = chosen(count, topology, everyone)
    assert len(set(found)) == count
    assert slowest(found, topology) >= slowest(chosen(count, NOTHING, everyone), topology)


@given(machines(most=8), st.sampled_from(KINDS), st.data())
def test_where_all_are_as_near_it_is_as_if_nothing_were_known(
    machine: tuple[list[GpuTimeline], GpuTopology], kind: str, data: st.DataObject
) -> None:
    """As behind NVSwitch: the NUMA node decides."""
    everyone, _ = machine
    count = data.draw(st.integers(1, len(everyone)))
    alike = joined(dict.fromkeys(combinations(range(len(everyone)), 2), kind))
    assert chosen(count, alike, everyone) == chosen(count, NOTHING, everyone)


# ---------------------------------------------------------------------- on a node


def placed(topology: GpuTopology, target: str, **changes: Any) -> Placement:
    observation = replace(near(), topology=topology, **changes)
    return look(cluster(observation, (runs("t", "node1::0"),)), wish("a", target)).starts["a"]


def test_a_task_gets_the_gpus_that_are_joined_and_the_cpus_near_them() -> None:
    """GPUs 0 and 1 are at the first half of the CPUs, 2 and 3 at the second."""
    nearest = placed(joined({(1, 2): "SYS", (1, 3): "SYS", (2, 3): "NV4"}), "2x")
    assert (nearest.gpus, nearest.cpus, nearest.numa) == ((2, 3), "16-31", 1)
    across = placed(joined({(1, 2): "NV4", (1, 3): "SYS", (2, 3): "SYS"}), "2x")
    assert (across.gpus, across.cpus, across.numa) == ((1, 2), None, None)


def test_the_driver_says_which_cpus_are_near_where_the_kernel_does_not() -> None:
    """Its PCI addresses are not known here."""
    nameless = GpuSample(tuple(reading("node1", i) for i in range(4)))
    found = placed(GpuTopology(numa={0: 0, 1: 0, 2: 1, 3: 1}), "2x", sample=nameless)
    assert (found.gpus, found.cpus, found.numa) == ((2, 3), "16-31", 1)


def test_a_node_whose_topology_nobody_has_read_is_used_all_the_same() -> None:
    """By NUMA nodes, which come from the kernel."""
    found = look(cluster(replace(near(), topology=None), (runs("t", "node1::0"),)), wish("a", "2x")).starts["a"]
    assert found.gpus == (2, 3)
    assert seen().topology is None
