"""A container that a launch created and did not live to start: it holds its GPUs, and must not do so for ever."""

from __future__ import annotations

from agentless.controller.tasks.backoff import RETRY_AFTER
from agentless.demo.engine.container import Config
from agentless.demo.engine.engine import DEFAULT_IMAGE, Complaint
from agentless.model.containers.claim import labels_of
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Placement, Task
from agentless.model.tasks.task_id import new_task_id
from agentless.rules.tasks.reconcile import REAP_AFTER
from tests.fleet.client import until


def created_by_another(desk):
    """What a controller that nobody knows of has left on n1."""
    node = desk.fleet.nodes["n1"]
    task = Task(
        new_task_id(2e9), TaskSpec(("sleep", "600"), DEFAULT_IMAGE, needs=parse_target("n1::0")), "b", "eve@gone", 1e9
    )
    labels = labels_of(task, Placement("n1", (0,), (node.gpus.uuids[0],)), "another")
    return node.engine.create(Config(task.container_name, DEFAULT_IMAGE, ["sleep", "600"], labels))


def gpu(controller):
    return controller.nodes.cluster().nodes["n1"].gpus[0]


def later(desk, seconds):
    """For the controller and for the node: else their clocks would differ, which is made up for."""
    desk.clock.ahead = seconds
    desk.fleet.nodes["n1"].set_clock(seconds)


async def test_it_holds_its_gpu_for_a_grace_time_and_is_removed_then(desk):
    created_by_another(desk)
    async with desk.running() as controller:
        await until(lambda: gpu(controller).state == "allocated")
        desk.clock.ahead = REAP_AFTER - 30
        controller.retention.tick()
        assert not controller.retention.busy
        desk.clock.ahead = REAP_AFTER + 30
        controller.retention.tick()
        await desk.empty()
        await until(lambda: gpu(controller).holder is None)


async def test_one_that_was_started_meanwhile_stays(desk):
    container = created_by_another(desk)
    async with desk.running() as controller:
        await until(lambda: gpu(controller).state == "allocated")
        command = controller.nodes.links["n1"].runtime.reap(container.id)
        desk.fleet.nodes["n1"].engine.start(container)
        assert (await controller.nodes.links["n1"].run(command)).ok
        assert container.state == "running"


async def test_one_that_cannot_be_removed_is_tried_again_a_minute_later(desk, monkeypatch):
    created_by_another(desk)
    asked = []

    async def refuse(*_, **__):
        asked.append(1)
        raise Complaint("the engine does not want to")

    monkeypatch.setattr(desk.fleet.nodes["n1"].engine, "remove", refuse)
    async with desk.running() as controller:
        await until(lambda: gpu(controller).state == "allocated")
        later(desk, REAP_AFTER + 30)
        controller.retention.tick()
        await until(lambda: asked and not controller.retention.busy)
        controller.retention.tick()
        assert not controller.retention.busy
        assert len(asked) == 1
        later(desk, REAP_AFTER + 30 + RETRY_AFTER + 1)
        controller.retention.tick()
        await until(lambda: len(asked) == 2 and not controller.retention.busy)
