"""GPUs that their tasks leave idle, on simulated nodes: n1 has four GPUs."""

from __future__ import annotations

import orjson
import pytest

from agentless.controller.nodes.link import sampler
from agentless.controller.submit.request import Submit
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.usage.idle import IdlePolicy
from agentless.rules.views.publish import gpu_view
from tests.fleet.client import until
from tests.fleet.desk import me


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Samples come quickly: what is waited for is the next one."""
    monkeypatch.setattr(sampler, "SAMPLE_EVERY", 0.05)


async def start(desk, controller, command=("sleep", "600"), target="n1::0,1", *, idle=True):
    """A task on two GPUs of n1, all of whose GPUs are idle from then on."""
    spec = TaskSpec(command, needs=parse_target(target))
    (started,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    await until(lambda: controller.lookup.find(started.task.id).state == "running")
    if idle:
        await rest(desk, controller)
    return started.task.id


async def rest(desk, controller):
    desk.fleet.nodes["n1"].gpus.busy(())
    await until(lambda: all(gpu.utilization_pct == 0 for gpu in controller.nodes.links["n1"].observation.sample.gpus))
    controller.idle.tick()


async def pass_time(desk, controller, seconds):
    """So much later, in steps within which there is always a sample."""
    link = controller.nodes.links["n1"]
    for _ in range(int(seconds // 10)):
        desk.clock.ahead += 10
        now = controller.clock.now()
        await until(lambda now=now: link.observation.sampled_at >= now)
        controller.idle.tick()


def events(controller, task):
    """What was told of idleness, with its cause."""
    found = [orjson.loads(event) for _, event in controller.tasks.history.events(0, -1, task)]
    return [
        (event["event"], event["cause"]) for event in found if event["event"] in ("idle", "busy-again", "stop-asked")
    ]


@pytest.mark.slow
async def test_idle_gpus_are_reported_in_ps_gpus_and_events_and_nothing_is_stopped(desk):
    async with desk.running() as controller:
        controller.idle.policy = IdlePolicy(report=60)
        task = await start(desk, controller)
        await pass_time(desk, controller, 50)
        assert events(controller, task) == []
        await pass_time(desk, controller, 100)
        ((event, cause),) = events(controller, task)
        assert (event, cause.startswith("idle for 1m")) == ("idle", True)
        view = controller.views.view(controller.lookup.find(task))
        assert (view.reason.startswith("idle for 2m"), view.idle_since is not None) == (True, True)
        found = controller.nodes.cluster(["n1"]).nodes["n1"].gpus[0]
        since = controller.tasks.idle[task].since[found.reading.uuid]
        assert ", idle for 2m" in gpu_view("n1", found, idle_since=since, now=controller.clock.now()).reason
        await pass_time(desk, controller, 200)
        assert controller.lookup.find(task).state == "running"


async def test_a_gpu_that_works_again_is_reported_too(desk):
    async with desk.running() as controller:
        controller.idle.policy = IdlePolicy(report=60)
        task = await start(desk, controller)
        await pass_time(desk, controller, 80)
        gpus = desk.fleet.nodes["n1"].gpus
        gpus.busy(gpus.uuids[:2])
        await until(lambda: controller.nodes.links["n1"].observation.sample.gpus[0].utilization_pct)
        controller.idle.tick()
        assert [event for event, _ in events(controller, task)] == ["idle", "busy-again"]
        assert controller.views.view(controller.lookup.find(task)).reason is None


@pytest.mark.slow
async def test_by_policy_a_task_is_warned_and_then_stopped_gently(desk):
    async with desk.running() as controller:
        controller.idle.policy = IdlePolicy(report=60, stop=120)
        task = await start(
            desk, controller, ("sh", "-c", "trap 'echo saved; exit 0' TERM; while :; do sleep 0.1; done")
        )
        await pass_time(desk, controller, 90)
        assert controller.lookup.find(task).stop is None
        await pass_time(desk, controller, 60)
        for stop in controller.stops.resume():
            await stop
        over = await controller.commands.wait(task, 20)
        assert (over.state, over.status.exit_code) == ("stopped", 0)
        assert over.status.reason.startswith("its GPUs were idle for 2m")
        warning, asked = events(controller, task)
        assert (warning[0], "stops in" in warning[1]) == ("idle", True)
        assert asked == ("stop-asked", "idle rule of the inventory")


@pytest.mark.slow
async def test_a_busy_or_paused_task_is_not_idle(desk):
    async with desk.running() as controller:
        controller.idle.policy = IdlePolicy(report=60, stop=120)
        busy = await start(desk, controller, idle=False)
        await pass_time(desk, controller, 200)
        assert events(controller, busy) == []
        await rest(desk, controller)
        await controller.commands.pause(busy)
        await pass_time(desk, controller, 200)
        await controller.commands.resume(busy)
        controller.idle.tick()
        await rest(desk, controller)
        await pass_time(desk, controller, 40)
        assert events(controller, busy) == []


@pytest.mark.slow
async def test_the_time_begins_anew_with_a_new_controller(desk):
    async with desk.running() as controller:
        controller.idle.policy = IdlePolicy(report=60)
        task = await start(desk, controller)
        await pass_time(desk, controller, 50)
    async with desk.running() as controller:
        controller.idle.policy = IdlePolicy(report=60)
        desk.clock.ahead = 60.0
        await pass_time(desk, controller, 50)
        assert events(controller, task) == []
        await pass_time(desk, controller, 20)
        assert [event for event, _ in events(controller, task)] == ["idle"]


async def test_the_inventory_sets_the_policy(desk):
    desk.inventory.write_text(desk.inventory.read_text() + "idle: {report: 10min, stop: 1h}\n")
    async with desk.running() as controller:
        assert controller.idle.policy == IdlePolicy(600, 3600)
