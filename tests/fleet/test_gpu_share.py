"""Shares of a GPU on simulated nodes: the launch script, run for real, has the last word."""

from __future__ import annotations

import asyncio

import pytest

from agentless.controller.submit.request import Submit
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from tests.fleet.client import until
from tests.fleet.desk import Desk, me

GIB = 1 << 30


async def submit(controller, share=1, floor=1, gpu=0, **terms):
    needs = Needs(gpus=1, gpu_memory=floor * GIB, nodes=("n1",), indices=(gpu,), gpu_share=share)
    spec = TaskSpec(("sleep", "600"), needs=needs, terms=Terms(**terms))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    return start


def on_gpu(desk, index=0):
    """The tasks that are really on a GPU of n1."""
    node = desk.fleet.nodes["n1"]
    gpu = node.gpus.uuids[index]
    return [
        c.config.labels["agentless.task"] for c in node.engine.containers.values() if c.live and gpu in c.config.gpus
    ]


@pytest.fixture
def other(desk, tmp_path):
    return Desk(tmp_path / "other", desk.fleet)


def deafen(controller, monkeypatch):
    """From now on it hears nothing of what the others do on n1."""
    link = controller.nodes.links["n1"]
    for name in ("observe", "_on_change", "_on_sighting", "_remember"):
        monkeypatch.setattr(link.cache, name, lambda *_: None)


async def test_those_who_are_willing_run_on_one_gpu_and_the_next_waits_for_a_share(desk):
    async with desk.running() as controller:
        first, second, third = [(await submit(controller, 2)).task for _ in range(3)]
        assert sorted(on_gpu(desk)) == sorted([first.id, second.id])
        assert (third.state, "2 of 2 shares held by task" in third.reason) == ("pending", True)
        await controller.stops.stop(first.id, "kill", by=me(controller))
        await until(lambda: controller.lookup.find(third.id).state == "running")
        assert sorted(on_gpu(desk)) == sorted([second.id, third.id])


async def test_who_does_not_share_waits_until_all_of_them_are_gone(desk):
    async with desk.running() as controller:
        first, second = [(await submit(controller, 2)).task.id for _ in range(2)]
        alone = (await submit(controller)).task.id
        await controller.stops.stop(first, "kill", by=me(controller))
        await until(lambda: on_gpu(desk) == [second])
        assert controller.lookup.find(alone).state == "pending"
        await controller.stops.stop(second, "kill", by=me(controller))
        await until(lambda: on_gpu(desk) == [alone])


async def test_a_share_is_had_beside_the_task_of_another_controller(desk, other):
    async with desk.running() as mine, other.running() as theirs:
        first = (await submit(mine, 2)).task.id
        await theirs.nodes.links["n1"].refresh()
        second = (await submit(theirs, 2)).task.id
        assert sorted(on_gpu(desk)) == sorted([first, second])
        assert (await submit(theirs, wait_for=0.0)).exit_code == 3


async def test_of_two_controllers_that_do_not_see_each_other_all_together_get_no_more_than_there_is(
    desk, other, monkeypatch
):
    async with desk.running() as mine, other.running() as theirs:
        deafen(mine, monkeypatch)
        deafen(theirs, monkeypatch)
        starts = await asyncio.gather(*(submit(one, 3, wait_for=0.0) for one in (mine, theirs) for _ in range(3)))
        assert sorted(start.exit_code for start in starts) == [0, 0, 0, 3, 3, 3]
        assert len(on_gpu(desk)) == 3
        assert any("GPU 0 has no share left (3 in use)" in start.message for start in starts)


@pytest.mark.parametrize(("one", "two"), [((1, 1), (3, 1)), pytest.param((3, 1), (1, 1), marks=pytest.mark.slow)])
async def test_the_node_lets_nobody_share_with_one_who_does_not(desk, other, monkeypatch, one, two):
    async with desk.running() as mine, other.running() as theirs:
        deafen(theirs, monkeypatch)
        first = (await submit(mine, *one)).task.id
        refused = await submit(theirs, *two, wait_for=0.0)
        assert (refused.exit_code, on_gpu(desk)) == (3, [first])
        assert f"GPU 0 is held by task {first} of" in refused.message


async def test_the_node_gives_out_no_more_memory_than_the_gpu_has(desk, other, monkeypatch):
    async with desk.running() as mine, other.running() as theirs:
        deafen(theirs, monkeypatch)
        total = mine.nodes.cluster().nodes["n1"].gpus[0].reading.memory_total_mib >> 10
        first = (await submit(mine, 3, total - 2)).task.id
        refused = await submit(theirs, 3, 3, wait_for=0.0)
        assert (refused.exit_code, on_gpu(desk)) == (3, [first])
        assert "no share left" in refused.message


async def test_shares_are_remembered_over_a_restart_of_the_controller(desk):
    async with desk.running() as controller:
        first = (await submit(controller, 3)).task.id
    async with desk.running() as controller:
        gpu = controller.nodes.cluster().nodes["n1"].gpus[0]
        assert (gpu.shares, [holder.task for holder in gpu.holders]) == (3, [first])
        second = (await submit(controller, 3)).task.id
        assert sorted(on_gpu(desk)) == sorted([first, second])
