"""A VPS that expires, on simulated nodes."""

from __future__ import annotations

import orjson

from agentless.controller.submit.request import Submit
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from tests.fleet.client import until
from tests.fleet.desk import me


async def create(controller, **terms):
    spec = TaskSpec((), name="box", needs=parse_target("n1::0"), workload="vps", terms=Terms(**terms))
    start = await controller.vps.create(Submit((spec,), {}, me(controller)))
    assert start.task, start.message
    await until(lambda: controller.lookup.find("box").state == "running")


def events(controller):
    task = controller.lookup.find("box").id
    return [orjson.loads(event)["event"] for _, event in controller.tasks.history.events(0, -1, task)]


async def test_it_warns_and_then_stops_and_its_container_stays(desk):
    async with desk.running() as controller:
        told = []
        await create(controller, expires=3600.0)
        with controller.visits.entered(controller.lookup.find("box").id, told.append):
            desk.clock.ahead += 2000
            controller.upkeep.tick()
            assert told == []
            desk.clock.ahead += 800
            controller.upkeep.tick()
            [warning] = told
            assert warning.startswith("box stops in 13m")
            assert "stops in 13m" in controller.views.view(controller.lookup.find("box")).reason
            desk.clock.ahead += 801
            controller.upkeep.tick()
            desk.clock.ahead += 200
            controller.upkeep.tick()
        controller.deadlines.tick()
        await until(lambda: controller.lookup.find("box").state == "stopped")
        assert controller.lookup.find("box").status.reason == "--expires 1h 0m"
        assert events(controller).count("stops-soon") == 1
        assert "agentless vps start box" in told[-1]
