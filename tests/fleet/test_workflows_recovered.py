"""A workflow whose state was lost: what goes on, what asks, and what never runs again."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from agentless.errors import NotFound, Refused
from agentless.rules.workflows.carried import HEAD, JOBS
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.fleet.test_workflows import ended, run, states

TEXT = """\
jobs:
  a: {command: sleep 600, stop_grace: 0}
  b: {command: 'true', requires: [{a: ended}]}
  c: {command: 'true', requires: b}
  d: {command: 'true', requires: [{b: failed}]}
"""


async def begun(controller, text=TEXT, *jobs):
    workflow = await run(controller, text)
    await until(lambda: all(states(controller, workflow)[job] == "running" for job in jobs or ("a",)))
    return workflow


def lose(desk):
    shutil.rmtree(desk.state)
    desk.state.mkdir(mode=0o700)


def decisions(views):
    return [{job.job: job.decision for job in view.jobs} for view in views]


async def recovered(controller):
    """All tasks are taken back, and the workflows are as they were shown before."""
    await until(lambda: controller.recovery.unremembered(me(controller)))
    views = await controller.workflow_recovery.offer(me(controller))
    offer = await controller.recovery.offer(me(controller))
    controller.recovery.recover([task.id for task in offer.tasks], offer.digests, by=me(controller))
    return views


async def go_on(controller, view, by_hand=False):
    jobs = [job.id for job in view.jobs]
    return await controller.workflow_recovery.go_on(view.id, view.digest, jobs, by_hand=by_hand, by=me(controller))


async def test_jobs_that_cannot_have_started_go_on_after_the_state_was_lost(desk):
    async with desk.running() as controller:
        workflow = await begun(controller)
    lose(desk)
    async with desk.running() as controller:
        (view,) = await recovered(controller)
        assert (view.id, view.signed, len(view.nodes)) == (workflow, True, 1)
        assert decisions([view]) == [{"b": "goes_on", "c": "goes_on", "d": "goes_on"}]
        await go_on(controller, view)
        assert states(controller, workflow) == {"a": "running", "b": "blocked", "c": "blocked", "d": "blocked"}
        assert controller.workflows.show(workflow, me(controller)).text == TEXT
        with pytest.raises(Refused, match="no job of workflow"):
            await go_on(controller, view)
        await controller.stops.stop(workflow, "kill", by=me(controller))
        await ended(controller, workflow)
        assert states(controller, workflow) == {"a": "killed", "b": "completed", "c": "completed", "d": "cancelled"}
        assert await controller.workflow_recovery.offer(me(controller)) == []
