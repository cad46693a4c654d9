"""An engine that keeps containers elsewhere than before does not show those of running tasks: they keep their GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentless.errors import AgentlessError
from agentless.model.tasks.task_event import LostContact
from tests.fleet.client import until
from tests.fleet.desk import me

SWITCHED = "Docker on the node was switched to another image store, storage driver or data folder"


def switch(node) -> None:
    """As with another `data-root` and live-restore: processes go on."""
    node.stop_engine()
    node.engine.root, node.engine.containers = Path("/data/docker"), {}
    node.start_engine()


def status(desk, task):
    found = desk.controller.lookup.find(task)
    return found.state, getattr(found.status, "reason", None) or ""


async def lost_to_the_switch(desk, task) -> None:
    await until(lambda: status(desk, task)[0] == "lost" and status(desk, task)[1].startswith(SWITCHED))
    assert desk.controller.nodes.cluster().nodes["n1"].gpus[0].state == "allocated"


async def test_a_switch_under_a_controller_makes_a_task_lost_and_rm_force_frees_its_gpu(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        await until(lambda: status(desk, task)[0] == "running")
        desk.fleet.nodes["n1"].stop_engine()
        await until(lambda: "n1" in controller.nodes.silent())
        switch(desk.fleet.nodes["n1"])
        await lost_to_the_switch(desk, task)
        await controller.removal.remove(task, force=True, by=me(controller))
        assert controller.nodes.cluster().nodes["n1"].gpus[0].state == "free"


async def test_a_switch_while_no_controller_runs_is_seen_by_the_next_one_and_the_one_after(desk):
    async with desk.running():
        task = await desk.submit("sleep 60", "n1::0")
        await until(lambda: status(desk, task)[0] == "running")
    switch(desk.fleet.nodes["n1"])
    for _ in range(2):
        async with desk.running():
            await lost_to_the_switch(desk, task)


async def test_a_task_that_was_lost_before_the_switch_has_the_switch_as_its_reason(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        await until(lambda: status(desk, task)[0] == "running")
        desk.fleet.nodes["n1"].stop_engine()
        await until(lambda: "n1" in controller.nodes.silent())
        controller.ledger.apply(task, LostContact("no answer"), "test")
        switch(desk.fleet.nodes["n1"])
        await lost_to_the_switch(desk, task)


async def test_rm_force_does_not_remove_a_lost_task_whose_engine_says_nothing(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        node = desk.fleet.nodes["n1"]
        await until(lambda: status(desk, task)[0] == "running")
        node.stop_engine()
        await until(lambda: "n1" in controller.nodes.silent())
        controller.ledger.apply(task, LostContact("no answer"), "test")
        with pytest.raises(AgentlessError, match="is not running"):
            await controller.removal.remove(task, force=True, by=me(controller))
        assert controller.lookup.find(task).live
        node.start_engine()
        await until(lambda: not controller.lookup.find(task).live)
        assert controller.lookup.find(task).state == "killed"
