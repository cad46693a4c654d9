"""AMD's cards and their partitions in the cluster: who gets which, and what keeps all from them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentless.gpus.amd.vendor import Amd
from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.nodes.node import ForeignPolicy
from agentless.model.nodes.node_record import GpuRecord, NodeRecord, Trouble
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.task import Placement, Running, Task
from agentless.rules.nodes.desktop import program
from agentless.rules.nodes.gpu_exclusion import gated
from agentless.rules.scheduling.plan import plan
from agentless.rules.scheduling.policies import pack
from tests.lab.amd import use, write
from tests.pure.build import CID, NOW, cluster, seen, spec, task
from tests.pure.test_amd import ONE, PLAIN, SPLIT, asked, sample, tool


def on(found: GpuSample, *tasks: Task) -> Cluster:
    return cluster(seen(sample=found), tasks)


def states(of: Cluster) -> dict[Any, str]:
    return {gpu.reading.number: gpu.state for gpu in of.nodes["node1"].gpus}


def reason(of: Cluster, number: Any) -> str:
    return next(gpu.reason for gpu in of.nodes["node1"].gpus if gpu.reading.number == number)


def starts(of: Cluster, *targets: str) -> list[str]:
    """Where tasks with these targets start in one pass."""
    wishes = [task(f"t{at}", each, "pending", spec=spec(needs=parse_target(each))) for at, each in enumerate(targets)]
    return sorted(map(str, plan(of, wishes, NOW, {None: pack.cost}).starts.values()))


def holds(found: GpuSample, number: Any) -> Task:
    """A task of ann that runs on this GPU."""
    reading = next(gpu for gpu in found.gpus if gpu.number == number)
    parents = (reading.parent,) if reading.parent else ()
    at = Placement("node1", (number,), (reading.uuid,), parents=parents, vendor="amd")
    return replace(task("old", owner="ann@a"), status=Running(at, CID, NOW - 60))


def test_a_card_in_partitions_is_given_in_partitions_only(tmp_path: Path) -> None:
    idle = on(sample(tmp_path, SPLIT))
    assert states(idle) == {0: "partitioned", **{f"0/{part}": "free" for part in range(4)}}
    assert reason(idle, 0) == "divided into partitions: 4 free; ask for a partition, like node1::0/0"
    assert starts(idle, "node1::0", "node1::0/1", "1x") == ["node1::0/1"]
    use(tmp_path, 4711, {3: 5 << 20})
    assert states(on(Amd().parse(asked(tmp_path))))["0/2"] == "foreign"
    assert states(on(Amd().parse(asked(tmp_path))))[0] == "partitioned"


def test_no_partition_of_a_card_that_was_divided_anew_is_free_while_an_old_one_is_held(tmp_path: Path) -> None:
    two = replace(SPLIT, files={**SPLIT.files, "current_compute_partition": "DPX"}, parts=(137,))
    held = holds(sample(tmp_path, two), "0/0")
    now = on(sample(tmp_path, SPLIT), held)
    assert {state for number, state in states(now).items() if number != 0} == {"unknown"}
    assert reason(now, "0/3") == "task old of ann@a still holds a partition of its GPU that was removed"
    assert starts(now, "1x:1G", "node1::0/1") == []
    one = on(sample(tmp_path, replace(SPLIT, files={"current_compute_partition": "SPX"}, parts=())), held)
    assert states(one) == {0: "allocated"}
    assert states(on(sample(tmp_path, two), held)) == {0: "partitioned", "0/0": "allocated", "0/1": "free"}


NODES = "class/kfd/kfd/topology/nodes"


def unread(root: Path, node: int) -> None:
    (root / NODES / str(node) / "gpu_id").write_text("")


def unplaced(root: Path, node: int) -> None:
    (root / NODES / str(node) / "properties").write_text("")


def gone(root: Path, node: int) -> None:
    shutil.rmtree(root / NODES / str(node))


@pytest.mark.parametrize("damage", [unread, unplaced, gone])
@pytest.mark.parametrize("node", [1, 2, 3])
def test_no_gpu_is_free_while_the_compute_driver_does_not_show_all(damage: Any, node: int, tmp_path: Path) -> None:
    """A process on one that is not shown looks like none, or like one on another."""
    two = replace(SPLIT, files={**SPLIT.files, "current_compute_partition": "DPX"}, parts=(137,))
    sample(tmp_path, two, ONE)
    use(tmp_path, 4711, {node: 1 << 30})
    damage(tmp_path, node)
    found = Amd().parse(asked(tmp_path))
    assert (found.processes, "/sys/class/kfd/kfd/topology" in (found.error or "")) == (None, True)
    assert "free" not in states(on(found)).values()


def test_one_partition_of_many_is_not_the_whole_card(tmp_path: Path) -> None:
    sample(tmp_path, SPLIT)
    for node in (1, 2, 4):
        gone(tmp_path, node)
    assert Amd().parse(asked(tmp_path)).processes is None


def test_a_process_on_graphics_in_the_processor_hides_nothing(tmp_path: Path) -> None:
    small = replace(ONE, bus="0000:05:00.0", render=131, files={"mem_info_vram_total": str(512 << 20)})
    sample(tmp_path, small, replace(ONE, unique="04edfb117a17a07d"))
    use(tmp_path, 4711, {1: 1 << 20})
    assert states(on(Amd().parse(asked(tmp_path)))) == {0: "free"}


def test_two_cards_or_partitions_with_one_id_are_no_gpus(tmp_path: Path) -> None:
    same = replace(ONE, bus="0000:a3:00.0", render=131)
    found = sample(tmp_path / "cards", ONE, same)
    assert (found.gpus, found.processes, "lists a GPU twice" in (found.error or "")) == ((), None, True)
    sample(tmp_path / "parts", SPLIT)
    first, second = (tmp_path / "parts" / NODES / str(node) / "properties" for node in (1, 2))
    second.write_text(first.read_text())
    assert Amd().parse(asked(tmp_path / "parts")) == found


@pytest.mark.parametrize("said", [{}, {"partition_id": "N/A"}, {"partition_id": 0}])
def test_partitions_that_amd_smi_does_not_call_so_are_no_gpus_of_their_own(said: Any, tmp_path: Path) -> None:
    sample(tmp_path, SPLIT)
    shutil.rmtree(tmp_path / "class/kfd/kfd/proc")
    used = [{"process_info": {"pid": 4711, "name": "python"}}]
    answers = {
        "list": [{"gpu": part, "bdf": f"0000:0c:00.{part}", "node_id": part + 1, **said} for part in range(4)],
        "metric": [{"gpu": part, "mem_usage": {"used_vram": {"value": 1, "unit": "MB"}}} for part in range(4)],
        "process": [{"gpu": part, "process_list": used if part == 2 else "No running processes"} for part in range(4)],
    }
    for name, answer in answers.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
    tool(tmp_path, "amd-smi", f"cat {tmp_path}/$1.json || echo []")
    found = Amd().parse(asked(tmp_path))
    assert [gpu.number for gpu in found.gpus] == [0, *(f"0/{part}" for part in range(4))]
    assert [(each.gpu_uuid, each.pid) for each in found.processes or ()] == [(found.gpus[3].uuid, 4711)]
    assert states(on(found))[0] == "partitioned"


@pytest.mark.parametrize(("part", "known"), [(3, True), (5, False)])
def test_a_process_on_a_partition_that_is_not_listed_hides_all(part: int, known: bool, tmp_path: Path) -> None:
    sample(tmp_path, SPLIT)
    shutil.rmtree(tmp_path / "class/kfd/kfd/proc")
    (tmp_path / "list.json").write_text(json.dumps([{"gpu": 0, "bdf": "0000:0c:00.0", "partition_id": part}]))
    used = [{"gpu": 0, "process_list": [{"process_info": {"pid": 4711, "name": "python"}}]}]
    (tmp_path / "process.json").write_text(json.dumps(used))
    tool(tmp_path, "amd-smi", f"cat {tmp_path}/$1.json || echo []")
    assert (Amd().parse(asked(tmp_path)).processes is not None) is known


@pytest.mark.parametrize(("used", "own", "state"), [(600, 0, "unknown"), (600, 200, "free"), (400, 0, "free")])
def test_a_card_with_memory_in_use_that_no_process_of_kfd_has_is_not_free(
    used: int, own: int, state: str, tmp_path: Path
) -> None:
    """Vulkan and OpenGL do not use the compute driver; up to `foreign: below` it may be a desktop."""
    write(tmp_path, [replace(ONE, files={"mem_info_vram_used": str(used << 20)})])
    if own:
        use(tmp_path, os.getpid(), {1: own << 20})
    found = Amd().parse(asked(tmp_path))
    desktop = ForeignPolicy(ignore=frozenset(program(each) for each in found.processes or ()))
    now = cluster(seen(sample=found), foreign=desktop)
    assert states(now) == {0: state}
    assert ("in use by no process that its driver lists" in reason(now, 0)) is (state == "unknown")


def test_where_numbers_are_excluded_no_gpu_is_free_while_the_compute_driver_lacks_a_card(tmp_path: Path) -> None:
    """The second card is the first one of kfd then, and would be taken for it."""
    found = sample(tmp_path, replace(PLAIN, kfd=False), ONE)
    assert states(cluster(seen(sample=found), exclude_gpus=(1,))) == {0: "unknown", 1: "excluded"}
    assert "the compute driver lacks an AMD card" in reason(cluster(seen(sample=found), exclude_gpus=(1,)), 0)
    assert states(cluster(seen(sample=found))) == {0: "free", 1: "unknown"}


def test_where_numbers_are_excluded_no_gpu_is_free_while_one_that_was_there_is_missing(tmp_path: Path) -> None:
    gone, _ = sample(tmp_path, PLAIN, ONE).gpus
    record = NodeRecord(
        gpus={gone.uuid: GpuRecord(GpuReading(0, gone.uuid), troubles=(Trouble("gone", "disappeared", NOW),))}
    )
    now = seen(sample=sample(tmp_path, ONE))
    node = gated(cluster(now, exclude_gpus=(1,)).nodes["node1"], record)
    assert [gpu.state for gpu in node.gpus if gpu.reading.uuid != gone.uuid] == ["unknown"]
    node = gated(cluster(now).nodes["node1"], record)
    assert [gpu.state for gpu in node.gpus if gpu.reading.uuid != gone.uuid] == ["free"]
