"""A node that cannot do what a task needs keeps no task, and says why. Eight nodes with two GPUs, or a few."""

from __future__ import annotations

import json

import pytest

from agentless.controller.submit.request import Submit
from agentless.demo.fleet import Fleet, NodePlan
from agentless.errors import Refused
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from agentless.rules.nodes.breakdown import FIRST
from tests.fleet.client import until
from tests.fleet.desk import me

NO_TOOLKIT = 'could not select device driver "" with capabilities: [[gpu]]'
SENTENCE = "Docker on n1 cannot use NVIDIA GPUs; install nvidia-container-toolkit there and run: "
SLEEPS = ("sleep", "600")


FEW = pytest.mark.parametrize("count", [2], ids=["few"])
"""For tests that look at the broken node alone."""


@pytest.fixture
def count():
    return 8


@pytest.fixture
async def fleet(tmp_path, count):
    async with Fleet(tmp_path / "fleet", [NodePlan(f"n{number}", 2) for number in range(1, count + 1)]) as fleet:
        yield fleet


@pytest.fixture
async def broken(fleet):
    """The engines of n1 and of all nodes; the first cannot hand out GPUs."""
    engines = {name: node.engine for name, node in fleet.nodes.items()}
    engines["n1"].refusal = NO_TOOLKIT
    return engines


async def submit(controller, *targets, command=SLEEPS, **terms):
    specs = tuple(TaskSpec(command, needs=parse_target(target), terms=Terms(**terms)) for target in targets)
    return await controller.submission.submit(Submit(specs, {}, me(controller)))


def tasks(controller, starts):
    return [controller.lookup.find(start.task.id) for start in starts]


def node(controller, name="n1"):
    return controller.nodes.cluster([name]).nodes[name]


def later(desk, seconds):
    """Let the controller believe that so much time has passed."""
    desk.clock.ahead += seconds


async def launched(controller, task):
    await until(lambda: controller.lookup.find(task).container)
    return controller.lookup.find(task)


async def test_the_broken_node_of_eight_is_degraded_at_its_first_failure_and_the_task_runs_elsewhere(desk, broken):
    async with desk.running() as controller:
        (task,) = tasks(controller, await submit(controller, "1x", wait_for=0.0, retries=2))
        assert (task.state, task.node, task.attempt) == ("running", "n2", 1)
        assert (node(controller).state, broken["n1"].refused) == ("degraded", 1)
        assert node(controller).reason.startswith(SENTENCE)
        assert not broken["n1"].containers


@pytest.mark.slow
async def test_a_sweep_costs_no_task_a_try_and_the_broken_node_no_second_launch(desk, broken):
    async with desk.running() as controller:
        await submit(controller, "1x")
        found = tasks(controller, await submit(controller, *["1x"] * 10, retries=3))
        assert {(task.state, task.attempt) for task in found} == {("running", 1)}
        assert "n1" not in {task.node for task in found}
        assert broken["n1"].refused == 1


@FEW
async def test_who_names_the_broken_node_and_does_not_wait_is_refused_in_words(desk, broken):
    async with desk.running() as controller:
        for _ in range(2):  # by the launch, then without one
            (start,) = await submit(controller, "n1::0", wait_for=0.0)
            assert (start.task, start.exit_code) == (None, 3)
            assert SENTENCE in start.message
        assert broken["n1"].refused == 1
        assert not controller.tasks.live


@FEW
async def test_who_names_the_broken_node_waits_without_losing_a_try_until_it_works(desk, broken):
    async with desk.running() as controller:
        (start,) = await submit(controller, "n1::0", retries=1)
        assert (start.exit_code, start.task.state) == (0, "pending")
        assert SENTENCE in controller.views.view(controller.lookup.find(start.task.id)).reason
        broken["n1"].refusal = None
        later(desk, FIRST)
        assert (await launched(controller, start.task.id)).attempt == 1
        assert (node(controller).state, broken["n1"].refused) == ("online", 1)


@pytest.mark.slow
async def test_where_every_node_is_broken_each_is_tried_once_and_explain_says_why_of_each(desk, broken, monkeypatch):
    monkeypatch.setattr("agentless.rules.nodes.breakdown.FIRST", 3600.0)  # longer than a busy machine takes for this
    for engine in broken.values():
        engine.refusal = NO_TOOLKIT
    async with desk.running() as controller:
        (start,) = await submit(controller, "1x", retries=3)
        assert start.task.state == "pending"
        for _ in range(20):
            controller.scheduler._begin()
        assert [engine.refused for engine in broken.values()] == [1] * 8
        why = controller.explanations.explain(controller.lookup.find(start.task.id)).obstacles
        found = {name: [each.text for each in why if each.node == name] for name in broken}
        assert all(f"Docker on {name} cannot use NVIDIA GPUs" in found[name][0] for name in broken)


@FEW
async def test_one_of_those_who_wait_tries_a_broken_node_again_and_the_others_wait_on(desk, broken):
    async with desk.running() as controller:
        (first,) = await submit(controller, "n1::0")
        others = await submit(controller, *["n1::0", "n1::1"] * 3)
        assert broken["n1"].refused == 1
        later(desk, FIRST)
        await until(lambda: node(controller).observation.broken.pause == 2 * FIRST)
        assert broken["n1"].refused == 2
        assert {task.state for task in tasks(controller, [first, *others])} == {"pending"}


@pytest.mark.slow
async def test_a_task_without_gpus_says_nothing_about_a_node_that_cannot_hand_them_out(desk, broken):
    async with desk.running() as controller:
        await submit(controller, "1x")
        (plain,) = await submit(controller, "n1")
        later(desk, FIRST)
        controller.scheduler._begin()
        assert controller.lookup.find(plain.task.id).state == "pending"
        broken["n1"].refusal = None
        await submit(controller, "n1::0")
        await launched(controller, plain.task.id)
        assert node(controller).state == "online"


@FEW
async def test_a_person_who_has_repaired_it_lets_it_in_at_once(desk, broken):
    async with desk.running() as controller:
        await submit(controller, "1x")
        broken["n1"].refusal = None
        _, lifted = controller.exclusions.resume("n1", by=me(controller))
        assert "was degraded: Docker on n1 cannot use NVIDIA GPUs" in lifted[0]
        assert node(controller).state == "online"


@FEW
async def test_doctor_and_the_events_name_it(desk, broken):
    async with desk.running() as controller:
        await submit(controller, "1x")
        found = {check.check: check for check in await controller.doctor.examine(["n1"])}
        assert [name for name, check in found.items() if not check.ok] == ["toolkit"]
        assert found["toolkit"].detail.startswith(SENTENCE)
        events = [json.loads(event) for _, event in controller.tasks.history.events(0, -1)]
        assert [event["node"] for event in events if event.get("state") == "degraded"] == ["n1"]


@pytest.mark.slow
async def test_what_runs_on_a_broken_node_runs_on(desk, broken):
    async with desk.running() as controller:
        broken["n1"].refusal = None
        (before,) = tasks(controller, await submit(controller, "n1::0"))
        broken["n1"].refusal = NO_TOOLKIT
        await submit(controller, "n1::1")
        # As long as it is not known that the container of the launch was removed, it holds the GPU.
        await until(lambda: [gpu.state for gpu in node(controller).gpus] == ["allocated", "unknown"])
        assert controller.lookup.find(before.id).state == "running"


OLD_DRIVER = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver"


@pytest.mark.slow
async def test_an_image_for_which_a_driver_is_too_old_goes_to_another_node_and_the_first_one_stays_online(desk, broken):
    broken["n1"].refusal = broken["n2"].refusal = OLD_DRIVER
    async with desk.running() as controller:
        (task,) = tasks(controller, await submit(controller, "1x", wait_for=0.0, retries=1))
        assert (task.state, task.node, task.attempt) == ("running", "n3", 1)
        assert [node(controller, name).state for name in ("n1", "n2")] == ["online", "online"]


@pytest.mark.slow
async def test_an_image_for_which_every_driver_is_too_old_fails_in_words(desk, broken):
    for engine in broken.values():
        engine.refusal = OLD_DRIVER
    async with desk.running() as controller:
        (start,) = await submit(controller, "1x")
        assert (start.task.state, start.exit_code) == ("failed", 1)
        assert "the image requires cuda>=12.4, but the NVIDIA driver on n8 does not support it" in start.message
        assert [engine.refused for engine in broken.values()] == [1] * 8
        (start,) = await submit(controller, "n1::0")
        assert (start.task.state, start.exit_code) == ("failed", 1)


@FEW
async def test_an_engine_without_control_groups_refuses_limits_and_pauses_before_anything_is_sent(desk, fleet):
    fleet.nodes["n1"].engine.cgroups = "none"
    async with desk.running() as controller:
        spec = TaskSpec(SLEEPS, needs=parse_target("n1::0"), memory=1 << 30)
        (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
        assert (start.task, start.exit_code) == (None, 3)
        assert "Docker on n1 cannot limit memory: the memory control group is missing" in start.message
        (running,) = tasks(controller, await submit(controller, "n1::0"))
        with pytest.raises(Refused, match="Docker on n1 cannot pause: the freezer control group is missing"):
            await controller.commands.pause(running.id)
        assert controller.lookup.find(running.id).state == "running"
