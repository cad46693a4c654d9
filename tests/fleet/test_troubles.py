"""What goes wrong on one node or with one task, and must not do more harm than that."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import asyncssh
import orjson
import pytest

from agentless.controller.submit.request import Submit
from agentless.errors import RuntimeFailed, Unreachable
from agentless.model.command import Command
from agentless.model.containers.claim import CONTROLLER, TASK
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.lab.processes import kill, marked, processes

STAYS = "sleep 600"


def event_names(controller, task):
    return [orjson.loads(event)["event"] for _, event in controller.tasks.history.events(0, -1, task)]


async def test_a_stop_that_cannot_be_done_yet_is_told_once(desk):
    node = desk.fleet.nodes["n1"]
    async with desk.running() as controller:
        task = await desk.submit(STAYS)
        node.stop_engine()
        with pytest.raises(RuntimeFailed):
            await controller.stops.stop(task, "kill", by=me(controller))
        for _ in range(3):
            for work in controller.stops.resume():
                with pytest.raises(RuntimeFailed):
                    await work
        assert event_names(controller, task).count("stop-asked") == 1
        node.start_engine()
        await until(lambda: controller.nodes.cluster().nodes["n1"].state == "online")
        (work,) = controller.stops.resume()
        assert (await work).state == "killed"


async def test_a_second_stop_that_gives_up_does_not_begin_a_third(desk):
    async with desk.running() as controller:
        task = await desk.submit("trap '' TERM; while :; do sleep 0.1; done")
        first = asyncio.create_task(controller.stops.stop(task, "stop", 15, by=me(controller)))
        second = asyncio.create_task(controller.stops.stop(task, "stop", 15, by=me(controller)))
        await until(lambda: controller.tasks.live[task].stop and controller.stops._stopping[task] == 2)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert controller.stops.resume() == []
        await controller.stops.stop(task, "kill", by=me(controller))
        assert (await first).state == "killed"


async def test_an_answer_that_a_hung_driver_kept_does_not_replace_a_newer_one(desk):
    async with desk.running() as controller:
        link = controller.nodes.links["n1"]
        link.pace("the test", 600.0)  # nothing but the full look asks
        desk.fleet.nodes["n1"].hang_gpu()
        looking = asyncio.create_task(link.refresh())
        await until(lambda: hung(desk))
        desk.fleet.nodes["n1"].heal_gpu()
        before = link.observation.sampled_at
        link.pace("the test", 0.01)
        await until(lambda: link.observation.sampled_at > before)
        link.pace("the test", 600.0)
        kill(hung(desk), signal.SIGTERM)
        await looking
        assert link.observation.sample.error is None


def hung(desk):
    """The stand-ins of nvidia-smi that hang on n1."""
    mark, everyone = "AGENTLESS_STANDIN_DIR", processes()
    mine = marked(mark, Path(desk.fleet.nodes["n1"].env[mark]), everyone)
    return {pid for pid in mine if everyone[pid].command == "sleep 3600"}


async def test_an_engine_that_stops_takes_only_itself_away(desk):
    async with desk.running() as controller:
        await desk.submit(STAYS)
        link, states = controller.nodes.links["n1"], set()
        desk.fleet.nodes["n1"].stop_engine(live_restore=False)

        def degraded():
            states.add(controller.nodes.cluster().nodes["n1"].state)
            return "degraded" in states

        await until(degraded)
        assert "offline" not in states
        desk.fleet.nodes["n1"].start_engine()
        await until(lambda: link.silence is None and not controller.tasks.live)
        assert link.failure is None


async def test_of_a_batch_every_target_is_answered_although_one_task_is_removed_meanwhile(desk, monkeypatch):
    async with desk.running() as controller:
        link = controller.nodes.links["n1"]
        run, gate = link.run, asyncio.Event()

        async def slowly(command, heard=None):
            if "docker create" in command.script:
                await gate.wait()
            return await run(command)

        monkeypatch.setattr(link, "run", slowly)
        specs = tuple(TaskSpec(("sh", "-c", STAYS), needs=parse_target(node)) for node in ("n1", "n2"))
        submit = asyncio.create_task(controller.submission.submit(Submit(specs, {}, me(controller))))
        await until(lambda: {task.state for task in controller.tasks.live.values()} >= {"assigning", "running"})
        (waiting,) = [task for task in controller.tasks.live.values() if task.state == "assigning"]
        controller.ledger.forget(waiting, "removed", "a test")
        gate.set()
        one, other = await submit
        assert (one.task, other.task.state) == (None, "running")
        assert "removed" in one.message


async def test_a_label_that_is_no_id_is_shown_and_never_taken_in(desk, tmp_path):
    precious = tmp_path / "precious"
    precious.touch()
    async with desk.running() as controller:
        await desk.submit(STAYS)
        engine = desk.fleet.nodes["n1"].engine
        (ours,) = engine.containers.values()
        labels = {**ours.config.labels, TASK: str(precious), CONTROLLER: controller.tasks.controller}
        theirs = engine.create(type(ours.config)("theirs", ours.config.image, ["sleep", "600"], labels))
        engine.start(theirs)
        await until(lambda: theirs.id[:12] in controller.lookup.others())
        await controller.nodes.links["n1"].refresh()
        assert theirs.id not in {task.container for task in controller.tasks.live.values()}
        assert str(precious) not in controller.recovery.unremembered(me(controller))
        assert precious.exists()


async def test_a_name_that_is_the_id_of_another_task_hides_nothing(desk):
    async with desk.running() as controller:
        task = await desk.ended("true")
        spec = TaskSpec(("true",), name=task, needs=parse_target("n2"))
        (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
        await controller.commands.wait(start.task.id, 20)
        await controller.nodes.links["n1"].refresh()
        assert event_names(controller, task).count("adopted") == 0
        assert controller.lookup.find(task).id == task


async def test_a_shell_that_is_opened_while_its_connection_is_closed_is_no_answer(desk, monkeypatch):
    """As in a launch when the inventory changes."""
    async with desk.running() as controller:
        request = asyncssh.SSHClientChannel._make_request

        async def close_then(channel, *words):
            connection = channel.get_connection()  # there is none any more once another channel has aborted it
            answer = await request(channel, *words)
            connection.abort()
            await channel.wait_closed()
            return answer

        monkeypatch.setattr(asyncssh.SSHClientChannel, "_make_request", close_then)
        with pytest.raises(Unreachable, match="n1 closed the connection"):
            async with controller.nodes.links["n1"].stream(Command("true")):
                pass


async def test_what_a_node_said_while_the_state_could_not_be_written_is_not_forgotten_over_other_news(desk):
    engine, obstacle = desk.fleet.nodes["n1"].engine, desk.state / "state.json.new"
    async with desk.running() as controller:
        task = await desk.submit(STAYS)
        obstacle.mkdir()
        (container,) = engine.containers.values()
        engine.pause(container)
        await until(lambda: controller.ledger.stores.trouble)
        controller.ledger.note("news", "something else that can be written")
        obstacle.rmdir()
        controller.reconciler.retry()
        assert controller.lookup.task(task).state == "paused"
