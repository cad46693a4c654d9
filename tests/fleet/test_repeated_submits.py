"""A submit whose answer was lost with the controller is sent again, and starts nothing twice."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from agentless.client.client import Client
from agentless.controller.submit.request import Submit
from agentless.model.caller import Caller
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from tests.fleet.client import until


def request(name, *targets, repeated=True, script="sleep 60"):
    specs = tuple(TaskSpec(("sh", "-c", script), needs=parse_target(target)) for target in targets)
    return Submit(specs, {}, Caller("anna@desk"), name=name, repeated=repeated)


async def test_the_next_controller_gives_the_tasks_that_the_one_before_has_started(desk):
    async with desk.running() as controller:
        first = await controller.submission.submit(request("one", "n1::0", "n1::9", "n1::1", repeated=False))
    async with desk.running() as controller:
        again = await controller.submission.submit(request("one", "n1::0", "n1::9", "n1::1"))
        assert [start.task.id for start in again if start.task] == [first[0].task.id, first[2].task.id]
        assert sorted(start.exit_code for start in again) == [0, 0, 3]
        assert len(desk.fleet.nodes["n1"].engine.containers) == 2


async def test_what_has_ended_meanwhile_is_not_started_again(desk):
    async with desk.running() as controller:
        (start,) = await controller.submission.submit(request("short", "n1", repeated=False, script="exit 3"))
        await until(lambda: not controller.lookup.find(start.task.id).live)
    async with desk.running() as controller:
        (again,) = await controller.submission.submit(request("short", "n1", script="exit 3"))
        assert (again.task.id, again.task.exit_code, again.exit_code) == (start.task.id, 3, 0)


async def test_a_request_that_never_came_is_taken_in(desk):
    async with desk.running() as controller:
        await controller.submission.submit(request("other", "n1::0", repeated=False))
        (start,) = await controller.submission.submit(request("lost", "n1::1"))
        assert start.task.state == "running"


async def test_requests_without_a_name_are_never_the_same(desk):
    async with desk.running() as controller:
        (one,) = await controller.submission.submit(request(None, "n1::0"))
        (two,) = await controller.submission.submit(request(None, "n1::1"))
        assert one.task.id != two.task.id


async def test_a_task_whose_launch_fails_in_an_unforeseen_way_is_told_since_it_may_run(desk, monkeypatch):
    """With an error alone a script would submit it once more."""
    async with desk.running() as controller:
        launcher = controller.launcher
        launch = launcher._try

        async def fail(*_, **__):
            monkeypatch.setattr(launcher, "_try", launch)
            raise IndexError("list index out of range")

        monkeypatch.setattr(launcher, "_try", fail)
        (start,) = await controller.submission.submit(request("one", "n1::0", repeated=False))
        assert (start.exit_code, start.task.state) == (1, "assigning")
        assert start.message == (
            f"unexpected error in agentless while starting task {start.task.id} "
            "(IndexError('list index out of range')); the task may be running; check with: agentless ps"
        )


@pytest.mark.slow
async def test_a_controller_serves_others_when_who_has_started_it_was_killed(desk):
    """As a submit that is repeated, and killed meanwhile."""
    reader, writer = os.pipe()
    words = (sys.executable, "-m", "agentless.controller", str(desk.state), str(desk.inventory), str(writer))
    process = await asyncio.create_subprocess_exec(*words, pass_fds=[writer])
    os.close(reader)
    os.close(writer)
    client = Client(desk.state, desk.inventory)
    await until(client.is_running)
    assert await asyncio.to_thread(client.get, "/v1/controller")
    await asyncio.to_thread(client.post, "/v1/controller/stop")
    assert await process.wait() == 0
