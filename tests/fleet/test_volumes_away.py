"""A volume on a node that does not answer is there all the same. What the simulated engines have, the test says."""

from __future__ import annotations

import pytest

from agentless.controller.submit.request import Submit
from agentless.engines.docker.volumes import DockerVolumes
from agentless.errors import Unreachable
from agentless.model.command import Command
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec, Volume
from agentless.model.tasks.task import Placement, Task
from agentless.model.tasks.task_event import Assigned
from tests.fleet.client import until
from tests.fleet.desk import me


@pytest.fixture
def have(monkeypatch):
    """The names of volumes by node, as their engines tell them."""
    found = {"n1": set(), "n2": set()}
    monkeypatch.setattr(DockerVolumes, "all", lambda _: Command("true"))
    monkeypatch.setattr(DockerVolumes, "parse", lambda words, _: [(n, "ann", ()) for n in found[words._node.name]])
    return found


def wanting(target="1x"):
    return TaskSpec(("true",), needs=parse_target(target), volumes=(Volume("data", "/data"),))


async def placed(controller, spec):
    return (await controller.volumes.placed([spec]))[0].needs.nodes


async def lose(desk, node="n2"):
    desk.fleet.nodes[node].cut()
    await until(lambda: not desk.controller.nodes.links[node].online)


async def test_a_task_does_not_find_an_empty_volume_because_the_node_that_has_it_is_away(desk, have):
    have["n2"] = {"data"}
    async with desk.running() as controller:
        assert await placed(controller, wanting()) == ("n2",)
        await lose(desk)
        with pytest.raises(Unreachable, match=r"n2 .*; it has volume data; wait for the node, or specify another"):
            await controller.submission.submit(Submit((wanting(),), {}, me(controller)))
        assert controller.tasks.live == {}


async def test_what_a_node_has_had_is_known_after_a_restart(desk, have):
    have["n2"] = {"data"}
    async with desk.running() as controller:
        await controller.volumes.all(sizes=False)
    desk.fleet.nodes["n2"].cut()
    async with desk.running() as controller:
        with pytest.raises(Unreachable, match="it has volume data"):
            await placed(controller, wanting())


async def test_a_node_is_known_to_have_what_a_task_has_had_there(desk, have):
    async with desk.running() as controller:
        await controller.volumes.all(sizes=False)
        await lose(desk)
        task = Task("t1", wanting(), "t1", "ann", desk.clock.now())
        controller.ledger.add(task, Assigned(Placement("n2")), "the test")
        with pytest.raises(Unreachable, match="it has volume data"):
            await placed(controller, wanting())


async def test_who_names_a_node_has_said_where(desk, have):
    have["n2"] = {"data"}
    async with desk.running() as controller:
        await controller.volumes.all(sizes=False)
        await lose(desk)
        assert await placed(controller, wanting(target="n1::0")) == ("n1",)


async def test_a_volume_that_is_on_a_node_that_answers_too_is_used_there(desk, have):
    have["n1"] = have["n2"] = {"data"}
    async with desk.running() as controller:
        await controller.volumes.all(sizes=False)
        await lose(desk)
        assert "n1" in await placed(controller, wanting())


async def test_a_node_that_had_none_when_it_was_asked_last_keeps_nobody_from_a_new_one(desk, have):
    async with desk.running() as controller:
        await controller.volumes.all(sizes=False)
        await lose(desk)
        assert await placed(controller, wanting()) == ()


async def test_a_node_that_was_never_asked_may_have_it_until_it_is_drained(desk, have):
    desk.fleet.nodes["n2"].cut()
    async with desk.running() as controller:
        with pytest.raises(
            Unreachable,
            match=r"n2 .*; its volumes were never listed, so it may have volume data; .*agentless nodes drain n2",
        ):
            await placed(controller, wanting())
        controller.exclusions.drain("n2", by=me(controller))
        assert await placed(controller, wanting()) == ()


async def test_a_node_that_is_taken_out_of_the_inventory_keeps_nobody_from_a_new_one(desk, have):
    have["n2"] = {"data"}
    async with desk.running() as controller:
        await controller.volumes.all(sizes=False)
        await lose(desk)
        desk.write(without="n2")
        await controller.inventory.use(None, reading=True)
        assert await placed(controller, wanting()) == ()


async def test_a_volume_is_not_removed_everywhere_while_a_node_that_has_it_is_away(desk, have):
    have["n1"] = have["n2"] = {"data"}
    async with desk.running() as controller:
        await controller.volumes.all(sizes=False)
        await lose(desk)
        with pytest.raises(Unreachable, match="n2"):
            await controller.volumes.remove("data", None)
