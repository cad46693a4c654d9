"""The queue, on simulated nodes: n1 has four GPUs, n2 has one that somebody else uses."""

from __future__ import annotations

import gc

import pytest

from agentless.controller.nodes.link.sampler import SAMPLE_EVERY, SAMPLE_SOON
from agentless.controller.submit import admission
from agentless.controller.submit.request import Submit
from agentless.errors import Unreachable
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task_event import Launched
from agentless.model.tasks.terms import Terms
from agentless.rules.explain.obstacles import never, refusal
from agentless.rules.scheduling.plan import Plan
from tests.fleet.client import until
from tests.fleet.desk import Desk, me


async def submit(controller, target="1x", command=("sleep", "600"), **terms):
    spec = TaskSpec(command, needs=parse_target(target), terms=Terms(**terms))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    return start


async def ids(controller, count, target="1x", **more):
    return [(await submit(controller, target, **more)).task.id for _ in range(count)]


def states(controller, tasks):
    return [controller.lookup.find(task).state for task in tasks]


def launches(controller, task):
    return sum(b'"event":"launched"' in event for _, event in controller.tasks.history.events(0, -1, task))


async def test_who_finds_all_gpus_busy_waits_and_is_next_when_one_is_free(desk):
    async with desk.running() as controller:
        tasks = await ids(controller, 6)
        assert states(controller, tasks) == ["running"] * 4 + ["pending"] * 2
        await controller.stops.stop(tasks[2], "kill", by=me(controller))
        await until(lambda: controller.lookup.find(tasks[4]).state == "running")
        assert states(controller, tasks) == ["running", "running", "killed", "running", "running", "pending"]
        held = [controller.lookup.find(tasks[n]).placement.gpu_uuids for n in (0, 1, 3, 4)]
        assert len(set(held)) == 4


async def test_who_does_not_want_to_wait_is_refused_and_leaves_nothing(desk):
    async with desk.running() as controller:
        await submit(controller, "n1::0-3")
        start = await submit(controller, wait_for=0.0)
        assert (start.task, start.exit_code) == (None, 3)
        assert "GPUs 0-3 are allocated: held by task" in start.message
        assert len(controller.tasks.live) == 1


async def test_what_can_never_be_had_is_refused_at_once(desk):
    async with desk.running() as controller:
        start = await submit(controller, "1x:900G")
        assert (start.task, start.exit_code) == (None, 3)
        assert "no node can run" in start.message


async def test_who_has_waited_for_long_enough_gives_up(desk):
    async with desk.running() as controller:
        await submit(controller, "n1::0-3")
        task = (await submit(controller, wait_for=600.0)).task.id
        controller.deadlines.tick()
        assert controller.lookup.find(task).state == "pending"
        desk.clock.ahead = 601
        controller.deadlines.tick()
        over = controller.lookup.find(task).status
        assert (over.state, over.reason) == ("cancelled", "gave up after 10m 0s in the queue (--wait-for)")


async def test_who_is_stopped_in_the_queue_never_starts(desk):
    async with desk.running() as controller:
        first, second = await ids(controller, 2, "n1::0-3")
        assert (await controller.stops.stop(second, "stop", by=me(controller))).state == "cancelled"
        await controller.stops.stop(first, "kill", by=me(controller))
        assert controller.lookup.find(second).placement is None


@pytest.mark.slow
async def test_who_is_queued_and_has_a_turn_at_once_is_launched_once(desk, monkeypatch, caplog):
    """The queue may be looked at again before the submit is answered."""
    async with desk.running() as controller:
        look = controller.queue.look
        monkeypatch.setattr(controller.queue, "look", lambda others=(): Plan() if others else look())
        start = await submit(controller)
        assert (start.exit_code, start.message) == (0, "")
        await until(lambda: controller.lookup.find(start.task.id).state == "running")
        assert launches(controller, start.task.id) == 1
        gc.collect()
    assert "IllegalMove" not in caplog.text


async def test_who_is_seen_to_run_before_the_launch_is_answered_runs(desk, monkeypatch, caplog):
    async with desk.running() as controller:
        launcher = controller.launcher
        launch = launcher._try

        async def slow(link, task, prepared, **how):
            container = await launch(link, task, prepared, **how)
            controller.ledger.apply(task.id, Launched(container), "seen by somebody else")
            return container

        monkeypatch.setattr(launcher, "_try", slow)
        start = await submit(controller, wait_for=0.0)
        assert (start.exit_code, start.task.state) == (0, "running")
        assert launches(controller, start.task.id) == 1
        holders = await ids(controller, 3)
        queued = (await submit(controller)).task.id
        await controller.stops.stop(holders[0], "kill", by=me(controller))
        await until(lambda: launches(controller, queued) == 1 and queued not in controller.tasks.launching)
        assert controller.lookup.find(queued).state == "running"
        gc.collect()
    assert "IllegalMove" not in caplog.text


async def test_a_higher_priority_comes_first(desk):
    async with desk.running() as controller:
        first, second = await ids(controller, 2, "n1::0-3")
        urgent = (await submit(controller, "n1::0-3", priority=5)).task.id
        await controller.stops.stop(first, "kill", by=me(controller))
        await until(lambda: controller.lookup.find(urgent).state == "running")
        assert controller.lookup.find(second).state == "pending"


async def test_the_queue_outlives_the_controller(desk):
    async with desk.running() as controller:
        first, second, third = await ids(controller, 3, "n1::0-3")
    async with desk.running() as controller:
        assert states(controller, (first, second, third)) == ["running", "pending", "pending"]
        await controller.stops.stop(first, "kill", by=me(controller))
        await until(lambda: controller.lookup.find(second).state == "running")
        assert controller.lookup.find(third).state == "pending"


async def test_a_gpu_that_a_stranger_leaves_is_given_to_who_waits(desk):
    async with desk.running() as controller:
        task = (await submit(controller, "n2::0")).task.id
        assert controller.lookup.find(task).state == "pending"
        desk.fleet.nodes["n2"]._foreign.end()
        await until(lambda: controller.lookup.find(task).state == "running")


async def test_a_gpu_that_a_stranger_has_beside_a_task_is_not_promised_for_the_end_of_that(desk):
    """n2's GPU is a stranger's."""
    async with desk.running() as controller:
        terms = Terms(time_limit=600.0)
        spec = TaskSpec(("sleep", "600"), needs=parse_target("n2::0"), terms=terms, share=True)
        (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
        await until(lambda: ", shared with " in controller.nodes.cluster().nodes["n2"].gpus[0].reason)
        task = (await submit(controller, "n2::0")).task.id
        await until(lambda: controller.queue.plan.promises.get(task))
        found = controller.explanations.explain(controller.lookup.find(task))
        help_ = f"when task {start.task.id} of {start.task.owner} ends and the foreign process on GPU 0 of n2 ends"
        assert (found.expected_start, found.remedies) == (None, {"n2": (help_,)})
        assert f"held by task {start.task.id} of" in found.obstacles[0].text


async def test_who_loses_a_race_with_another_controller_waits_on(desk, tmp_path, monkeypatch):
    other = Desk(tmp_path / "other", desk.fleet)
    async with desk.running() as mine, other.running() as theirs:
        link = theirs.nodes.links["n1"]
        monkeypatch.setattr(link.cache, "_on_change", lambda: None)
        monkeypatch.setattr(link.cache, "_on_sighting", lambda _: None)
        monkeypatch.setattr(link.cache, "_remember", lambda *_: None)  # it has not heard of the first task
        first = (await submit(mine, "n1::0")).task.id
        second = (await submit(theirs, "n1::0")).task
        assert (second.state, "GPU 0 is held by task" in second.reason) == ("pending", True)
        monkeypatch.undo()
        await link.refresh()
        await mine.stops.stop(first, "kill", by=me(mine))
        await until(lambda: theirs.lookup.find(second.id).state == "running")


@pytest.mark.parametrize(
    ("target", "why"),
    [("n1::0", "GPU 0 is allocated: held by"), ("1x", "needs 1 GPU; 0 of 4 on n1 and 0 of 1 on n2 are free")],
)
async def test_who_waits_is_told_why(desk, target, why):
    async with desk.running() as controller:
        await submit(controller, "n1::0-3")
        task = (await submit(controller, target)).task
        assert (task.state, why in task.reason) == ("pending", True)
        waits = controller.lookup.find(task.id)
        await until(
            lambda: controller.explanations.outlook(waits).reason.endswith(" ends (no time limit, so no estimate)")
        )


async def test_explain_names_the_holders_and_the_time_at_which_it_starts(desk):
    async with desk.running() as controller:
        holders = await ids(controller, 4, time_limit=600.0)
        task = (await submit(controller, "2x")).task.id
        await until(lambda: controller.queue.plan.promises)
        found = controller.explanations.explain(controller.lookup.find(task))
        assert "is number 1 in the queue; starts within 10m" in found.summary
        (on_n1,) = [obstacle for obstacle in found.obstacles if obstacle.node == "n1"]
        assert all(any(holder in line for line in on_n1.details) for holder in holders)
        running = controller.explanations.explain(controller.lookup.find(holders[0]))
        assert running.summary == f"task {holders[0]} is running, not pending"
        failed = (await submit(controller, "n1", command=("sh", "-c", "exit 7"))).task.id
        await until(lambda: not controller.lookup.find(failed).live)
        ended = controller.explanations.explain(controller.lookup.find(failed)).summary
        assert ended.startswith(f"task {failed} has ended (failed with exit code 7")
        assert ended.endswith(f"to see its output, run: agentless logs {failed}")


async def test_explain_names_to_whom_it_is_promised_what_is_free_and_what_would_help(desk):
    async with desk.running() as controller:
        await submit(controller, "n1::0-2", time_limit=3600.0)
        first = (await submit(controller, "4x")).task.id
        await until(lambda: controller.queue.plan.promises.get(first))
        second = (await submit(controller)).task.id
        await until(lambda: second in controller.queue.plan.promises)
        found = controller.explanations.explain(controller.lookup.find(second))
        asked = controller.explanations.what_if(TaskSpec(("true",), needs=parse_target("1x")), controller.tasks.owner)
        promised = f"GPU 3 is free but promised to task {first} of {controller.tasks.owner}, starting in "
        for each in (found, asked):
            (on_n1,) = [obstacle for obstacle in each.obstacles if obstacle.node == "n1"]
            assert [line.startswith(promised) for line in on_n1.details] == [True]
            assert each.remedies["n1"][0] in ("--time-limit 58m or less", "--time-limit 59m or less")
        start = await submit(controller, wait_for=0.0, time_limit=58 * 60.0)
        assert (start.exit_code, start.task.gpus) == (0, (3,))


@pytest.mark.slow
async def test_a_what_if_and_a_submit_say_the_same_of_a_node_that_cannot_be_reached(desk):
    async with desk.running() as controller:
        link = controller.nodes.links["n2"]
        await link.close()
        link.connection._lost(Unreachable("n2: no route to host"))
        start = await submit(controller, "n2::0")
        found = controller.explanations.what_if(
            TaskSpec(("true",), needs=parse_target("n2::0")), controller.tasks.owner
        )
        assert (start.exit_code, start.message) == (4, "n2 cannot be reached: no route to host")
        assert found.summary == "n2::0 would be refused: cannot reach any matching node"
        assert [(each.node, each.text) for each in found.obstacles] == [("n2", start.message)]


async def test_who_waits_for_a_process_is_told_so_and_blames_no_task(desk):
    """n2's GPU is a stranger's, and nobody else waits."""
    async with desk.running() as controller:
        task = (await submit(controller, "n2::0")).task.id
        await until(lambda: controller.queue.plan.promises.get(task))
        found = controller.explanations.explain(controller.lookup.find(task))
        words = "is number 1 in the queue; starts on n2 when the foreign process on GPU 0 ends"
        assert words in found.summary


async def test_a_task_that_no_node_can_ever_start_any_more_is_told_so(desk):
    """Its GPU is taken out of the inventory while it waits."""
    async with desk.running() as controller:
        first, task = await ids(controller, 2, "n1::0")
        await until(lambda: controller.lookup.find(first).state == "running")
    text = desk.inventory.read_text()
    desk.inventory.write_text(text.replace("n1: {", "n1: {exclude_gpus: [0], "))
    async with desk.running() as controller:
        await controller.nodes.heard()
        assert controller.lookup.find(first).state == "running"
        found = controller.explanations.explain(controller.lookup.find(task))
        assert found.summary.endswith("in the queue; no node can run it")
        assert controller.explanations.outlook(controller.lookup.find(task)).reason == "no node can run n1::0"


async def test_what_would_start_now_is_told_with_the_time(desk):
    async with desk.running() as controller:
        found = controller.explanations.what_if(TaskSpec(("true",), needs=parse_target("1x")), controller.tasks.owner)
        assert found.summary == "1x would start now, on n1::0"
        assert found.expected_start is not None


async def test_a_node_is_looked_at_more_often_while_somebody_waits_for_a_stranger_to_leave(desk):
    """n2's GPU is a stranger's."""
    async with desk.running() as controller:
        link = controller.nodes.links["n2"]
        assert link.sampler.every == SAMPLE_EVERY
        task = (await submit(controller, "n2::0")).task.id
        await until(lambda: link.sampler.every == SAMPLE_SOON)
        assert controller.nodes.links["n1"].sampler.every == SAMPLE_EVERY
        await controller.stops.stop(task, "stop", by=me(controller))
        await until(lambda: link.sampler.every == SAMPLE_EVERY)


@pytest.mark.parametrize("dry", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("gpus", "exit_code"), [("2x", 0), ("9x", 3)])
async def test_why_a_sweep_does_not_start_is_found_out_once_for_all_its_tasks(desk, monkeypatch, gpus, exit_code, dry):
    """On a large cluster that takes so long that nobody else would be served meanwhile."""
    async with desk.running() as controller:
        await submit(controller, "n1::0-3")
        looks = []
        monkeypatch.setattr(admission, "never", lambda *wanted: looks.append(wanted) or never(*wanted))
        monkeypatch.setattr(admission, "refusal", lambda *wanted: looks.append(wanted) or refusal(*wanted))
        specs = [
            TaskSpec(("echo", str(number)), needs=parse_target(target), parameters={"n": str(number)})
            for number in range(20)
            for target in (gpus, "n1::1")
        ]
        found = await controller.submission.submit(Submit(tuple(specs), {}, me(controller), dry_run=dry))
        assert [start.exit_code for start in found] == [exit_code, 0] * 20
        assert len(looks) <= 6
