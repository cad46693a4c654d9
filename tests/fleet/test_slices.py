"""Slices of a GPU on simulated nodes: the node has the last word, also against a controller that knows of no slices."""

from __future__ import annotations

import time

import pytest

from agentless import Cluster, Refused
from agentless.controller.submit.request import Submit
from agentless.demo.fleet import NodePlan
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from tests.fleet.client import PATIENCE, until
from tests.fleet.desk import Desk, me
from tests.fleet.inhabited import inhabited
from tests.fleet.test_gpu_share import deafen, other

__all__ = ["other"]  # a fixture

PROFILES = ("3g.40gb", "1g.10gb", "1g.10gb")


async def submit(controller, target, *command, **terms):
    spec = TaskSpec(command or ("sleep", "600"), needs=parse_target(target), terms=Terms(**terms))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    return start


async def divide(desk: Desk, controller) -> None:
    """Divide GPU 0 of n1, and wait until this controller has seen it."""
    desk.fleet.nodes["n1"].gpus.divide(0, PROFILES)
    await until(lambda: any(gpu.reading.part == 2 for gpu in controller.nodes.cluster(["n1"]).nodes["n1"].gpus))


async def test_a_controller_that_believes_the_gpu_to_be_whole_is_refused_by_the_node(desk, other, monkeypatch):
    async with desk.running() as mine, other.running() as theirs:
        deafen(theirs, monkeypatch)
        await divide(desk, mine)
        held = (await submit(mine, "1x:8G")).task
        assert held.gpus == ("0/1",)
        refused = await submit(theirs, "n1::0", wait_for=0.0)
        assert refused.exit_code == 3
        assert f"slice {held.gpu_uuids[0]} of GPU 0 is held by task {held.id} of {held.owner}" in refused.message


async def test_no_slice_is_given_while_somebody_has_the_gpu_whole(desk):
    """It was divided under the task."""
    async with desk.running() as controller:
        whole = (await submit(controller, "n1::0")).task
        await divide(desk, controller)
        refused = await submit(controller, "n1::0/0", wait_for=0.0)
        assert refused.message == f"n1::0/0: GPU 0/0 is allocated: held by task {whole.id} of {whole.owner}"


@pytest.mark.parametrize("target", ["n1::0/1", "1x1g.10gb"])
async def test_a_task_sees_its_slice_alone(desk, target):
    async with desk.running() as controller:
        await divide(desk, controller)
        task = (await submit(controller, target, "sh", "-c", "nvidia-smi -L; echo $AGENTLESS_GPUS")).task
        await until(lambda: controller.lookup.find(task.id).state == "completed")
        (found,) = [
            each for each in desk.fleet.nodes["n1"].engine.containers.values() if each.config.name.endswith(task.id)
        ]
        assert tuple(found.config.gpus) == task.gpu_uuids
        said = [line.data.decode() async for lines in found.log.read(None, 0, follow=False) for line in lines]
        whole, slice_, number = "".join(said).splitlines()
        assert (whole[:6], number) == ("GPU 0:", "0/1")
        assert f"MIG 1g.10gb     Device  1: (UUID: {task.gpu_uuids[0]})" in slice_


@pytest.mark.slow
def test_in_python_a_slice_is_listed_reserved_and_kept_for_its_owner(tmp_path):
    with inhabited(tmp_path, [NodePlan("n1", 1)]) as world:
        world.nodes["n1"].gpus.divide(0, PROFILES)
        cluster, end = Cluster(), time.monotonic() + PATIENCE
        while len(cluster.gpus("n1", free=True)) < 3 and time.monotonic() < end:
            pass
        assert [(gpu.number, gpu.kind, gpu.profile, gpu.vendor) for gpu in cluster.gpus()] == [
            (0, "gpu", "", "nvidia"), *((f"0/{part}", "slice", name, "nvidia") for part, name in enumerate(PROFILES)),
        ]  # fmt: skip
        (made,) = cluster.reserve("n1::0/1", owner="ann", begin="0s", end="1h")
        assert (made.gpus, [each.gpus for each in cluster.reservations()]) == (("0/1",), [("0/1",)])
        with pytest.raises(Refused, match="GPU 0/1 is reserved for ann from "):
            cluster.submit("true", target="n1::0/1", no_queue=True)
        assert cluster.submit("sleep", "600", target="1x1g.10gb").gpus == ("0/2",)
        assert cluster.submit("sleep", "600", target="1xmig", owner="ann", gpu_memory="8G").gpus == ("0/1",)
        cluster.unreserve(made.id)
        for task in cluster.tasks():
            task.remove(force=True)
