"""What would make a task fit: what is said is so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node_record import Drain, NodeRecord
from agentless.model.tasks.task import Running, Task
from agentless.rules.explain.ahead import Ahead
from agentless.rules.explain.blockers import without, without_tasks
from agentless.rules.explain.explanation import when
from agentless.rules.explain.obstacles import obstacles
from agentless.rules.explain.remedy import MOST_AHEAD, remedies
from agentless.rules.nodes.gpu_exclusion import gated
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.plan import Promise, plan
from tests.pure.build import CID, NOW, cluster, process, seen, uuid
from tests.pure.test_exclusion import ILL
from tests.pure.test_gpu_share import on_gpu, shares
from tests.pure.test_plan import POLICIES, boxed, clusters, later, look, mixed, runs, there, two_nodes, wish, wishes
from tests.pure.test_reserved import HOUR, reserved
from tests.pure.test_reserved import on as reserve


def helps(on: Cluster, one: Task, node: str = "node1") -> list[str]:
    return [remedy.text for remedy in remedies(on, node, one)]


def waiting(on: Cluster, *queue: Task) -> Ahead:
    """Those who wait before it, and what they are promised."""
    return Ahead(queue, look(on, *queue).promises, POLICIES)


def behind(on: Cluster, one: Task, *queue: Task, node: str = "node1") -> list[str]:
    """What would help one that comes behind these."""
    return [remedy.text for remedy in remedies(on, node, one, waiting(on, *queue))]


def in_the_way(on: Cluster, one: Task, *queue: Task, node: str = "node1") -> list[str]:
    """What is promised to those before it, in words."""
    return [line for each in waiting(on, *queue).obstacles(on.nodes[node], one, NOW) for line in each.details]


OVER = "when the reservation of node1::0 for ann ends"
BUSY = (runs("t1", "node1::0", 60, 3600), runs("t2", "node1::1", 60))


def test_of_two_ends_that_would_do_the_earlier_one_is_named() -> None:
    on = cluster(seen(gpus=4), (runs("t1", "node1::0", 60, 7200), runs("t2", "node1::1", 60, 3600)))
    assert helps(on, wish("a", "3x")) == ["--gpus 2", "when task t2 of me@here ends, within 59m 0s"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (wish("a", "3x"), ["--gpus 2", "when task t1 of me@here ends, within 59m 0s"]),
        (wish("a", "4x"), ["--gpus 2", "when task t1 of me@here, task t2 of me@here end"]),
        (
            wish("a", "node1::0"),
            ["--gpus 1 (any GPU)", "when task t1 of me@here ends, within 59m 0s"],
        ),
        (wish("a", "2x"), []),
    ],
)
def test_fewer_gpus_or_the_end_of_others(wanted: Task, words: list[str]) -> None:
    assert helps(two_nodes(*BUSY), wanted) == words


def test_what_a_gpu_has() -> None:
    on = two_nodes()
    assert helps(on, wish("a", "1x:900G")) == ["--gpu-memory 24G"]
    assert helps(on, wish("a", "1xH100")) == ["--gpu-type 'NVIDIA L4'"]


def test_cores_and_memory_that_are_left() -> None:
    holder = replace(runs("t1", "node1"), spec=replace(runs("t1", "node1").spec, cores=28.0, memory=120 << 30))
    on = two_nodes(holder)
    assert "--cores 4" in helps(on, wish("a", "node1", cores=8.0))
    (size,) = [text for text in helps(on, wish("a", "node1", memory=20 << 30)) if text.startswith("--memory")]
    assert size == "--memory 8G"


@pytest.mark.parametrize(
    ("taken", "words"), [(30.0, ["--cores 2"]), (31.0, ["--cores 1"]), (31.5, ["--cores 0.5"]), (32.0, [])]
)
def test_as_many_cores_are_named_as_are_left(taken: float, words: list[str]) -> None:
    holder = replace(runs("t1", "node1"), spec=replace(runs("t1", "node1").spec, cores=taken))
    found = helps(two_nodes(holder), wish("a", "node1", cores=8.0))
    assert [text for text in found if text.startswith("--cores")] == words


@pytest.mark.parametrize(("left_mib", "words"), [(953.5, "--memory 999M"), (1430.5, "--memory 1G")])
def test_memory_that_is_left_is_named_in_a_round_number_that_fits(left_mib: float, words: str) -> None:
    plain = runs("t1", "node1")
    holder = replace(plain, spec=replace(plain.spec, memory=int((131072 - left_mib) * 2**20)))
    assert words in helps(two_nodes(holder), wish("a", "node1", memory=20 << 30))


def test_the_gpu_with_the_most_memory_is_named() -> None:
    assert helps(mixed(), wish("a", "1x:900G"), "node2") == ["--gpu-memory 42G"]


def test_each_option_that_would_do_is_named() -> None:
    on = cluster(seen(gpus=2, processes=(process("node1", 0),)))
    assert helps(on, wish("a", "node1::0")) == ["--gpus 1 (any GPU)", "--share"]
    on = reserve(cluster(seen(gpus=2)), reserved("node1::0", begin=2 * HOUR, end=3 * HOUR))
    assert helps(on, wish("a", "node1::0")) == [
        "--gpus 1 (any GPU)", "--time-limit 1h59m or less"
    ]  # fmt: skip


def test_any_gpus_in_place_of_exactly_these() -> None:
    on = cluster(seen(gpus=4), BUSY[:1])
    assert helps(on, wish("a", "node1::0,1"))[0] == "--gpus 2 (any GPUs)"


def test_one_gpu_is_named_where_two_are_too_many() -> None:
    assert helps(cluster(seen(gpus=2), BUSY[:1]), wish("a", "2x"))[0] == "--gpus 1"


@pytest.mark.parametrize(("count", "words"), [(MOST_AHEAD, ["--gpu-type 'NVIDIA L4'"]), (MOST_AHEAD + 1, [])])
def test_behind_too_many_nothing_is_said_to_help(count: int, words: list[str]) -> None:
    queue = [wish(f"w{number}", "1xH100") for number in range(count)]
    found = remedies(two_nodes(), "node1", wish("a", "1xT4"), Ahead(queue, {}, POLICIES))
    assert [remedy.text for remedy in found] == words


def test_who_shares_with_tasks_alone_is_not_told_to_share_with_strangers() -> None:
    on = cluster(seen(gpus=1, processes=(process("node1", 0),)))
    found = helps(on, wish("a", "node1::0", needs={"gpu_share": 2, "gpu_memory": 1 << 30}))
    assert found == ["when the foreign process on GPU 0 of node1 ends"]


def test_a_stranger_is_shared_with() -> None:
    on = cluster(seen(gpus=1, processes=(process("node1", 0),)))
    assert helps(on, wish("a", "node1::0")) == ["--share"]


def test_who_wants_to_be_alone_is_told_who_is_there() -> None:
    on = two_nodes(BUSY[1])
    wanted = wish("a", "node1", needs={"exclusive": True})
    assert helps(on, wanted) == ["without --exclusive", "when task t2 of me@here ends"]


def test_nothing_helps_against_silence() -> None:
    on = two_nodes(error="cut off")
    assert helps(on, wish("a", "1x")) == []


def test_a_time_limit_with_which_it_is_over_before_a_reservation_begins() -> None:
    on = reserve(two_nodes(gpus=1), reserved("node1::0", begin=2 * HOUR, end=3 * HOUR))
    assert helps(on, wish("a", "node1::0"))[-1] == "--time-limit 1h59m or less"
    assert helps(on, wish("a", "node1::0", 3 * HOUR))[-1] == "--time-limit 1h59m or less"


def test_a_grace_time_is_a_part_of_the_time() -> None:
    on = reserve(two_nodes(gpus=1), reserved("node1::0", begin=2 * HOUR, end=3 * HOUR))
    slow = wish("a", "node1::0")
    assert helps(on, replace(slow, spec=replace(slow.spec, stop_grace=1800.0)))[-1] == "--time-limit 1h29m or less"


def test_a_task_that_is_warned_before_its_end_needs_no_grace() -> None:
    on = reserve(two_nodes(gpus=1), reserved("node1::0", begin=2 * HOUR, end=3 * HOUR))
    warned = wish("a", "node1::0")
    terms = replace(warned.spec.terms, time_limit=5 * HOUR, signal_before=600.0)
    warned = replace(warned, spec=replace(warned.spec, terms=terms, stop_grace=1800.0))
    assert helps(on, warned)[-1] == "--time-limit 1h59m or less"
    early = replace(terms, signal_before=7140.0)
    assert helps(on, replace(warned, spec=replace(warned.spec, terms=early))) == [OVER]


def test_of_two_time_limits_that_would_do_the_longer_one_is_named() -> None:
    soon = reserved("node1::0", begin=HOUR, end=2 * HOUR)
    late = reserved("node1::1", begin=5 * HOUR, end=6 * HOUR)
    assert helps(reserve(two_nodes(gpus=2), soon, late), wish("a", "1x"))[-1] == "--time-limit 4h59m or less"


def test_a_minute_is_the_shortest_time_limit_that_is_named() -> None:
    on = reserve(two_nodes(gpus=1), reserved("node1::0", begin=120.0, end=3 * HOUR))
    assert helps(on, wish("a", "1x")) == ["--time-limit 1m or less"]


def test_no_time_limit_is_named_that_would_be_too_short_to_be_typed() -> None:
    on = reserve(two_nodes(gpus=1), reserved("node1::0", begin=100.0, end=3 * HOUR))
    assert helps(on, wish("a", "1x")) == [OVER]


PROMISED = runs("t1", "node1::0-6", 60, 3600)
"""It leaves GPU 7 of node1 free, and whoever wants all eight is promised them in 59 minutes."""


def test_what_is_free_and_promised_is_named_with_who_it_is_promised_to() -> None:
    on = two_nodes(PROMISED, gpus=8)
    first = wish("w1", "node1", needs={"gpus": 8})
    first = replace(first, spec=replace(first.spec, name="big"))
    assert in_the_way(on, wish("a", "node1", needs={"gpus": 1}), first) == [
        "GPU 7 is free but promised to task w1 of me@here (big), starting in 59m 0s"
    ]
    assert in_the_way(on, wish("a", "node1", 600, needs={"gpus": 1}), first) == []
    assert in_the_way(on, wish("a", "node2", needs={"gpus": 1}), first, node="node2") == []


def test_a_time_limit_with_which_it_is_over_before_a_promise() -> None:
    on = two_nodes(PROMISED, gpus=8)
    wanted = wish("a", "node1", needs={"gpus": 1})
    assert behind(on, wanted, wish("w1", "node1", needs={"gpus": 8}))[0] == "--time-limit 58m or less"


def test_any_time_limit_where_nobody_knows_when_the_promise_comes_true() -> None:
    on = two_nodes(runs("t1", "node1::0-6"), gpus=8)
    wanted, first = wish("a", "node1", needs={"gpus": 1}), wish("w1", "node1", needs={"gpus": 8})
    assert in_the_way(on, wanted, first) == ["GPU 7 is free but promised to task w1 of me@here"]
    assert behind(on, wanted, first)[0] == "--time-limit of any length"


def test_cores_and_a_whole_node_are_promised_too() -> None:
    holder = replace(runs("t1", "node1", 60, 3600), spec=replace(runs("t1", "node1").spec, cores=8.0))
    on = two_nodes(replace(holder, spec=replace(holder.spec, terms=PROMISED.spec.terms)))
    part = "part of the node is promised to task w1 of me@here, starting in 59m 0s"
    assert in_the_way(on, wish("a", "node1", cores=8.0), wish("w1", "node1", cores=30.0)) == [part]
    assert in_the_way(on, wish("a", "node1"), wish("w1", "node1", needs={"exclusive": True})) == [part]
    assert in_the_way(on, wish("a", "node1"), wish("w1", "node1", cores=30.0)) == []


def promised(one: Task, *before: tuple[Task, Promise | None], lengths: dict[str, float] | None = None) -> list[str]:
    """What is promised to those before it of a node with two GPUs, in words."""
    ahead = Ahead([each for each, _ in before], {each.id: promise for each, promise in before}, POLICIES, lengths or {})
    on = cluster(seen()).nodes["node1"]
    return [f"{each.text}: {line}" for each in ahead.obstacles(on, one, NOW) for line in each.details]


BOTH = (uuid("node1", 0), uuid("node1", 1))
BEFORE = "the free resources of node1 are promised to tasks ahead of it"


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (Promise("node1", NOW + 0.9, BOTH), "promised to task w of me@here, starting any moment"),
        (Promise("node1", NOW + 1, BOTH), "promised to task w of me@here, starting in 1s"),
        (Promise("node1", NOW + 60, BOTH, about=True), "promised to task w of me@here, starting in about 1m 0s"),
        (Promise("node1", None, BOTH), "promised to task w of me@here"),
    ],
)
def test_it_is_said_for_when_a_gpu_is_promised(promise: Promise, words: str) -> None:
    assert promised(wish("a"), (wish("w"), promise)) == [f"{BEFORE}: GPUs 0,1 are free but {words}"]


@pytest.mark.parametrize(("limit", "length", "count"), [(60, None, 0), (61, None, 1), (None, 60, 0), (None, None, 1)])
def test_who_is_over_when_a_promise_begins_may_go_first(limit: float | None, length: float | None, count: int) -> None:
    found = promised(
        wish("a", limit=limit),
        (wish("w"), Promise("node1", NOW + 60, BOTH)),
        lengths={"a": length} if length else None,
    )
    assert len(found) == count


def test_of_gpus_that_are_promised_only_those_are_told_that_it_would_get() -> None:
    before = (wish("w"), Promise("node1", None, BOTH))
    words = "promised to task w of me@here"
    assert promised(wish("a", "node1::1"), before) == [f"{BEFORE}: GPU 1 is free but {words}"]
    assert promised(wish("a", "1xH100"), before) == []
    assert promised(wish("a", "node1"), before) == []
    assert promised(wish("a"), (wish("w"), Promise("node2", None, BOTH)), (wish("v"), None)) == []


def test_one_who_comes_late_enough_does_not_hide_the_next() -> None:
    before = [(wish(name), Promise("node1", NOW + start, BOTH[:1])) for name, start in (("late", 500), ("soon", 50))]
    assert promised(wish("a", limit=100), *before) == [
        f"{BEFORE}: GPU 0 is free but promised to task soon of me@here, starting in 50s"
    ]


@pytest.mark.parametrize(
    ("one", "other", "compete"),
    [
        ({}, {}, False),
        ({"cores": 1.0}, {}, False),
        ({}, {"memory": 1 << 30}, False),
        ({"memory": 1 << 30}, {}, False),
        ({"cores": 1.0}, {"memory": 1 << 30}, False),
        ({"cores": 1.0}, {"cores": 2.0}, True),
        ({"memory": 1 << 30}, {"memory": 1 << 30}, True),
        ({"needs": {"exclusive": True}}, {}, True),
        ({}, {"needs": {"exclusive": True}}, True),
    ],
)
def test_without_gpus_two_are_in_each_others_way_where_they_want_the_same(
    one: dict[str, Any], other: dict[str, Any], compete: bool
) -> None:
    found = promised(wish("a", "node1", **one), (wish("w", "node1", **other), Promise("node1", None)))
    assert found == [f"{BEFORE}: part of the node is promised to task w of me@here"] * compete


def test_what_is_promised_of_gpus_and_of_the_rest_is_told_together() -> None:
    before = (wish("w"), Promise("node1", None, BOTH[:1])), (wish("v", "node1", cores=8.0), Promise("node1", None))
    assert promised(wish("a", cores=1.0), *before) == [
        f"{BEFORE}: GPU 0 is free but promised to task w of me@here",
        f"{BEFORE}: part of the node is promised to task v of me@here",
    ]


def test_whose_end_would_only_help_those_before_it_is_not_named() -> None:
    on = two_nodes(runs("t1", "node1::0", 60, 3600), runs("t2", "node1::1", 60, 7200), gpus=2)
    ends = behind(on, wish("a", "node1", needs={"gpus": 1}), wish("w1", "node1", needs={"gpus": 1}))
    assert ends == ["when task t1 of me@here, task t2 of me@here end, within 1h 59m"]


def test_whose_end_is_not_needed_is_not_named() -> None:
    on = cluster(seen(gpus=3), tuple(runs(f"t{n}", f"node1::{n}", 60, 3600 + n) for n in range(3)))
    ends = "when task t1 of me@here, task t2 of me@here end, within 59m 2s"
    assert helps(on, wish("a", "node1::1,2"))[-1] == ends


def test_who_wants_a_gpu_alone_waits_for_all_who_share_it() -> None:
    on = cluster(seen(gpus=1), (on_gpu("t1", **shares()), on_gpu("t2", **shares())))
    assert helps(on, wish("a", "node1::0")) == ["when task t1 of me@here, task t2 of me@here end"]


def test_the_end_of_a_task_gives_all_memory_of_its_gpu_back() -> None:
    on = cluster(seen(gpus=1), BUSY[:1])
    wanted = wish("a", "node1::0", needs={"gpu_memory": 23034 << 20})
    assert helps(on, wanted)[-1] == "when task t1 of me@here ends, within 59m 0s"


@given(clusters(), wishes())
def test_with_each_option_that_is_named_it_starts(on: Cluster, queue: list[Task]) -> None:
    for one in queue:
        for name, node in on.nodes.items():
            alone = replace(on, nodes={name: node})
            for remedy in remedies(on, name, one):
                if remedy.spec is not None:
                    found = look(alone, replace(one, spec=remedy.spec))
                    assert one.id in found.starts, (name, remedy.text)


@given(clusters(), wishes())
def test_wherever_it_may_start_one_day_something_is_named_that_helps(on: Cluster, queue: list[Task]) -> None:
    for one in queue:
        for name, node in on.nodes.items():
            found = obstacles(node, one.spec, one.owner, on.at)
            if found and node.state == "online" and not any(each.lasting for each in found):
                assert remedies(on, name, one), (name, one.spec, found)


@given(clusters(), wishes())
def test_after_each_end_that_is_named_it_starts(on: Cluster, queue: list[Task]) -> None:
    """And the plan expects it to start then, if those end in time."""
    for one in queue:
        for name, node in on.nodes.items():
            alone = replace(on, nodes={name: node})
            for remedy in remedies(on, name, one):
                if remedy.ends:
                    gone = {each.task for each in remedy.ends}
                    left = [each for each in there(alone).values() if each.id not in gone]
                    assert one.id in look(later(alone, left, NOW), one).starts, (name, remedy.text)
                if remedy.ends and all(each.ends_at is not None for each in remedy.ends):
                    last = max(each.ends_at or 0.0 for each in remedy.ends)
                    found = plan(alone, [one], NOW, POLICIES).promises.get(one.id)
                    assert found
                    assert found.start is not None
                    assert found.start <= max(last, NOW + 1), (name, remedy.text)


def test_a_gpu_that_a_stranger_has_with_a_task_is_not_free_when_that_has_ended() -> None:
    shared = runs("t1", "node1::0", 0, 12, share=True)
    on = cluster(seen(gpus=1, processes=(process("node1", 0),), containers=[boxed(shared)]), (shared,))
    both = "when task t1 of me@here ends and the foreign process on GPU 0 of node1 ends"
    assert helps(on, wish("a", "node1::0")) == [both]
    assert helps(on, wish("a", "node1::0", share=True)) == ["when task t1 of me@here ends, within 12s"]


def ill(on: Cluster, name: str = "node1") -> Cluster:
    """With an unhealthy GPU 0 of a node."""
    record = NodeRecord(gpus={uuid(name, 0): ILL})
    return replace(on, nodes={**on.nodes, name: gated(on.nodes[name], record)})


REPAIRED = "GPU 0 of node1 is healthy again, or resumed (agentless nodes resume node1 --gpu 0)"


def test_who_needs_an_unhealthy_gpu_is_told_the_command_that_gives_it_back() -> None:
    on = ill(cluster(seen(gpus=2), BUSY[1:]))
    assert helps(on, wish("a", "2x")) == [f"when task t2 of me@here ends and {REPAIRED}"]
    assert when(None, on, wish("a", "2x").spec) == f"starts only when {REPAIRED}"


def test_who_needs_a_drained_node_is_told_the_command_that_lets_it_in() -> None:
    on = cluster(seen(gpus=2), BUSY[:1])
    record = NodeRecord(drain=Drain("ann", NOW, "upgrade"))
    on = replace(on, nodes={"node1": gated(on.nodes["node1"], record)})
    resumed = "node1 is resumed (agentless nodes resume node1)"
    assert helps(on, wish("a", "2x")) == [f"when task t1 of me@here ends and {resumed}"]
    assert when(None, on, wish("a", "1x").spec) == f"starts only when {resumed}"


def test_of_a_drained_node_no_gpu_is_said_to_be_free() -> None:
    on = cluster(seen(gpus=2), BUSY[:1])
    on = replace(on, nodes={"node1": gated(on.nodes["node1"], NodeRecord(drain=Drain("ann", NOW, "upgrade")))})
    _, gpus = obstacles(on.nodes["node1"], wish("a", "2x").spec, "", NOW)
    assert gpus.text == "needs 2 GPUs; 1 of 2 on node1 would be free"


def test_nobody_has_to_see_to_a_node_that_one_does_not_need() -> None:
    on = ill(two_nodes(*BUSY))
    assert when(None, on, wish("a", "1x").spec) == when(None, on, wish("a", "9x").spec) == "start time not known yet"
    assert when(None, on, wish("a", "node1 4x").spec).startswith("starts only when GPU 0")


def begun(on: Cluster, queue: list[Task]) -> tuple[Cluster, list[Task]]:
    """The cluster when those who fit have started, and those who still wait."""
    found = look(on, *queue)
    running = [
        runs(each.task, each.task.replace("-", "::"), NOW - (each.since or NOW), each.limit)
        for node in on.nodes.values()
        for each in node.allocations
    ]
    running += [replace(one, status=Running(found.starts[one.id], CID, NOW)) for one in queue if one.id in found.starts]
    nodes = {name: node.config for name, node in on.nodes.items()}
    seen_now = {name: node.observation for name, node in on.nodes.items()}
    return survey(nodes, seen_now, running, NOW), [one for one in queue if one.id not in found.starts]


@given(clusters(), wishes())
def test_behind_others_it_starts_with_each_remedy_that_is_named(on: Cluster, queue: list[Task]) -> None:
    """They have their turn first, and what they were promised is kept."""
    on, queue = begun(on, queue)
    now = look(on, *queue)
    for number, one in enumerate(queue):
        ahead = Ahead(queue[:number], now.promises, POLICIES)
        for name, node in on.nodes.items():
            for remedy in remedies(on, name, one, ahead):
                free = without(without_tasks(node, remedy.ends), remedy.goes)
                there = replace(on, nodes={**on.nodes, name: free})
                tried = [*queue[:number], replace(one, spec=remedy.spec or one.spec)]
                assert one.id in plan(there, tried, NOW, POLICIES, now).starts, (name, remedy.text)
