"""A log that is followed in several goes, from wherever it can be had by then."""

from __future__ import annotations

import pytest

from agentless.controller.submit.request import Submit
from agentless.errors import Refused
from agentless.formats.frames import POSITION
from agentless.model.containers.log_query import LogCursor, LogQuery
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Ended
from agentless.model.tasks.terms import Terms
from tests.fleet.client import until
from tests.fleet.desk import me


async def first_go(controller, task, **query):
    """What came up to the first position with output before it, and that position."""
    got = {1: b"", 2: b""}
    async for kind, data in controller.logs.read(task, LogQuery(follow=True, resumable=True, **query)):
        if kind != POSITION:
            got[kind] += data
        elif data and any(got.values()):
            return got, LogCursor.parse(data.decode())
    raise AssertionError("there was no position")


async def next_go(controller, task, position, **query):
    """All that comes from there on."""
    got = {1: b"", 2: b"", 3: b""}
    wanted = LogQuery(follow=True, resumable=True, position=position, **query)
    async for kind, data in controller.logs.read(task, wanted):
        if kind != POSITION:
            got[kind] += data
    return got


async def test_a_log_goes_on_where_it_is_kept_by_then(desk, tmp_path):
    go = tmp_path / "go"
    script = f"echo first; until [ -e {go} ]; do sleep 0.02; done; echo second; echo err >&2"
    async with desk.running() as controller:
        task = await desk.submit(script)
        got, position = await first_go(controller, task)
        assert got[1] == b"first\n"
        go.touch()
        await until(lambda: desk.kept(task))
        engine = desk.fleet.nodes["n1"].engine
        for container in list(engine.containers.values()):
            await engine.remove(container, force=True)
        await desk.empty()
        assert await next_go(controller, task, position) == {1: b"second\n", 2: b"err\n", 3: b""}
        with pytest.raises(Refused, match="has no timestamps, and its container is gone"):
            await next_go(controller, task, position, tail=5)


async def test_the_last_lines_of_a_log_go_on_behind_them(desk, tmp_path):
    go = tmp_path / "go"
    script = f"echo first; echo last; until [ -e {go} ]; do sleep 0.02; done; echo more"
    async with desk.running() as controller:
        task = await desk.submit(script)
        await until(lambda: controller.tasks.live[task].container)
        while (await desk.log(task))[1] != b"first\nlast\n":
            pass
        got, position = await first_go(controller, task, tail=1)
        assert got[1] == b"last\n"
        go.touch()
        assert (await next_go(controller, task, position, tail=1))[1] == b"more\n"


async def test_it_goes_on_with_the_try_that_it_was_at(desk):
    spec = TaskSpec(
        ("sh", "-c", "echo $AGENTLESS_TASK_ID; exit 1"), needs=parse_target("n1"), terms=Terms(retries=1, backoff=0.0)
    )
    async with desk.running() as controller:
        (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
        first, second = start.task.id.removesuffix("-2"), start.task.id.removesuffix("-2") + "-2"
        await until(lambda: controller.tasks.knows(second) and isinstance(controller.lookup.task(second).status, Ended))
        got, position = await first_go(controller, f"{first}-1")
        assert (got[1], position.task) == (f"{first}\n".encode(), first)
        assert (await next_go(controller, first, position))[1] == f"{second}\n".encode()
