"""Tasks that share a GPU: all of them are willing, no more than the least willing allows, and their memory fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.errors import Refused, UsageError
from agentless.gpus.nvidia.probe import in_its_mode
from agentless.model.containers.claim import GPU_MEMORY, GPU_SHARE, claim_of, labels_of, task_of
from agentless.model.containers.container import Container
from agentless.model.nodes.cluster import Cluster, Gpu
from agentless.model.nodes.gpu import GpuSample
from agentless.model.scheduling.needs import Needs, parse_target
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.model.tasks.spec import check_spec
from agentless.model.tasks.task import Assigning, Placement, Running, Task
from agentless.rules.explain.obstacles import refusal
from agentless.rules.scheduling.plan import Plan, Promise, plan
from agentless.rules.views.publish import gpu_view
from tests.pure.build import CID, NOW, cluster, container, process, reading, seen, spec, task, uuid
from tests.pure.test_plan import POLICIES, look, places, promises, wish

GIB = 1 << 30
OTHER = "ba5eba11" * 8


def shares(limit: int = 2, floor: int = 4, **more: Any) -> dict[str, Any]:
    """What one needs who shares; `floor` in GiB. An L4 here has 22.5."""
    return {"gpu_share": limit, "gpu_memory": floor * GIB, **more}


@pytest.mark.parametrize(
    ("terms", "rough"),
    [
        (Sharing(2, 5 * GIB), Sharing(2, 4 * GIB)),
        (Sharing(2, 4 * GIB), Sharing(2, 4 * GIB)),
        (Sharing(3, 1), Sharing(3, 1)),
        (Sharing(3, 0, strangers=True), Sharing(3, 0)),
        (Sharing(1, 0, strangers=True), Sharing(1, 0, strangers=True)),
    ],
)
def test_rough_terms_fit_wherever_the_terms_do(terms: Sharing, rough: Sharing) -> None:
    assert terms.rough == rough


@pytest.mark.parametrize(("total", "fits"), [(8 * GIB, True), (8 * GIB - 1, False)])
def test_all_that_is_there_may_be_asked_for_and_no_more(total: int, fits: bool) -> None:
    assert Sharing(2, 5 * GIB).fits([Sharing(2, 3 * GIB)], total) is fits


def on_gpu(name: str, target: str = "node1::0", began: float = 0.0, limit: float | None = None, **needs: Any) -> Task:
    """A task that has run there for `began` seconds."""
    meant = parse_target(target)
    at = Placement("node1", meant.indices, tuple(uuid("node1", index) for index in meant.indices), gpu_total=22 * GIB)
    made = wish(name, target, limit, needs=needs)
    return replace(made, status=Running(at, CID, NOW - began))


def boxed(of: Task, controller: str = "c1", **changes: Any) -> Container:
    """The container that it runs in."""
    assert of.placement
    return container(task(of.id), labels=labels_of(of, of.placement, controller), **changes)


def one_gpu(*tasks: Task, **changes: Any) -> Cluster:
    return cluster(seen(gpus=1, **changes), tasks)


def gpu_of(on: Cluster) -> Gpu:
    return on.nodes["node1"].gpus[0]


# ---------------------------------------------------------------------- what may be asked for


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(gpus=1, gpu_share=3), "--gpu-share 3 needs --gpu-memory"),
        (Needs(gpu_share=3), "--gpu-share 3: no GPUs requested"),
        (Needs(gpus=1, gpu_memory=GIB, gpu_share=0), "--gpu-share 0: use a number of tasks per GPU from 1"),
        (Needs(gpus=1, gpu_memory=GIB, gpu_share=101), "from 1 to 100"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(needs: Needs, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(spec(needs=needs))
    assert words in str(caught.value)


def test_a_gpu_is_shared_with_tasks_or_with_strangers_and_not_with_both() -> None:
    with pytest.raises(UsageError, match="cannot be combined; use one"):
        check_spec(spec(needs=Needs(gpus=1, **shares()), share=True))


def test_who_does_not_say_so_does_not_share() -> None:
    assert Needs(gpus=1, gpu_memory=GIB).sharing == ALONE
    assert Needs(gpus=1, **shares(3)).sharing == Sharing(3, 4 * GIB)


# ---------------------------------------------------------------------- on the container


def test_the_labels_say_who_shares_and_bring_it_back() -> None:
    willing = on_gpu("t1", **shares(3, 8))
    labels = boxed(willing).labels
    assert (labels[GPU_SHARE], labels[GPU_MEMORY]) == ("3", str(8 * GIB))
    found = boxed(willing)
    claim, back = claim_of(found), task_of(found, "node1", NOW)
    assert claim is not None
    assert back is not None
    assert claim.sharing == back.spec.needs.sharing == Sharing(3, 8 * GIB)


@pytest.mark.parametrize("limit", ["", "0", "-1", "1e3", "03", "two", "9999", " 2", "2\n", "٣"])
@pytest.mark.parametrize("floor", [str(GIB), "", "0", "7.5", "1" * 16])
def test_labels_that_are_not_understood_share_with_none(limit: str, floor: str) -> None:
    """Those of a version that knows nothing of sharing are not there at all."""
    found = claim_of(container(task(), labels={"agentless.task": "t", GPU_SHARE: limit, GPU_MEMORY: floor}))
    assert found is not None
    assert found.sharing == ALONE


# ---------------------------------------------------------------------- now


def starts(on: Cluster, *queue: Task) -> dict[str, str]:
    return places(look(on, *queue))


def test_two_who_are_willing_have_one_gpu() -> None:
    found = look(one_gpu(on_gpu("t1", **shares())), wish("a", needs=shares()))
    assert places(found) == {"a": "node1::0"}
    assert found.starts["a"].gpu_total == 23034 << 20


def test_all_of_one_look_share_too() -> None:
    assert list(starts(one_gpu(), *[wish(f"a{n}", needs=shares(3)) for n in range(5)])) == ["a0", "a1", "a2"]


@pytest.mark.parametrize(
    ("there", "new"),
    [({}, shares()), (shares(), {}), ({"gpu_memory": GIB}, shares()), (shares(), {"gpu_memory": GIB})],
)
def test_nobody_shares_with_one_who_does_not(there: dict[str, Any], new: dict[str, Any]) -> None:
    assert starts(one_gpu(on_gpu("t1", **there)), wish("a", needs=new)) == {}


def test_the_least_willing_of_all_decides_how_many_there_are() -> None:
    two = on_gpu("t1", **shares(2)), on_gpu("t2", **shares(4))
    assert starts(one_gpu(*two), wish("a", needs=shares(4))) == {}
    both = on_gpu("t1", **shares(4)), on_gpu("t2", **shares(4))
    assert starts(one_gpu(*both), wish("a", needs=shares(2))) == {}
    assert list(starts(one_gpu(*both), wish("a", needs=shares(3)))) == ["a"]


def test_the_floors_of_all_fit_into_the_memory() -> None:
    """It has 22.5 GiB."""
    assert starts(one_gpu(on_gpu("t1", **shares(4, 12))), wish("a", needs=shares(4, 11))) == {}
    assert list(starts(one_gpu(on_gpu("t1", **shares(4, 12))), wish("a", needs=shares(4, 10)))) == ["a"]


def test_the_memory_has_to_be_free_now_whatever_the_others_asked_for() -> None:
    full = GpuSample((reading("node1", 0, memory_used_mib=20000),))
    assert starts(one_gpu(on_gpu("t1", **shares()), sample=full), wish("a", needs=shares())) == {}


def test_who_shares_goes_where_others_share_and_leaves_whole_gpus() -> None:
    assert starts(cluster(seen(gpus=4), (on_gpu("t1", "node1::2", **shares()),)), wish("a", needs=shares())) == {
        "a": "node1::2"
    }


def test_of_two_nodes_too() -> None:
    """With the policy that packs."""
    here = on_gpu("t1", **shares())
    busy = cluster({name: seen(name, 2) for name in ("node0", "node1")}, (here,))
    assert starts(busy, wish("a", needs=shares())) == {"a": "node1::0"}


def test_several_gpus_may_be_shared_each_with_somebody_else() -> None:
    pair = cluster(seen(gpus=2), (on_gpu("t1", "node1::0", **shares()), on_gpu("t2", "node1::1", **shares())))
    assert starts(pair, wish("a", "2x", needs=shares()), wish("b", needs=shares())) == {"a": "node1::0,1"}


@pytest.mark.parametrize(
    "changes",
    [
        {"sample": GpuSample((reading("node1", 0),), None)},
        {"sample": GpuSample((reading("node1", 0, memory_used_mib=None),))},
        {"sample": GpuSample((reading("node1", 0, memory_total_mib=None),))},
        {"sample": GpuSample((in_its_mode(reading("node1", 0, mig=True)),))},
        {"sample": GpuSample((in_its_mode(reading("node1", 0, compute_mode="Prohibited")),))},
        {"sample": GpuSample((in_its_mode(reading("node1", 0, compute_mode="Exclusive_Process")),))},
        {"processes": (process("node1", 0),)},
    ],
)
def test_nobody_joins_where_it_is_not_known_who_else_is_there(changes: dict[str, Any]) -> None:
    """A GPU of a task that is willing, and of which a reading is missing, or which a stranger may use."""
    on = one_gpu(on_gpu("t1", **shares()), **changes)
    assert starts(on, wish("a", needs=shares())) == {}
    assert isinstance(refusal(on, spec(needs=Needs(gpus=1, **shares()))), Refused)


def test_a_gpu_that_nobody_may_join_is_passed_over_for_one_that_is_free() -> None:
    alone = GpuSample((in_its_mode(reading("node1", 0, compute_mode="Exclusive_Process")), reading("node1", 1)))
    assert starts(cluster(seen(sample=alone), (on_gpu("t1", **shares()),)), wish("a", needs=shares())) == {
        "a": "node1::1"
    }


# ---------------------------------------------------------------------- later


def test_a_share_is_promised_for_the_end_of_the_first_of_those_who_have_one() -> None:
    busy = one_gpu(on_gpu("t1", limit=100, **shares()), on_gpu("t2", limit=30, **shares()))
    assert promises(look(busy, wish("a", needs=shares()))) == {"a": ("node1", 30)}


def test_who_wants_it_alone_is_promised_it_for_the_end_of_the_last() -> None:
    busy = one_gpu(on_gpu("t1", limit=100, **shares()), on_gpu("t2", limit=30, **shares()))
    assert promises(look(busy, wish("a"))) == {"a": ("node1", 100)}


def test_shares_are_counted_at_each_moment_of_the_future() -> None:
    """At 30 one of the two is over, at 100 the other: three wait, each for 60."""
    busy = one_gpu(on_gpu("t1", limit=100, **shares()), on_gpu("t2", limit=30, **shares()))
    found = look(busy, *[wish(f"a{n}", limit=60, needs=shares()) for n in range(3)])
    assert promises(found) == {"a0": ("node1", 30), "a1": ("node1", 90), "a2": ("node1", 100)}


def test_a_share_does_not_go_in_front_of_a_promise_to_one_who_wants_it_alone() -> None:
    busy = one_gpu(on_gpu("t1", limit=100, **shares()))
    found = look(
        busy, wish("alone", limit=10), wish("long", limit=101, needs=shares()), wish("short", limit=99, needs=shares())
    )
    assert (list(found.starts), promises(found)["alone"]) == (["short"], ("node1", 100))


def test_what_was_promised_to_one_who_shares_is_kept() -> None:
    busy = one_gpu(on_gpu("t1", limit=100, **shares()), on_gpu("t2", limit=30, **shares()))
    queue = [wish(f"a{n}", limit=60, needs=shares()) for n in range(3)]
    first = look(busy, *queue)
    assert plan(busy, queue, NOW, POLICIES, first) == first


def test_whoever_is_next_gets_the_share_that_was_promised_to_one_behind() -> None:
    busy = one_gpu(on_gpu("t1", limit=50, **shares()))
    queue = [wish("a", limit=100, needs=shares()), wish("b", limit=10, needs=shares())]
    gpu = (uuid("node1", 0),)
    before = Plan(promises={"a": Promise("node1", NOW + 50, gpu), "b": Promise("node1", NOW + 5, gpu)})
    assert list(plan(busy, queue, NOW, POLICIES, before).starts) == ["a"]


# ---------------------------------------------------------------------- what is said of it


def test_a_shared_gpu_is_shown_with_all_who_have_it() -> None:
    found = gpu_of(one_gpu(on_gpu("t1", **shares(3)), on_gpu("t2", **shares(4))))
    assert found.reason == "2 of 3 shares held by task t1 of me@here, task t2 of me@here"
    view = gpu_view("node1", found)
    assert (view.state, view.task, view.tasks, view.shares) == ("allocated", "t1", ("t1", "t2"), 3)


def test_a_gpu_that_one_has_alone_is_shown_as_ever() -> None:
    view = gpu_view("node1", gpu_of(one_gpu(on_gpu("t1"))))
    assert (view.reason, view.task, view.tasks, view.shares) == ("held by task t1 of me@here", "t1", ("t1",), 1)


@pytest.mark.parametrize(
    ("there", "new", "words"),
    [
        (({},), shares(), "GPU 0 is allocated: held by task t0 of me@here"),
        ((shares(),), {}, "GPU 0 is allocated: 1 of 2 shares held by task t0 of me@here"),
        ((shares(2), shares(2)), shares(2), "2 of 2 shares held by task t0 of me@here, task t1 of me@here"),
        ((shares(4), shares(4)), shares(2), "task t1 of me@here; the task allows 2 tasks per GPU"),
        ((shares(4, 20),), shares(4, 4), "2.5 GiB of its memory is unallocated, not 4GiB"),
    ],
)
def test_why_there_is_no_share_is_told(there: tuple[dict[str, Any], ...], new: dict[str, Any], words: str) -> None:
    on = one_gpu(*[on_gpu(f"t{n}", **needs) for n, needs in enumerate(there)])
    assert str(refusal(on, spec(needs=Needs(gpus=1, **new)))).endswith(f"{words})")


@pytest.mark.parametrize(
    ("there", "new"),
    [
        ((), shares()),
        ((shares(2),), shares(2)),
        ((shares(3), shares(3)), shares(3)),
        ((shares(2, 22),), {"gpu_share": 2, "gpu_memory": (23034 << 20) - 22 * GIB}),
    ],
)
def test_no_reason_is_told_where_there_is_a_share(there: tuple[dict[str, Any], ...], new: dict[str, Any]) -> None:
    on = one_gpu(*[on_gpu(f"t{n}", **needs) for n, needs in enumerate(there)])
    assert refusal(on, spec(needs=Needs(gpus=1, **new))) is None


def test_why_nobody_may_join_is_told() -> None:
    sample = GpuSample((in_its_mode(reading("node1", 0, compute_mode="Exclusive_Process")),))
    found = refusal(one_gpu(on_gpu("t1", **shares()), sample=sample), spec(needs=Needs(gpus=1, **shares())))
    assert "its compute mode allows only one process" in str(found)


def test_processes_of_all_who_share_are_no_intruders() -> None:
    tasks = [on_gpu("t1", **shares()), on_gpu("t2", **shares())]
    at = [boxed(tasks[0]), boxed(tasks[1], id=OTHER)]
    uses = (process("node1", 0, 1, container=CID), process("node1", 0, 2, container=OTHER))
    assert gpu_of(one_gpu(*tasks, containers=at, processes=uses)).intruders == ()
    stranger = process("node1", 0, 3)
    assert gpu_of(one_gpu(*tasks, containers=at, processes=(*uses, stranger))).intruders == (stranger,)


def test_a_task_whose_container_is_not_known_yet_is_no_intruder_on_its_shared_gpu() -> None:
    """It has just been launched: its process is seen before the list of containers is."""
    old, new = on_gpu("t1", **shares()), on_gpu("t2", **shares())
    assert new.placement
    new = replace(new, status=Assigning(new.placement, NOW))
    uses = (process("node1", 0, 1, container=CID), process("node1", 0, 2, container=OTHER))
    assert gpu_of(one_gpu(old, new, containers=[boxed(old)], processes=uses)).intruders == ()
