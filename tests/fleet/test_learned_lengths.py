"""What earlier tasks tell, on simulated nodes: n1 has four GPUs, n2 has one that somebody else uses."""

from __future__ import annotations

from agentless.controller.submit.request import Submit
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from tests.fleet.client import until
from tests.fleet.desk import me


async def submit(controller, target, seconds):
    """A task of always the same kind, without a limit."""
    spec = TaskSpec(("sh", "-c", "sleep $LONG"), env={"LONG": str(seconds)}, needs=parse_target(target))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    return start.task.id


async def busy_after_short_ones(controller):
    """A task that waits for GPUs that are held by tasks like five that were short."""
    for _ in range(5):
        await controller.commands.wait(await submit(controller, "4x", 0), 20)
    holder = await submit(controller, "4x", 600)
    waiting = await submit(controller, "4x", 600)
    await until(lambda: controller.queue.plan.promises.get(waiting))
    return holder, waiting


async def test_who_waits_is_told_about_when_it_starts_and_nobody_is_stopped(desk):
    desk.inventory.write_text(desk.inventory.read_text() + "queue: {learn: true}\n")
    async with desk.running() as controller:
        holder, waiting = await busy_after_short_ones(controller)
        task = controller.lookup.find(waiting)
        desk.clock.ahead = 5.0  # by now those before would have ended
        view = controller.views.view(task)
        assert (view.about, view.expected_start is not None) == (True, True)
        assert "is number 1 in the queue; may start any moment on n1" in controller.explanations.explain(task).summary
        await until(lambda: controller.lookup.find(holder).state == "running")
        assert task.state == "pending"


async def test_what_is_free_is_had_at_once_although_lengths_are_learned(desk):
    desk.inventory.write_text(desk.inventory.read_text() + "queue: {learn: true}\n")
    async with desk.running() as controller:
        task = await submit(controller, "4x", 600)
        events = [event for _, event in controller.tasks.history.events(0, -1, task)]
        assert b'"event":"queued"' not in b"".join(events)


async def test_nothing_is_learned_unless_the_inventory_says_so(desk):
    async with desk.running() as controller:
        _, waiting = await busy_after_short_ones(controller)
        view = controller.views.view(controller.lookup.find(waiting))
        assert (view.about, view.expected_start) == (False, None)
