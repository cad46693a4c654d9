"""Places in the queue that are given by hand, on a simulated node with four GPUs, n1."""

from __future__ import annotations

import orjson
import pytest

from agentless.errors import Refused, UsageError
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.fleet.test_queue import ids, states, submit


def order(controller):
    return [task.id for task in controller.queue.tasks]


async def test_who_is_put_on_top_starts_next(desk):
    async with desk.running() as controller:
        running, first, second = await ids(controller, 3, "n1::0-3")
        controller.scheduler.move(second, 1, by=me(controller))
        assert order(controller) == [second, first]
        await controller.stops.stop(running, "kill", by=me(controller))
        await until(lambda: states(controller, [second]) == ["running"])
        assert states(controller, [first]) == ["pending"]


async def test_a_large_task_on_top_is_not_kept_waiting_by_what_was_promised_to_small_ones(desk):
    """Each of the small ones was promised one of the GPUs before the large one was moved."""
    async with desk.running() as controller:
        running = await ids(controller, 4, time_limit=600.0)
        small = await ids(controller, 4, time_limit=700.0)
        large = (await submit(controller, "4x")).task.id
        await until(lambda: controller.queue.plan.promises.get(large))
        controller.scheduler.move(large, 1, by=me(controller))
        for task in running:
            await controller.stops.stop(task, "kill", by=me(controller))
        await until(lambda: states(controller, [large]) == ["running"])
        assert states(controller, small) == ["pending"] * 4


async def test_a_place_given_by_hand_outlives_the_controller_and_is_shown(desk):
    async with desk.running() as controller:
        _, first, second, third = await ids(controller, 4, "n1::0-3")
        moved = controller.views.view(controller.scheduler.move(third, before=second, by=me(controller)))
        assert (moved.position, moved.moved) == (2, True)
    async with desk.running() as controller:
        assert order(controller) == [first, third, second]
        assert [controller.views.view(task).moved for task in controller.queue.tasks] == [False, True, False]
        controller.scheduler.move(first, after=second, by=me(controller))
        assert order(controller) == [third, second, first]
        events = [orjson.loads(event) for _, event in controller.tasks.history.events(0, -1, first)]
        cause = f"agentless queue: to position 3, by {controller.tasks.owner}"
        assert (events[-1]["event"], events[-1]["cause"]) == ("moved", cause)


async def test_only_who_waits_can_be_moved_and_only_next_to_one_that_does(desk):
    async with desk.running() as controller:
        running, first, second = await ids(controller, 3, "n1::0-3")
        for task, more in ((running, {"position": 1}), (first, {"before": running})):
            with pytest.raises(Refused, match=f"task {running} is running: only pending tasks"):
                controller.scheduler.move(task, **more, by=me(controller))
        with pytest.raises(UsageError, match="next to itself"):
            controller.scheduler.move(first, after=first, by=me(controller))
        with pytest.raises(UsageError, match="position 3 is out of range: 2 tasks are pending"):
            controller.scheduler.move(first, 3, by=me(controller))
        await submit(controller, start_at=controller.clock.now() + 600)
        with pytest.raises(UsageError, match="position 3 is out of range: 2 tasks are pending"):
            controller.scheduler.move(first, 3, by=me(controller))
        for more in ({}, {"position": 1, "before": second}):
            with pytest.raises(UsageError, match="no position"):
                controller.scheduler.move(first, **more, by=me(controller))
        assert order(controller)[:2] == [first, second]
