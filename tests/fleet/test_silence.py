"""What a node that does not answer leaves open is said in words, and nobody waits for it for ever."""

from __future__ import annotations

import pytest

from agentless.controller.tasks.launch import launcher
from agentless.errors import NoAnswer
from tests.fleet.client import until
from tests.fleet.desk import me


async def test_a_node_whose_engine_does_not_answer_is_silent_until_it_does(desk):
    node = desk.fleet.nodes["n1"]
    node.stop_engine()
    async with desk.running() as controller:
        assert "is not running" in controller.nodes.silent()["n1"]
        node.start_engine()
        await until(lambda: not controller.nodes.silent())


async def test_who_kills_a_task_whose_launch_got_no_answer_is_told_so_and_it_is_killed_when_the_node_answers(
    desk, monkeypatch
):
    monkeypatch.setattr(launcher, "OUTCOME_WITHIN", 0.1)
    node = desk.fleet.nodes["n1"]
    drop = node._sshd.drop

    def gone():
        node._sshd.drop = drop
        node.cut()

    async with desk.running() as controller:
        node.lose_answer("start", "after")
        node._sshd.drop = gone
        task = await desk.submit("sleep 60", "n1::0")
        with pytest.raises(
            NoAnswer,
            match=f"task {task} may have started; agentless ends task {task} when n1 answers; "
            f"after that, run: agentless rm {task}",
        ):
            await controller.removal.remove(task, force=True, by=me(controller))
        (container,) = node.engine.containers.values()
        assert container.live
        await node.restore()
        await until(lambda: controller.lookup.find(task).state == "killed")
        assert not container.live
