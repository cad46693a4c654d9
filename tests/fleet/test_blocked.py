"""Tasks that wait for other tasks, on simulated nodes: n1 has four GPUs."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from agentless.controller.submit.request import Submit
from agentless.errors import NotFound, Refused, UsageError
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.requirement import parse_requirements
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from tests.fleet.client import until
from tests.fleet.desk import me


def spec(script="true", after="", batch="", **terms):
    requires = (parse_requirements([after], "--after") if after else ()) + (
        parse_requirements([batch], "--after-batch", batch=True) if batch else ()
    )
    return TaskSpec(("sh", "-c", script), needs=Needs(nodes=("n1",)), terms=Terms(requires=requires, **terms))


async def starts(controller, *specs, **more):
    return await controller.submission.submit(Submit(specs, {}, me(controller), **more))


async def submit(controller, *words, **terms):
    (start,) = await starts(controller, spec(*words, **terms))
    assert start.task, start.message
    return start.task.id


def state(controller, task):
    return controller.lookup.find(task).state


async def ends(controller, task, as_="completed"):
    await until(lambda: not controller.lookup.find(task).live)
    assert state(controller, task) == as_, controller.lookup.find(task).status


async def stop(controller, task):
    await controller.stops.stop(task, "kill", by=me(controller))


LONG = "sleep 600"


@pytest.mark.slow
async def test_a_task_starts_when_the_one_before_has_completed(desk):
    async with desk.running() as controller:
        first = await submit(controller, "sleep 0.3")
        second = await submit(controller, "true", after=first)
        assert state(controller, second) == "blocked"
        await ends(controller, second)
        before, after = controller.lookup.find(first).status, controller.lookup.find(second).status
        assert before.ended_at <= after.started_at


async def test_what_can_never_start_is_cancelled_with_the_reason_and_so_is_what_waits_for_that(desk):
    async with desk.running() as controller:
        first = await submit(controller, LONG)
        second = await submit(controller, after=first)
        third = await submit(controller, after=second)
        always = await submit(controller, after=f"{second}:ended")
        await stop(controller, first)
        await ends(controller, second, "cancelled")
        await ends(controller, third, "cancelled")
        await ends(controller, always)
        reason = controller.lookup.find(second).status.reason
        assert reason == f"needs task {first} to complete, but it was killed"


async def test_a_failure_is_not_promised(desk):
    async with desk.running() as controller:
        first = await submit(controller, LONG, time_limit=3600)
        second = await submit(controller, after=f"{first}:failed")
        await until(lambda: controller.queue.plan.promises.get(second))
        found = controller.explanations.explain(controller.lookup.find(second))
        assert f"waits for task {first} to fail (running, ends within" in found.summary
        assert "; if that comes, it starts in about" in found.summary


async def test_a_retry_is_waited_for(desk):
    async with desk.running() as controller:
        first = await submit(controller, 'test "$AGENTLESS_TASK_ID" != x; exit 3', retries=1, backoff=0.0)
        second = await submit(controller, after=f"{first}:failed")
        await ends(controller, second)
        assert controller.lookup.find(first).attempt == 2


async def test_what_is_told_to_wait_goes_on_after_a_retry_by_hand(desk):
    async with desk.running() as controller:
        first = await submit(controller, LONG)
        second = await submit(controller, after=first, if_impossible="wait")
        await stop(controller, first)
        await until(lambda: controller.lookup.find(second).status.reason)
        assert state(controller, second) == "blocked"
        *_, (_, cannot) = controller.tasks.history.events(0, -1, second)
        assert orjson.loads(cannot)["cause"] == "what it waited for cannot end as required any more"
        again = controller.retries.retry(first, by=me(controller))
        assert not controller.lookup.find(second).status.reason
        await until(lambda: controller.lookup.task(again.id).state == "running")
        await stop(controller, again.id)
        await until(lambda: controller.lookup.find(second).status.reason)


@pytest.mark.slow
async def test_it_goes_on_after_a_controller_that_died_in_between(desk, monkeypatch):
    async with desk.running() as controller:
        first = await submit(controller, LONG)
        second = await submit(controller, after=f"{first}:ended")
        monkeypatch.setattr(controller.dependencies, "_step", lambda: None)
        monkeypatch.setattr(controller.dependencies, "_follow", lambda _: None)
        await stop(controller, first)
        assert state(controller, second) == "blocked"
    async with desk.running() as controller:
        await ends(controller, second)


async def test_the_tasks_of_one_request_may_wait_for_those_before_them(desk):
    async with desk.running() as controller:
        a, b, c = await starts(controller, spec("sleep 0.2"), spec(after="#1"), spec(after="#1,#2"))
        assert [each.task.state for each in (a, b, c)] == ["running", "blocked", "blocked"]
        await ends(controller, c.task.id)
        with pytest.raises(UsageError, match="#2 is not a task before this one"):
            await starts(controller, spec(), spec(after="#2"))


async def test_a_batch_is_waited_for_as_a_whole_or_task_by_task(desk):
    async with desk.running() as controller:
        batch = [each.task.id for each in await starts(controller, spec(LONG), spec(LONG))]
        whole = await submit(controller, batch=f"{batch[1]}:ended")
        one, two = await starts(controller, *[spec(batch=f"{batch[0]}:ended")] * 2, each=True)
        await stop(controller, batch[1])
        await ends(controller, two.task.id)
        assert (state(controller, one.task.id), state(controller, whole)) == ("blocked", "blocked")
        await stop(controller, batch[0])
        await ends(controller, whole)
        await ends(controller, one.task.id)
        with pytest.raises(UsageError, match=r"this request has 3 and batch \S+ has 2"):
            await starts(controller, *[spec(batch=batch[0])] * 3, each=True)


async def test_what_cannot_be_waited_for_is_refused(desk):
    async with desk.running() as controller:
        with pytest.raises(NotFound):
            await submit(controller, after="nothing")
        await starts(controller, *[replace(spec("true"), name="pair")] * 2)
        with pytest.raises(NotFound, match=r"such as .*, or --after-batch pair"):
            await submit(controller, after="pair")
        await until(lambda: not controller.tasks.live)
        over = await submit(controller, LONG)
        await stop(controller, over)
        (start,) = await starts(controller, spec(after=over))
        assert (start.task, start.exit_code) == (None, 3)
        assert start.message.startswith(f"needs task {over} to complete, but it was killed; retry that one first, or")
        assert not controller.tasks.live
        kept = await submit(controller, after=over, if_impossible="wait")
        assert state(controller, kept) == "blocked"
        assert await submit(controller, after=f"{over}:ended")


@pytest.mark.slow
async def test_a_task_whose_turn_never_came_is_retried_with_what_it_needs(desk):
    async with desk.running() as controller:
        first = await submit(controller, LONG)
        second = await submit(controller, after=first)
        await stop(controller, first)
        await ends(controller, second, "cancelled")
        with pytest.raises(Refused, match=f"task {second} needs task {first} to complete, but it was killed"):
            controller.retries.retry(second, by=me(controller))
        controller.retries.retry(first, by=me(controller))
        assert controller.retries.retry(second, by=me(controller)).state == "blocked"
