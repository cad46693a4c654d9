"""Tasks that give way to others, on simulated nodes: n1 has four GPUs, n2 has one that somebody else uses."""

from __future__ import annotations

import contextlib

import orjson
import pytest

from agentless.controller.nodes.link import sampler
from agentless.controller.submit.request import Submit
from agentless.demo.fleet import Fleet, NodePlan
from agentless.errors import Unreachable
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec, on_targets
from agentless.model.tasks.terms import Terms
from agentless.model.usage.idle import IdlePolicy
from tests.fleet.client import until
from tests.fleet.desk import Desk, me
from tests.fleet.test_idle_gpus import pass_time, start

SAVES = ("sh", "-c", "trap 'echo saved; exit 0' TERM; while :; do sleep 0.05; done")

DEAF = ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")


async def submit(controller, target="1x", command=("sleep", "600"), grace=10.0, **terms):
    spec = TaskSpec(command, needs=parse_target(target), stop_grace=grace, terms=Terms(**terms))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    assert start.task, start.message
    return start.task.id


async def lend(controller, count, target="1x", **terms):
    """Preemptible tasks that run."""
    tasks = [await submit(controller, target, SAVES, preemptible=True, **terms) for _ in range(count)]
    await until(lambda: all(state(controller, task) == "running" for task in tasks))
    return tasks


@pytest.fixture
async def two(tmp_path, monkeypatch):
    """Two nodes with two GPUs each."""
    async with Fleet(tmp_path / "pair", [NodePlan(f"n{number}", 2) for number in (1, 2)]) as pair:
        config = tmp_path / "config" / "agentless"
        config.mkdir(parents=True)
        (config / "known_hosts").write_bytes(pair.known_hosts.read_bytes())
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        yield Desk(tmp_path / "desk", pair)


def state(controller, task):
    return controller.lookup.task(task).state


async def test_a_preemptible_task_gives_way_and_goes_back_to_the_queue(desk):
    async with desk.running() as controller:
        tasks = await lend(controller, 4)
        wanting = await submit(controller)
        await until(lambda: state(controller, wanting) == "running")
        (victim,) = [task for task in tasks if state(controller, task) == "preempted"]
        assert victim == tasks[-1]
        again = controller.lookup.find(victim)
        before = controller.lookup.task(victim)
        assert (again.id, again.state, again.preemptions) == (f"{victim}-2", "pending", 1)
        assert (again.created_at, again.tries, before.status.exit_code) == (before.created_at, 1, 0)
        await controller.stops.stop(wanting, "kill", by=me(controller))
        await until(lambda: controller.lookup.find(victim).state == "running")


async def test_whoever_submits_is_told_at_once_who_gives_way_and_until_when(two):
    async with two.running() as controller:
        victims = await lend(controller, 2, "2x")
        with nobody_is_asked(controller):
            whole = on_targets(TaskSpec(("true",), needs=parse_target("1x"), gang=Gang(2)), [])
            first, _ = await controller.submission.submit(Submit(tuple(whole), {}, me(controller)))
            owner = me(controller).name
            named = " and ".join(f"task {each} of {owner}" for each in victims)
            assert first.task.reason.startswith(f"preempts {named}; starts within ")
            assert first.task.reason.endswith("on n1 and n2")


async def test_what_waits_for_a_preempted_task_waits_for_its_next_try(desk):
    async with desk.running() as controller:
        *_, victim = await lend(controller, 4)
        waiting = await submit(controller, requires=(Requirement(victim),))
        wanting = await submit(controller)
        await until(lambda: state(controller, victim) == "preempted")
        await until(lambda: state(controller, wanting) == "running")
        assert (state(controller, f"{victim}-2"), state(controller, waiting)) == ("pending", "blocked")
        await controller.stops.stop(wanting, "kill", by=me(controller))
        await until(lambda: state(controller, f"{victim}-2") == "running")
        assert state(controller, waiting) == "blocked"
        await controller.stops.stop(f"{victim}-2", "kill", by=me(controller))
        await until(lambda: state(controller, waiting) == "cancelled")


def kept(controller, task):
    return controller.lookup.task(task).kept_place


@contextlib.contextmanager
def nobody_is_asked(controller):
    """As if the controller died after a place was written, and before anybody was asked."""
    controller.preemption._ask = lambda *_: None
    yield
    del controller.preemption._ask


async def waits_for_its_place(controller):
    """A task for which a place is kept, and the victim there."""
    with nobody_is_asked(controller):
        wanting = await submit(controller)
        await until(lambda: kept(controller, wanting))
    (victim,) = kept(controller, wanting).victims
    return wanting, victim


def requests(controller, task):
    """How often a task was asked to give way."""
    return sum(b'"stop-asked"' in event for _, event in controller.tasks.history.events(0, -1, task))


async def test_while_it_gives_way_both_say_so_and_nobody_else_gets_its_place(desk):
    async with desk.running() as controller:
        await lend(controller, 1, "n1::0-3")
        wanting, victim = await waits_for_its_place(controller)
        first = await submit(controller, priority=1000)
        task = controller.lookup.task(wanting)
        assert controller.views.view(task).reason == f"task {victim} of {task.owner} gives way for it on n1"
        found = controller.explanations.explain(task)
        assert found.preemption == f"preempts task {victim} of {task.owner}"
        assert "starts within" in found.summary
        controller.preemption.tick()
        await until(lambda: {state(controller, each) for each in (wanting, first)} == {"running"})
        gpus = [controller.lookup.task(each).placement.gpu_uuids for each in (wanting, first)]
        assert len(set(gpus)) == 2
        assert controller.lookup.task(first).victims == ()


async def test_a_dead_controller_goes_on_with_the_same_victim(desk):
    async with desk.running() as controller:
        tasks = await lend(controller, 4)
        wanting, victim = await waits_for_its_place(controller)
    async with desk.running() as controller:
        controller.preemption.tick()
        await until(lambda: state(controller, wanting) == "running")
        assert [task for task in tasks if state(controller, task) != "running"] == [victim]
        assert [requests(controller, task) for task in tasks] == [int(task == victim) for task in tasks]


@pytest.mark.slow
async def test_one_that_died_before_the_signal_was_sent_sends_it(desk, monkeypatch):
    async def dies(*_):
        raise Unreachable("the controller died here")

    async with desk.running() as controller:
        (victim,) = await lend(controller, 1, "n1::0-3")
        monkeypatch.setattr(controller.stops, "_end", dies)
        wanting = await submit(controller)
        await until(lambda: controller.lookup.task(victim).stop == "preempt")
    async with desk.running() as controller:
        await until(lambda: state(controller, wanting) == "running")
        assert (state(controller, victim), requests(controller, victim)) == ("preempted", 1)
        assert controller.lookup.find(victim).id == f"{victim}-2"


async def test_nobody_gives_way_for_a_task_that_was_stopped_meanwhile(desk):
    async with desk.running() as controller:
        await lend(controller, 1, "n1::0-3")
        wanting, victim = await waits_for_its_place(controller)
        await controller.stops.stop(wanting, "stop", by=me(controller))
    async with desk.running() as controller:
        controller.preemption.tick()
        assert (state(controller, victim), requests(controller, victim)) == ("running", 0)


async def test_one_that_gave_way_for_a_task_that_was_stopped_since_starts_again_and_nobody_else_is_asked(desk):
    async with desk.running() as controller:
        (other,) = await lend(controller, 1, "n1::0,1")
        victim = await submit(controller, "n1::2,3", DEAF, 1.0, preemptible=True)
        await until(lambda: state(controller, victim) == "running")
        wanting = await submit(controller, "2x")
        await until(lambda: controller.lookup.task(victim).stop == "preempt")
        await controller.stops.stop(wanting, "kill", by=me(controller))
        await until(lambda: controller.lookup.find(victim).id == f"{victim}-2")
        await until(lambda: controller.lookup.find(victim).state == "running")
        assert (state(controller, other), requests(controller, other)) == ("running", 0)
        events = [orjson.loads(document) for _, document in controller.tasks.history.events(0, 99, victim)]
        told = {each["event"]: each["cause"] for each in events}
        assert told["stop-asked"] == f"preempted: task {wanting} of {me(controller).name} needs its place"
        assert told["asker-ended"] == (
            f"task {wanting} of {me(controller).name} ended before it started; its stop was already sent, so this one "
            "still stops, and goes back to the queue"
        )


@pytest.mark.slow
async def test_a_victim_that_ends_by_itself_is_enough(desk):
    async with desk.running() as controller:
        tasks = await lend(controller, 4)
        wanting, victim = await waits_for_its_place(controller)
        await controller.stops.stop(victim, "kill", by=me(controller))
        await until(lambda: state(controller, wanting) == "running")
        controller.preemption.tick()
        assert sum(state(controller, task) == "running" for task in tasks) == 3
        assert state(controller, victim) == "killed"


async def test_if_the_place_does_not_become_free_it_waits_like_others_and_asks_nobody_else(desk):
    async with desk.running() as controller:
        tasks = await lend(controller, 4)
        wanting, victim = await waits_for_its_place(controller)
        desk.fleet.nodes["n1"].cut()
        await until(lambda: not controller.nodes.links["n1"].online)
        desk.clock.ahead = 200
        controller.deadlines.tick()
        assert (kept(controller, wanting), state(controller, wanting)) == (None, "pending")
        desk.clock.ahead = 0
        await desk.fleet.nodes["n1"].restore()
        await until(lambda: controller.nodes.links["n1"].online and not controller.nodes.silent())
        controller.scheduler._begin()
        controller.preemption.tick()
        assert [requests(controller, task) for task in tasks] == [0, 0, 0, 0]
        task = controller.lookup.task(wanting)
        assert controller.explanations.explain(task).preemption.startswith(
            f"preempts nobody else: it has preempted task {victim}"
        )
        await controller.stops.stop(tasks[0], "kill", by=me(controller))
        await until(lambda: state(controller, wanting) == "running")


async def gang(controller, *targets, command=("sleep", "600"), grace=10.0, **terms):
    spec = TaskSpec(command, gang=Gang(len(targets)), stop_grace=grace, terms=Terms(**terms))
    starts = await controller.submission.submit(Submit(tuple(on_targets(spec, targets)), {}, me(controller)))
    return [start.task.id for start in starts]


@pytest.mark.parametrize("ends_now", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_others_give_way_to_a_gang_on_all_of_its_nodes_or_nobody_does(two, ends_now):
    """Also if the controller dies after the places were written. The gang needs n1 and n2, and each has a victim."""
    async with two.running() as controller:
        tasks = [await submit(controller, target, SAVES, preemptible=True) for target in ("n1::0,1", "n2::0,1")]
        await until(lambda: [state(controller, task) for task in tasks] == ["running"] * 2)
        with nobody_is_asked(controller):
            members = await gang(controller, "n1::0", "n2::0")
            await until(lambda: all(kept(controller, member) for member in members))
        assert [kept(controller, member).victims for member in members] == [(task,) for task in tasks]
        reason = controller.views.view(controller.lookup.task(members[0])).reason
        assert " give way for it on n1 and n2" in reason
        if ends_now:
            await controller.stops.stop(members[1], "stop", by=me(controller))
    async with two.running() as controller:
        controller.preemption.tick()
        if ends_now:
            assert [requests(controller, task) for task in tasks] == [0, 0]
            return
        await until(lambda: [state(controller, member) for member in members] == ["running"] * 2)
        assert [state(controller, task) for task in tasks] == ["preempted"] * 2


async def test_all_who_give_way_to_a_gang_are_asked_in_one_write(two):
    async with two.running() as controller:
        tasks = [await submit(controller, target, SAVES, preemptible=True) for target in ("n1::0,1", "n2::0,1")]
        await until(lambda: [state(controller, task) for task in tasks] == ["running"] * 2)
        members = await gang(controller, "n1::0", "n2::0")
        await until(lambda: [state(controller, member) for member in members] == ["running"] * 2)
        asked = [stop_asked(controller, task) for task in tasks]
        assert asked[0] == asked[1]
        assert f"task {members[0]} of " in asked[0][1]


def stop_asked(controller, task):
    """When it was asked to give way, and why."""
    events = [orjson.loads(event) for _, event in controller.tasks.history.events(0, -1, task)]
    [(time, cause)] = [(each["at"], each["cause"]) for each in events if each["event"] == "stop-asked"]
    return time, cause


async def test_a_preemptible_gang_gives_way_as_one_and_comes_back_as_one(two):
    async with two.running() as controller:
        members = await gang(controller, "n1::0,1", "n2::0,1", command=SAVES, preemptible=True)
        await until(lambda: [state(controller, member) for member in members] == ["running"] * 2)
        wanting = await submit(controller, "n1::0")
        await until(lambda: state(controller, wanting) == "running")
        await until(lambda: [state(controller, member) for member in members] == ["preempted"] * 2)
        again = [controller.lookup.task(f"{member}-2") for member in members]
        assert [(one.state, one.tries, one.preemptions) for one in again] == [("pending", 1, 1)] * 2
        assert [one.created_at for one in again] == [controller.lookup.task(member).created_at for member in members]
        assert [requests(controller, member) for member in members] == [1, 1]
        await controller.stops.stop(wanting, "kill", by=me(controller))
        await until(lambda: [state(controller, f"{member}-2") for member in members] == ["running"] * 2)


@pytest.mark.slow
async def test_what_is_lent_is_told_apart(desk):
    async with desk.running() as controller:
        await lend(controller, 1, "n1::0,1")
        await submit(controller, "n1::2")
        await until(lambda: len([t for t in controller.tasks.live.values() if t.container]) == 2)
        desk.clock.ahead = 3600
        (share,) = controller.run_history.shares()
        assert (round(share.gpu_hours), round(share.lent_gpu_hours), share.gpus) == (1, 2, 3)
        now = controller.clock.now()
        found = await controller.usage.view((now - 7200, now), "owner")
        assert (round(found.total.gpu_hours), round(found.total.lent_gpu_hours)) == (3, 2)


@pytest.mark.slow
async def test_by_the_inventory_a_task_that_leaves_its_gpus_idle_gives_way(desk, monkeypatch):
    monkeypatch.setattr(sampler, "SAMPLE_EVERY", 0.05)
    async with desk.running() as controller:
        controller.idle.policy = IdlePolicy(report=60, preempt=120)
        idle = await start(desk, controller, SAVES, "n1::0-3")
        wanting = await submit(controller)
        await pass_time(desk, controller, 90)
        assert "may be preempted in" in controller.views.view(controller.lookup.task(idle)).reason
        assert state(controller, wanting) == "pending"
        await pass_time(desk, controller, 60)
        await until(lambda: state(controller, wanting) == "running")
        assert (state(controller, idle), controller.lookup.find(idle).id) == ("preempted", f"{idle}-2")
