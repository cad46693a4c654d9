"""What would make a task fit: what is said is so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from agentless.model.cluster import Cluster
from agentless.model.task import Task
from agentless.rules.plan import plan
from agentless.rules.remedy import remedies
from tests.pure.build import NOW, cluster, process, seen
from tests.pure.test_plan import POLICIES, boxed, clusters, later, look, runs, there, two_nodes, wish, wishes


def told(on: Cluster, one: Task, node: str = "node1") -> list[str]:
    return [remedy.text for remedy in remedies(on.nodes[node], one.spec, one.owner, NOW)]


BUSY = (runs("t1", "node1::0", 60, 3600), runs("t2", "node1::1", 60))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (wish("a", "3x"), ["--gpus 2", "once task t1 of me@here has ended, in 59m 0s at the latest"]),
        (wish("a", "4x"), ["--gpus 2", "once task t1 of me@here, task t2 of me@here have ended"]),
        (
            wish("a", "node1::0"),
            ["--gpus 1 in place of exactly these", "once task t1 of me@here has ended, in 59m 0s at the latest"],
        ),
        (wish("a", "2x"), []),
    ],
)
def test_fewer_gpus_or_the_end_of_others(wanted: Task, words: list[str]) -> None:
    assert told(two_nodes(*BUSY), wanted) == words


def test_what_a_gpu_has() -> None:
    on = two_nodes()
    assert told(on, wish("a", "1x:900G")) == ["--gpu-memory 23033MiB"]
    assert told(on, wish("a", "1xH100")) == ["--gpu-type 'NVIDIA L4'"]


def test_cores_and_memory_that_are_left() -> None:
    holder = replace(runs("t1", "node1"), spec=replace(runs("t1", "node1").spec, cores=28.0, memory=120 << 30))
    on = two_nodes(holder)
    assert "--cores 4" in told(on, wish("a", "node1", cores=8.0))
    (size,) = [text for text in told(on, wish("a", "node1", memory=20 << 30)) if text.startswith("--memory")]
    assert size.endswith("MiB")


def test_a_stranger_is_shared_with() -> None:
    on = cluster(seen(gpus=1, processes=(process("node1", 0),)))
    assert told(on, wish("a", "node1::0")) == ["--share"]


def test_who_wants_to_be_alone_is_told_who_is_there() -> None:
    on = two_nodes(BUSY[1])
    wanted = wish("a", "node1", needs={"exclusive": True})
    assert told(on, wanted) == ["without --exclusive", "once task t2 of me@here has ended"]


def test_nothing_helps_against_silence() -> None:
    on = two_nodes(error="cut off")
    assert told(on, wish("a", "1x")) == []


@given(clusters(), wishes())
def test_with_each_option_that_is_named_it_starts(on: Cluster, queue: list[Task]) -> None:
    for one in queue:
        for name, node in on.nodes.items():
            alone = replace(on, nodes={name: node})
            for remedy in remedies(node, one.spec, one.owner, on.at):
                if remedy.spec is not None:
                    found = look(alone, replace(one, spec=remedy.spec))
                    assert one.id in found.starts, (name, remedy.text)


@given(clusters(), wishes())
def test_after_each_end_that_is_named_it_starts(on: Cluster, queue: list[Task]) -> None:
    """And the plan expects it to start then, if those end in time."""
    for one in queue:
        for name, node in on.nodes.items():
            alone = replace(on, nodes={name: node})
            for remedy in remedies(node, one.spec, one.owner, on.at):
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
    assert told(on, wish("a", "node1::0")) == []
    assert told(on, wish("a", "node1::0", share=True)) == ["once task t1 of me@here has ended, in 12s at the latest"]
