"""The queue, on simulated nodes: n1 has four GPUs, n2 has one that somebody else uses."""

from __future__ import annotations

import pytest

from agentless.controller import intake
from agentless.controller.intake import Submit
from agentless.controller.link import SAMPLE_EVERY, SAMPLE_SOON
from agentless.model.needs import parse_target
from agentless.model.spec import TaskSpec
from agentless.model.terms import Terms
from agentless.rules.explain import never, refusal
from tests.fleet.client import until
from tests.fleet.desk import Desk


async def submit(controller, target="1x", command=("sleep", "600"), **terms):
    spec = TaskSpec(command, needs=parse_target(target), terms=Terms(**terms))
    (start,) = await controller.intake.submit(Submit((spec,), {}))
    return start


async def ids(controller, count, target="1x", **more):
    return [(await submit(controller, target, **more)).task.id for _ in range(count)]


def states(controller, tasks):
    return [controller.core.find(task).state for task in tasks]


async def test_who_finds_all_gpus_busy_waits_and_is_next_when_one_is_free(desk):
    async with desk.running() as controller:
        tasks = await ids(controller, 6)
        assert states(controller, tasks) == ["running"] * 4 + ["pending"] * 2
        await controller.actions.stop(tasks[2], "kill")
        await until(lambda: controller.core.find(tasks[4]).state == "running")
        assert states(controller, tasks) == ["running", "running", "killed", "running", "running", "pending"]
        held = [controller.core.find(tasks[n]).placement.gpu_uuids for n in (0, 1, 3, 4)]
        assert len(set(held)) == 4


async def test_who_does_not_want_to_wait_is_refused_and_leaves_nothing(desk):
    async with desk.running() as controller:
        await submit(controller, "n1::0-3")
        start = await submit(controller, wait_for=0.0)
        assert (start.task, start.exit_code) == (None, 3)
        assert "GPUs 0-3 are allocated: held by task" in start.message
        assert len(controller.core.tasks) == 1


async def test_what_can_never_be_had_is_refused_at_once(desk):
    async with desk.running() as controller:
        start = await submit(controller, "1x:900G")
        assert (start.task, start.exit_code) == (None, 3)
        assert "can never be had here" in start.message


async def test_who_has_waited_for_long_enough_gives_up(desk):
    async with desk.running() as controller:
        await submit(controller, "n1::0-3")
        task = (await submit(controller, wait_for=600.0)).task.id
        controller.timer.tick()
        assert controller.core.find(task).state == "pending"
        desk.clock.ahead = 601
        controller.timer.tick()
        over = controller.core.find(task).status
        assert (over.state, over.reason) == ("cancelled", "gave up after 10m 0s in the queue (--wait-for)")


async def test_who_is_stopped_in_the_queue_never_starts(desk):
    async with desk.running() as controller:
        first, second = await ids(controller, 2, "n1::0-3")
        assert (await controller.actions.stop(second, "stop")).state == "cancelled"
        await controller.actions.stop(first, "kill")
        assert controller.core.find(second).placement is None


async def test_a_higher_priority_comes_first(desk):
    async with desk.running() as controller:
        first, second = await ids(controller, 2, "n1::0-3")
        urgent = (await submit(controller, "n1::0-3", priority=5)).task.id
        await controller.actions.stop(first, "kill")
        await until(lambda: controller.core.find(urgent).state == "running")
        assert controller.core.find(second).state == "pending"


async def test_the_queue_outlives_the_controller(desk):
    async with desk.running() as controller:
        first, second, third = await ids(controller, 3, "n1::0-3")
    async with desk.running() as controller:
        assert states(controller, (first, second, third)) == ["running", "pending", "pending"]
        await controller.actions.stop(first, "kill")
        await until(lambda: controller.core.find(second).state == "running")
        assert controller.core.find(third).state == "pending"


async def test_a_gpu_that_a_stranger_leaves_is_given_to_who_waits(desk):
    async with desk.running() as controller:
        task = (await submit(controller, "n2::0")).task.id
        assert controller.core.find(task).state == "pending"
        desk.fleet.nodes["n2"]._foreign.end()
        await until(lambda: controller.core.find(task).state == "running")


async def test_a_gpu_that_a_stranger_has_beside_a_task_is_not_promised_for_the_end_of_that(desk):
    """n2's GPU is a stranger's."""
    async with desk.running() as controller:
        terms = Terms(time_limit=600.0)
        spec = TaskSpec(("sleep", "600"), needs=parse_target("n2::0"), terms=terms, share=True)
        (start,) = await controller.intake.submit(Submit((spec,), {}))
        await until(lambda: ", beside " in controller.core.cluster().nodes["n2"].gpus[0].reason)
        task = (await submit(controller, "n2::0")).task.id
        await until(lambda: controller.scheduler.plan.promises.get(task))
        found = controller.scheduler.explain(controller.core.find(task))
        assert (found.expected_start, found.remedies) == (None, {})
        assert f"held by task {start.task.id} of" in found.obstacles[0].text


async def test_who_loses_a_race_with_another_controller_waits_on(desk, tmp_path, monkeypatch):
    other = Desk(tmp_path / "other", desk.fleet)
    async with desk.running() as mine, other.running() as theirs:
        link = theirs.core.links["n1"]
        monkeypatch.setattr(link, "_on_change", lambda _: None)
        monkeypatch.setattr(link, "_on_sighting", lambda *_: None)
        monkeypatch.setattr(link, "_remember", lambda *_: None)  # it has not heard of the first task
        first = (await submit(mine, "n1::0")).task.id
        second = (await submit(theirs, "n1::0")).task
        assert (second.state, "GPU 0 is held by task" in second.reason) == ("pending", True)
        monkeypatch.undo()
        await link.refresh()
        await mine.actions.stop(first, "kill")
        await until(lambda: theirs.core.find(second.id).state == "running")


@pytest.mark.parametrize(
    ("target", "why"),
    [("n1::0", "GPU 0 is allocated: held by"), ("1x", "1 GPU is asked for and 0 of 4 on n1 are free")],
)
async def test_who_waits_is_told_why(desk, target, why):
    async with desk.running() as controller:
        await submit(controller, "n1::0-3")
        task = (await submit(controller, target)).task
        assert (task.state, why in task.reason) == ("pending", True)


async def test_explain_names_the_holders_and_the_time_at_which_it_starts(desk):
    async with desk.running() as controller:
        holders = await ids(controller, 4, time_limit=600.0)
        task = (await submit(controller, "2x")).task.id
        await until(lambda: controller.scheduler.plan.promises)
        found = controller.scheduler.explain(controller.core.find(task))
        assert "is number 1 in the queue; it starts in 10m" in found.summary
        (on_n1,) = [obstacle for obstacle in found.obstacles if obstacle.node == "n1"]
        assert all(any(holder in line for line in on_n1.details) for holder in holders)
        running = controller.scheduler.explain(controller.core.find(holders[0]))
        assert running.summary == f"task {holders[0]} is running: it waits for nothing"


async def test_a_node_is_looked_at_more_often_while_somebody_waits_for_a_stranger_to_leave(desk):
    """n2's GPU is a stranger's."""
    async with desk.running() as controller:
        link = controller.core.links["n2"]
        assert link._every == SAMPLE_EVERY
        task = (await submit(controller, "n2::0")).task.id
        await until(lambda: link._every == SAMPLE_SOON)
        assert controller.core.links["n1"]._every == SAMPLE_EVERY
        await controller.actions.stop(task, "stop")
        await until(lambda: link._every == SAMPLE_EVERY)


@pytest.mark.parametrize(("gpus", "exit_code", "dry"), [("2x", 0, False), ("9x", 3, False), ("2x", 3, True)])
async def test_why_a_sweep_does_not_start_is_found_out_once_for_all_its_tasks(desk, monkeypatch, gpus, exit_code, dry):
    """On a large cluster that takes so long that nobody else would be served meanwhile."""
    async with desk.running() as controller:
        await submit(controller, "n1::0-3")
        looks = []
        monkeypatch.setattr(intake, "never", lambda *wanted: looks.append(wanted) or never(*wanted))
        monkeypatch.setattr(intake, "refusal", lambda *wanted: looks.append(wanted) or refusal(*wanted))
        specs = [
            TaskSpec(("echo", str(number)), needs=parse_target(target), parameters={"n": str(number)})
            for number in range(20)
            for target in (gpus, "n1::1")
        ]
        found = await controller.intake.submit(Submit(tuple(specs), {}, dry_run=dry))
        assert [start.exit_code for start in found] == [exit_code, 3 if dry else 0] * 20
        assert len(looks) <= 4
