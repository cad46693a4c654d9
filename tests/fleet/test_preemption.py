"""Tasks that give way to others, on simulated nodes: n1 has four GPUs, n2 has one that somebody else uses."""

from __future__ import annotations

from agentless.controller.submit.request import Submit
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from tests.fleet.client import until
from tests.fleet.desk import me

SAVES = ("sh", "-c", "trap 'echo saved; exit 0' TERM; while :; do sleep 0.05; done")


async def submit(controller, target="1x", command=("sleep", "600"), grace=10.0, **terms):
    spec = TaskSpec(command, needs=parse_target(target), stop_grace=grace, terms=Terms(**terms))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    assert start.task, start.message
    return start.task.id


async def lend(controller, count, target="1x", **terms):
    """Preemptible tasks that run."""
    tasks = [await submit(controller, target, SAVES, preemptible=True, **terms) for _ in range(count)]
    await until(lambda: all(state(controller, task) == "running" for task in tasks))
    return tasks


def state(controller, task):
    return controller.lookup.task(task).state


async def test_a_preemptible_task_gives_way_and_goes_back_to_the_queue(desk):
    async with desk.running() as controller:
        tasks = await lend(controller, 4)
        wanting = await submit(controller)
        await until(lambda: state(controller, wanting) == "running")
        (victim,) = [task for task in tasks if state(controller, task) == "preempted"]
        assert victim == tasks[-1]
        again = controller.lookup.find(victim)
        before = controller.lookup.task(victim)
        assert (again.id, again.state, again.preemptions) == (f"{victim}-2", "pending", 1)
        assert (again.created_at, again.tries, before.status.exit_code) == (before.created_at, 1, 0)
        await controller.stops.stop(wanting, "kill", by=me(controller))
        await until(lambda: controller.lookup.find(victim).state == "running")
