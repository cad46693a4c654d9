"""Why a task does not start, in words; and what is said is true."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given

from agentless.cli.scheduling.explain import _print as show_explanation
from agentless.errors import AgentlessError, Refused, Unreachable
from agentless.model.nodes.cluster import Cluster, Observation
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.node import HostFacts, NodeConfig
from agentless.model.scheduling.needs import Needs, parse_target
from agentless.model.tasks.task import Task
from agentless.model.tasks.terms import Terms
from agentless.rules.explain.ahead import Ahead
from agentless.rules.explain.explanation import explanation, when
from agentless.rules.explain.obstacles import MAX_DETAILS, MAX_NODES, Obstacle, brief, never, refusal
from agentless.rules.explain.waits import goes_first
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.plan import Promise
from tests.pure.build import NOW, cluster, container, process, reading, seen, spec, task, uuid
from tests.pure.test_plan import POLICIES, clusters, look, mixed, runs, two_nodes, wish, wishes
from tests.pure.test_reserved import HOUR, reserved
from tests.pure.test_reserved import on as reserve
from tests.pure.test_table import Terminal


def why(target: str, on: Cluster, **wanted: Any) -> AgentlessError | None:
    return refusal(on, spec(needs=parse_target(target), **wanted))


def reason(target: str, observation: Observation, *tasks: Task, exclude: tuple[int, ...] = (), **wanted: Any) -> str:
    found = why(target, cluster(observation, tasks, exclude_gpus=exclude), **wanted)
    assert isinstance(found, Refused)
    return str(found)


@pytest.mark.parametrize("target", ["node1", "node1::0"])
def test_a_node_that_does_not_answer_is_no_refusal_but_exit_4(target: str) -> None:
    found = why(target, cluster(seen(error="no route to host")))
    assert isinstance(found, Unreachable)
    assert str(found) == "node1 cannot be reached: no route to host"


def test_half_a_core_too_many_is_refused_with_what_is_left() -> None:
    held = task("t7", spec=spec(cores=30.0))
    assert reason("node1", seen(), held, cores=2.5) == "node1: needs 2.5 cores; 2 of 32 are unallocated"


def test_no_core_left_is_said_as_none() -> None:
    held = task("t7", spec=spec(cores=32.0))
    assert reason("node1", seen(), held, cores=1.0) == "node1: needs 1 core; 0 of 32 are unallocated"


@pytest.mark.parametrize(("holders", "left"), [(1, "28 GiB"), (2, "0 B")])
def test_memory_that_is_set_aside_is_refused_with_what_is_left(holders: int, left: str) -> None:
    held = [task(f"t{number}", "node1", spec=spec(memory=100 << 30)) for number in range(holders)]
    words = f"node1: needs 64GiB of memory; {left} of 128 GiB is unallocated"
    assert reason("node1", seen(), *held, memory=64 << 30) == words


def test_more_memory_than_there_is_is_never_had() -> None:
    assert never(cluster(seen()), spec(memory=129 << 30))
    held = task("t7", spec=spec(memory=100 << 30))
    assert never(cluster(seen(), (held,)), spec(memory=64 << 30)) is None


FREE = "(no time limit, so no estimate)"


def whose(on: Cluster, *gpus: int, **wanted: Any) -> str:
    """What has to end before a promise of these GPUs of node1 comes true."""
    words = when(Promise("node1", None, tuple(uuid("node1", gpu) for gpu in gpus)), on, spec(**wanted))
    assert words.startswith("starts on node1 when ")
    assert words.endswith(f" {FREE}")
    return words.removeprefix("starts on node1 when ").removesuffix(f" {FREE}")


def test_a_promise_without_a_time_names_the_task_that_has_its_gpu_and_no_limit() -> None:
    limited = task("t1", "node1::0", spec=spec(terms=Terms(time_limit=60.0)))
    both = cluster(seen(), (limited, task("t2", "node1::1")))
    assert whose(both, 1) == whose(both, 0, 1) == "task t2 of me@here ends"


def test_a_promise_without_a_time_names_the_process_that_is_in_the_way_where_no_task_is() -> None:
    foreign = cluster(seen(processes=(process("node1", 0),)))
    assert whose(foreign, 0, 1) == "the foreign process on GPU 0 ends"
    several = cluster(seen(processes=(process("node1", 0), process("node1", 1))))
    assert whose(several, 0, 1) == "the foreign processes on GPUs 0,1 end"


def test_a_process_and_a_task_that_are_both_in_the_way_are_both_named() -> None:
    both = cluster(seen(processes=(process("node1", 0),)), (task("t2", "node1::1"),))
    assert whose(both, 0, 1) == "the foreign process on GPU 0 and task t2 of me@here end"
    assert whose(both, 0, 1, share=True) == "task t2 of me@here ends"


def test_who_holds_another_gpu_is_not_blamed_for_a_promise() -> None:
    assert whose(cluster(seen(), (task("t2", "node1::1"),)), 0) == "a task ahead of it in the queue ends"


def test_of_many_that_have_to_end_a_few_are_named() -> None:
    many = cluster(seen(gpus=5), tuple(task(f"t{gpu}", f"node1::{gpu}") for gpu in range(5)))
    named = " and ".join(f"task t{gpu} of me@here" for gpu in range(3))
    assert whose(many, *range(5)) == f"{named} and 2 more end"


def test_who_has_the_cores_or_the_whole_node_is_named() -> None:
    cores = [task(f"t{number}", spec=spec(cores=16.0)) for number in range(2)]
    assert whose(cluster(seen(), (cores[0],)), cores=20.0) == "task t0 of me@here ends"
    assert whose(cluster(seen(), tuple(cores)), cores=20.0) == "enough of the 2 tasks there end"
    assert (
        whose(cluster(seen(), (task("t2", "node1::1"),)), 0, needs=Needs(exclusive=True)) == "task t2 of me@here ends"
    )


def test_one_of_a_batch_waits_for_another_of_it() -> None:
    words = when(Promise("node1", None), cluster(seen()), spec(), held_back=True)
    assert words == f"starts on node1 when a task of its batch ends {FREE}"


def test_a_promise_on_a_node_that_is_gone_blames_nobody_there() -> None:
    words = when(Promise("gone", None), cluster(seen()), spec())
    assert words == f"starts on gone when a task ahead of it in the queue ends {FREE}"


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (None, "start time not known yet"),
        (Promise("node1", NOW + 0.5), "may start any moment on node1"),
        (Promise("node1", NOW + 1), "starts within 1s on node1"),
        (
            Promise("node1", NOW + 1, about=True),
            "starts in about 1s on node1 (an estimate: tasks ahead may take longer, or not give way)",
        ),
    ],
)
def test_when_it_starts_is_said_as_surely_as_it_is_known(promise: Promise | None, words: str) -> None:
    assert when(promise, cluster(seen()), spec()) == words


def test_an_explanation_tells_of_each_node_what_is_in_the_way_and_what_would_help() -> None:
    """On node1 a GPU is held; on node2 all are free, and promised to a task before it."""
    on = two_nodes(runs("t1", "node1::0"), gpus=2)
    first = wish("w1", "node2", needs={"gpus": 2})
    ahead = Ahead([first], {"w1": Promise("node2", NOW + 60, (uuid("node2", 0), uuid("node2", 1)))}, POLICIES)
    found = explanation(on, wish("a", "2x"), "it waits", Promise("node1", NOW), ahead)
    assert [(each.node, each.text) for each in found.obstacles] == [
        ("node1", "needs 2 GPUs; 1 of 2 on node1 is free"),
        ("node2", "the free resources of node2 are promised to tasks ahead of it"),
    ]
    assert found.expected_start == "2027-01-15T08:00:00.000Z"
    assert found.remedies["node1"][0] == "--gpus 1"
    assert explanation(on, wish("a", "2x"), "", None, Ahead()).expected_start is None


@pytest.mark.parametrize(("start", "helps"), [(600, ()), (7200, ("2h 0m",)), (None, ("2h 0m",))])
def test_what_ends_after_the_task_has_started_does_not_help(start: float | None, helps: tuple[str, ...]) -> None:
    """The GPU that is free in 10 minutes is enough then; now, the task ahead takes it, so both would have to end."""
    on = cluster(seen("node1", 2), (runs("t1", "node1::0", limit=600), runs("t2", "node1::1", limit=7200)))
    ahead = Ahead([wish("w1", "1x")], {"w1": Promise("node1", NOW + 600, (uuid("node1", 0),))}, POLICIES)
    promise = Promise("node1", start and NOW + start)
    found = explanation(on, wish("a", "1x"), "", promise, ahead).remedies.get("node1", ())
    assert [words.rpartition("within ")[2] for words in found if words.startswith("when ")] == [*helps]


def test_tasks_behind_that_start_first_are_told() -> None:
    queue = [wish(name, "1x") for name in ("a", "b", "c", "d", "e")]
    starts = {"a": 5.0, "b": 60.0, "c": 10.0, "d": None, "e": 20.0}
    promises: dict[str, Promise | None] = {name: Promise("node1", start) for name, start in starts.items()}
    told = [goes_first([each], queue, promises) for each in queue]
    assert told == ["", "2 tasks behind it start first, without delaying it", "", "", ""]
    assert goes_first([queue[1]], queue[:3], promises).startswith("1 task behind it starts first")
    assert goes_first([queue[0]], queue, {}) == ""


@pytest.mark.parametrize("behind", [True, False])
def test_help_is_sought_on_a_few_nodes_behind_others_and_else_on_all(behind: bool) -> None:
    names = [f"node{number}" for number in range(1, MAX_NODES + 3)]
    on = cluster({name: seen(name) for name in names}, tuple(runs(f"t{name}", f"{name}::0") for name in names))
    ahead = Ahead([wish("w1", "node1::0")] if behind else [], {}, POLICIES)
    found = explanation(on, wish("a", "2x"), "it waits", None, ahead)
    assert list(found.remedies) == (names[:MAX_NODES] if behind else names)


def test_a_held_gpu_is_refused_with_its_holder() -> None:
    assert reason("node1::0", seen(), task("t7")) == "node1::0: GPU 0 is allocated: held by task t7 of me@here"


def test_a_gpu_that_another_controller_holds_is_refused_with_its_holder() -> None:
    theirs = seen(containers=[container(task("t9", owner="ann@there"))])
    assert "GPU 0 is allocated: held by task t9 of ann@there" in reason("node1::0,1", theirs)


def test_a_gpu_with_a_foreign_process_is_refused_with_its_user() -> None:
    foreign = seen(processes=(process("node1", 1),))
    assert reason("node1::1", foreign) == (
        "node1::1: GPU 1 is foreign: used by bob's process 4711 (python train.py, 2 GiB); add --share to run beside it"
    )


def test_a_gpu_with_a_foreign_process_is_given_to_who_wants_to_share_it() -> None:
    foreign = cluster(seen(processes=(process("node1", 1),)))
    assert why("node1::1", foreign, share=True) is None


@pytest.mark.parametrize("changes", [{"processes": None}, {"containers": [container(task(target="node1::1"))]}])
def test_sharing_is_not_with_tasks_and_not_with_the_unknown(changes: Any) -> None:
    assert isinstance(why("node1::1", cluster(seen(**changes)), share=True), Refused)


def test_an_excluded_gpu_is_refused() -> None:
    assert reason("node1::0", seen(), exclude=(0,)) == "node1::0: GPU 0 is excluded: excluded by the inventory"
    assert never(cluster(seen(), exclude_gpus=(0,)), spec(needs=parse_target("node1::0")))


def test_a_gpu_with_unknown_memory_is_refused() -> None:
    unknown = seen(sample=GpuSample((reading("node1", 0, memory_used_mib=None),)))
    assert reason("node1::0", unknown) == "node1::0: GPU 0 is unknown: cannot read its memory"


def test_a_gpu_with_unknown_processes_is_refused() -> None:
    assert reason("node1::0", seen(processes=None)) == "node1::0: GPU 0 is unknown: cannot read its processes"


@pytest.mark.parametrize("target", ["node1", "node1::0", "node1::7"])
def test_a_degraded_node_is_refused_once_with_its_reason(target: str) -> None:
    hung = seen(sample=GpuSample((reading("node1", 0),), None, "nvidia-smi did not answer in 10 s"))
    assert reason(target, hung) == f"{target}: node1 is degraded: nvidia-smi did not answer in 10 s"


@pytest.mark.parametrize("gpus", [0, 1])
def test_what_a_driver_that_does_not_answer_has_not_listed_is_waited_for(gpus: int) -> None:
    listed = tuple(reading("node1", index) for index in range(gpus))
    hung = seen(sample=GpuSample(listed, None, "nvidia-smi did not answer in 10 s"))
    assert reason("2x", hung) == "2x: node1 is degraded: nvidia-smi did not answer in 10 s"
    assert never(cluster(hung), spec(needs=parse_target("2x"))) is None


@pytest.mark.parametrize(("gpus", "have"), [(0, " and no others"), (1, ", only GPU 0"), (4, ", only GPUs 0-3")])
def test_a_gpu_that_is_not_there_is_refused_with_what_is(gpus: int, have: str) -> None:
    assert reason("node1::7", seen(gpus=gpus)) == f"node1::7: node1 has no GPU 7{have}"


def test_a_numa_node_that_is_not_there_is_refused_with_what_is() -> None:
    assert reason("node1:5", seen()) == "node1:5: node1 has no NUMA node 5, only 0, 1"
    assert never(cluster(seen()), spec(needs=parse_target("node1:5")))
    assert reason("node1:0", seen(host=HostFacts(4, 1024))) == "node1:0: node1 has no NUMA node 0"
    assert reason("node1:0", seen(host=None)) == "node1:0: node1 has no NUMA node 0"


def test_more_cores_or_memory_than_the_node_has_is_refused() -> None:
    assert reason("node1", seen(), cores=64.0) == "node1: needs 64 cores; node1 has 32"
    assert "needs 1TiB of memory; node1 has 128 GiB" in reason("node1", seen(), memory=2**40)


@pytest.mark.parametrize("wanted", [{"cores": 32.0}, {"memory": 2**37}, {"cores": 0.1, "memory": 2**20}])
def test_as_many_cores_and_as_much_memory_as_the_node_has_is_fine(wanted: dict[str, Any]) -> None:
    assert why("node1", cluster(seen()), **wanted) is None


def test_limits_of_a_node_that_is_not_known_are_not_guessed() -> None:
    assert why("node1", cluster(seen(host=HostFacts())), cores=64.0, memory=2**40) is None


def test_all_reasons_are_given_at_once() -> None:
    sentence = reason("node1:5::0,1,2", seen(processes=(process("node1", 1),)), task("t7"), cores=64.0)
    for part in ("GPU 0 is allocated", "GPU 1 is foreign", "no GPU 2", "NUMA node 5", "64 cores"):
        assert part in sentence


def test_any_gpus_are_refused_with_what_is_in_the_way_on_each_node() -> None:
    busy = two_nodes(runs("t7", "node1::0"), runs("t8", "node2::0,1"), gpus=2)
    assert str(why("2x", busy)) == (
        "2x cannot start now:\n"
        "  node1: needs 2 GPUs; 1 of 2 on node1 is free "
        "(GPU 0 is allocated: held by task t7 of me@here)\n"
        "  node2: needs 2 GPUs; 0 of 2 on node2 are free "
        "(GPUs 0,1 are allocated: held by task t8 of me@here)"
    )


def test_what_comes_and_goes_is_not_told_beside_what_can_never_be_had() -> None:
    busy = two_nodes(runs("t7", "node1::0,1"), gpus=2)
    assert never(busy, spec(needs=parse_target("1x"), cores=999.0)) == (
        "no node can run 1x:\n  node1: needs 999 cores; node1 has 32\n  node2: needs 999 cores; node2 has 32"
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ("no route to host", "node1 cannot be reached: no route to host"),
        ("node1 (gpu1.lab port 22) cannot be reached: refused", "node1 (gpu1.lab port 22) cannot be reached: refused"),
    ],
)
def test_a_node_that_does_not_answer_is_named_once(error: str, sentence: str) -> None:
    found = why("1x", cluster({name: seen(error=error.replace("node1", name)) for name in ("node1", "node2")}))
    words = f"1x: no node can be reached:\n  {sentence}\n  {sentence.replace('node1', 'node2')}"
    assert (type(found), str(found)) == (Unreachable, words)


def test_where_one_node_does_not_answer_and_another_is_busy_it_is_a_refusal() -> None:
    found = why("1x", cluster({"node1": seen(error="no route to host"), "node2": seen("node2", gpus=0)}))
    assert isinstance(found, Refused)


@pytest.mark.parametrize(("count", "more"), [(MAX_NODES, []), (MAX_NODES + 2, ["  and 2 more nodes"])])
def test_of_very_many_nodes_the_first_are_told_and_the_others_counted(count: int, more: list[str]) -> None:
    nodes = cluster({f"n{number}": seen(f"n{number}", gpus=0) for number in range(count)})
    _, *lines = str(why("1x", nodes)).split("\n")
    assert [line.split()[0] for line in lines[:MAX_NODES]] == [f"n{number}:" for number in range(MAX_NODES)]
    assert lines[MAX_NODES:] == more


@pytest.mark.parametrize(("count", "last"), [(MAX_DETAILS, "three"), (MAX_DETAILS + 2, "three; and 2 more")])
def test_of_very_many_details_the_first_are_told_and_the_others_counted(count: int, last: str) -> None:
    details = ("zero", "one", "two", "three", "four", "five")[:count]
    assert str(Obstacle("no", details=details)) == f"no (zero; one; two; {last})"


def test_the_nearest_reason_is_that_of_the_node_where_the_least_is_in_the_way() -> None:
    busy = {"node1": seen(gpus=1, error="no route"), "node2": seen("node2", gpus=1), "node3": seen("node3", gpus=0)}
    on = cluster(busy, (runs("t7", "node2::0", cores=32.0), runs("t8", "node1::0")))
    wish = spec(needs=parse_target("1x"), cores=1.0)
    assert brief(on, wish) == "node1 cannot be reached: no route; needs 1 GPU; 0 of 1 on node1 are free"
    assert brief(cluster(busy), wish) == ""


def test_the_nearest_reason_where_no_node_will_ever_do_is_just_that() -> None:
    assert brief(cluster(seen(gpus=0)), spec(needs=parse_target("1x"))) == "no node can run 1x"


def test_the_nearest_reason_names_every_node_that_has_too_few_gpus_the_best_first() -> None:
    on = cluster({name: seen(name) for name in ("node1", "node2")}, (runs("t1", "node1::0,1"), runs("t2", "node2::0")))
    words = "needs 2 GPUs; 1 of 2 on node2 and 0 of 2 on node1 are free"
    assert brief(on, spec(needs=parse_target("2x"))) == words


def test_of_many_nodes_the_nearest_reason_names_a_few_and_counts_the_others() -> None:
    names = [f"node{number}" for number in range(1, 7)]
    on = cluster({name: seen(name) for name in names}, tuple(runs(f"t{name}", f"{name}::0") for name in names))
    most = ", ".join(f"1 of 2 on {name}" for name in names[:3])
    words = f"needs 2 GPUs; {most} and not enough on 3 other nodes are free"
    assert brief(on, spec(needs=parse_target("2x"))) == words


def test_a_gpu_that_is_not_there_is_told_with_those_that_are() -> None:
    gap = seen(sample=GpuSample((reading("node1", 0), reading("node1", 2)), ()))
    assert "node1 has no GPU 1, only GPUs 0,2" in reason("node1::1", gap)


def test_sharing_with_a_process_is_not_offered_to_who_shares_with_tasks() -> None:
    foreign = cluster(seen(processes=(process("node1", 1),)))
    needs = replace(parse_target("node1::1"), gpu_memory=1 << 30, gpu_share=2)
    assert "--share" not in str(refusal(foreign, spec(needs=needs)))


@pytest.mark.parametrize("target", ["1x", "node1::0"])
def test_exactly_as_much_gpu_memory_as_there_is_is_fine(target: str) -> None:
    exact = seen(sample=GpuSample((reading("node1", 0, memory_total_mib=10, memory_used_mib=0),), ()))
    needs = replace(parse_target(target), gpu_memory=10 << 20)
    assert refusal(cluster(exact), spec(needs=needs)) is None


def test_memory_that_is_not_free_is_told_with_what_is() -> None:
    crowded = seen(sample=GpuSample((reading("node1", 0, memory_used_mib=12000),)))
    assert "GPU 0 has 10.8 GiB of free memory, not 16G" in str(why("1x:16G", cluster(crowded)))


@pytest.mark.parametrize(
    ("names", "words"), [(["t7"], "task t7 of me@here runs"), (["t7", "t8"], "task t7 of me@here and 1 more run")]
)
def test_who_wants_a_node_alone_is_told_who_is_there(names: list[str], words: str) -> None:
    on = cluster(seen(), tuple(runs(name, f"node1::{index}") for index, name in enumerate(names)))
    found = refusal(on, wish("a", "node1", needs={"exclusive": True}).spec)
    assert str(found) == f"node1 exclusive: needs node1 to itself; {words} there"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("1x:90G", "GPUs 0,1 have 79.6 GiB of memory, not 90G"),
        ("1xT4", "GPUs 0,1 are NVIDIA H100 PCIe"),
        ("4x", "needs 4 GPUs; only 3 on node2 match"),
        ("node1::7", "node1 has no GPU 7, only GPU"),
    ],
)
def test_what_can_never_be_had_is_told_with_what_there_is(target: str, words: str) -> None:
    found = never(mixed(runs("t", "node2::0")), spec(needs=parse_target(target)))
    assert found is not None
    assert words in found


def test_what_can_never_be_had_is_repeated_with_what_it_was() -> None:
    found = never(cluster(seen()), spec(cores=64.0, memory=2**41, needs=Needs()))
    assert found is not None
    assert found.startswith("no node can run 64 cores and 2TiB of memory on any node: needs 64 cores")


def test_a_node_that_is_left_out_is_said_to_be() -> None:
    found = never(cluster(seen()), spec(needs=Needs(gpus=1, exclude=("node1",))))
    assert found == "no node can run 1x not on node1: node1 is excluded (--exclude)"


def test_a_gpu_that_is_held_and_reserved_is_said_to_be_both() -> None:
    held = reserve(cluster(seen(), (task("t7"),)), reserved("node1::0", begin=HOUR, end=2 * HOUR))
    sentence = str(refusal(held, spec(needs=parse_target("node1::0"))))
    assert "GPU 0 is allocated: held by task t7 of me@here; reserved for ann from " in sentence
    assert sentence.endswith("to start before it, set a --time-limit that ends in time")


@pytest.mark.parametrize("target", ["3x", "1xA100", "node1::1"])
def test_what_is_only_busy_is_not_never(target: str) -> None:
    assert never(mixed(runs("t", "node2::0,1,2"), runs("u", "node1::1")), spec(needs=parse_target(target))) is None


def test_a_node_that_nobody_has_seen_yet_may_have_anything() -> None:
    unknown = cluster(Observation(error="no route to host"))
    assert never(unknown, spec(needs=parse_target("8xB200:180G"))) is None


@given(clusters(), wishes())
def test_there_is_a_reason_exactly_when_it_does_not_start(on: Cluster, queue: list[Task]) -> None:
    for one in queue:
        assert (refusal(on, one.spec) is None) == (one.id in look(on, one).starts)


@given(clusters(), wishes())
def test_who_is_alone_in_the_queue_waits_for_nobody_before_it(on: Cluster, queue: list[Task]) -> None:
    for one in queue:
        assert "before it" not in when(look(on, one).promises.get(one.id), on, one.spec)


@given(clusters(), wishes())
def test_never_is_true(on: Cluster, queue: list[Task]) -> None:
    """With nobody there, everything starts of which it was not said that it never will."""
    nodes = {name: node.config for name, node in on.nodes.items()}
    idle = {
        name: seen(name, sample=GpuSample(node.observation.sample.gpus), host=node.observation.host)
        for name, node in on.nodes.items()
        if node.observation.sample
    }
    for one in queue:
        assert (never(on, one.spec) is None) == (one.id in look(survey(nodes, idle, (), NOW), one).starts)


def test_of_a_node_that_was_asked_for_by_name_the_reason_is_told_and_not_that_others_were_not_asked_for() -> None:
    on = cluster({"node1": seen(), "node2": seen("node2")}, docker=("podman",))
    wish = spec(needs=parse_target("node2::0"), image_id="sha256:" + "0" * 64)
    assert str(never(on, wish)) == f"no node can run {wish.needs}: node2 uses podman, which does not support envs"


# ---------------------------------------------------------------------- on a terminal


def test_lines_fit_the_terminal_and_nodes_that_are_alike_share_theirs() -> None:
    names = ("node1", "node2", "node3")
    there = survey({name: NodeConfig(name, name) for name in names}, {name: seen(name) for name in names}, (), NOW)
    asked = task("", "2x1g.10gb", "pending", spec=spec(needs=parse_target("2x1g.10gb")))
    found = explanation(there, asked, "no node can run it " * 5, None, Ahead())
    terminal = Terminal()
    with mock.patch.dict(os.environ, {"COLUMNS": "40"}), contextlib.redirect_stdout(terminal):
        show_explanation(asdict(found))
    assert terminal.getvalue().splitlines() == [
        "no node can run it no node can run it",
        "  no node can run it no node can run it",
        "  no node can run it",
        "  node1, node2, node3: needs 2 slices;",
        "    no slices of GPUs there",
        "    would help: --gpu-type 'NVIDIA L4'",
    ]
