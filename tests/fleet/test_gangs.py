"""A gang runs on all of its nodes or on none, whatever a node does. Three nodes with two GPUs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from agentless.controller.gangs.members import MemberNodes
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.submit.request import Submit
from agentless.demo.engine.container import Config
from agentless.demo.engine.engine import DEFAULT_IMAGE, Complaint
from agentless.demo.fleet import Fleet, NodePlan
from agentless.errors import Unreachable
from agentless.model.containers.claim import labels_of
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.spec import TaskSpec, on_targets
from agentless.model.tasks.task import Pending, Placement
from agentless.model.tasks.task_id import first_try, new_task_id
from agentless.model.tasks.terms import Terms
from agentless.rules.tasks.gangs.meeting import PORTS
from agentless.rules.tasks.reconcile import LAUNCH_BOUND
from tests.fleet.client import until
from tests.fleet.desk import me

NO_TOOLKIT = 'could not select device driver "" with capabilities: [[gpu]]'


@pytest.fixture
async def fleet(tmp_path):
    async with Fleet(tmp_path / "fleet", [NodePlan(f"n{number}", 2) for number in (1, 2, 3)]) as fleet:
        yield fleet


def gang(*targets, size=2, script="sleep 600", **terms):
    spec = TaskSpec(("sh", "-c", script), gang=Gang(size), terms=Terms(**terms), stop_grace=0.2)
    return on_targets(spec, targets)


async def submit(controller, specs):
    starts = await controller.submission.submit(Submit(tuple(specs), {}, me(controller)))
    return [first_try(start.task.id) for start in starts]


def states(controller, ids):
    return [controller.lookup.find(each).state for each in ids]


def containers(desk):
    return {name: [each.state for each in node.engine.containers.values()] for name, node in desk.fleet.nodes.items()}


async def all_run(controller, ids):
    await until(lambda: states(controller, ids) == ["running"] * len(ids))


async def test_all_members_start_and_know_each_other(desk):
    async with desk.running() as controller:
        words = 'echo "$NODE_RANK $AGENTLESS_NODES $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT"'
        ids = await submit(controller, gang("n1::0", "n2::0,1", script=words))
        for task in ids:
            await controller.commands.wait(task, 20)
        lines = [(await desk.log(task))[1].decode().split() for task in ids]
        assert [line[:4] for line in lines] == [["0", "n1,n2", "3", "1"], ["1", "n1,n2", "3", "2"]]
        assert lines[0][4:] == lines[1][4:]
        assert 29500 <= int(lines[0][5]) < 32768


async def test_one_member_that_fails_ends_the_others(desk):
    async with desk.running() as controller:
        ids = await submit(controller, gang("n1::0", "n2::0", script='[ "$NODE_RANK" = 1 ] && exit 7; sleep 600'))
        await until(lambda: states(controller, ids) == ["stopped", "failed"])
        assert controller.lookup.find(ids[0]).status.reason == "rank 1 on n2 failed with exit code 7"
        assert (await controller.commands.wait(ids[0], 5)).id == ids[1]


async def test_with_continue_the_others_go_on(desk):
    async with desk.running() as controller:
        spec = TaskSpec(
            ("sh", "-c", '[ "$NODE_RANK" = 1 ] && exit 7; sleep 600'), gang=Gang(2, on_member_failure="continue")
        )
        ids = await submit(controller, on_targets(spec, ("n1::0", "n2::0")))
        await until(lambda: states(controller, ids) == ["running", "failed"])
        controller.gang_ends.tick()
        await asyncio.sleep(0)
        assert controller.lookup.find(ids[0]).stop is None


async def test_all_of_a_gang_are_tried_again_when_one_has_failed(desk):
    async with desk.running() as controller:
        script = '[ "$NODE_RANK" = 0 ] || [ "${AGENTLESS_TASK_ID%-2}" != "$AGENTLESS_TASK_ID" ] || exit 7; sleep 600'
        ids = await submit(controller, gang("n1::0", "n2::0", script=script, retries=1, backoff=0.1))
        await until(lambda: [controller.lookup.find(task).attempt for task in ids] == [2, 2])
        await all_run(controller, ids)
        assert states(controller, [f"{task}-1" for task in ids]) == ["stopped", "failed"]


async def test_stop_retry_and_rm_mean_all(desk):
    async with desk.running() as controller:
        ids = await submit(controller, [replace(one, name="pair") for one in gang("n1::0", "n2::0")])
        await controller.stops.stop(ids[1], "kill", by=me(controller))
        assert states(controller, ids) == ["killed", "killed"]
        controller.retries.retry("pair", by=me(controller))
        await all_run(controller, ids)
        assert controller.lookup.find("pair").id == f"{ids[0]}-2"
        for task in ids:  # the second is gone with the first
            await controller.removal.remove(task, force=True, by=me(controller))
        assert not controller.tasks.live
        assert containers(desk) == {"n1": [], "n2": [], "n3": []}


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.slow)])
async def test_a_node_that_refuses_at_the_last_moment_leaves_no_half_gang(desk, times, monkeypatch):
    """It creates its container, and does not start it. Each time the others are undone, and it is told why."""
    monkeypatch.setattr("agentless.rules.nodes.breakdown.FIRST", 3600.0)  # longer than a busy machine takes for this
    async with desk.running() as controller:
        engine = desk.fleet.nodes["n2"].engine
        engine.refusal = NO_TOOLKIT
        while engine.refused < 2 * times:
            starts = await controller.submission.submit(Submit(gang("n1::0", "n2::0"), {}, me(controller)))
            if not (ids := [start.task.id for start in starts if start.task]):
                continue  # a node of a busy machine was silent for a moment
            assert states(controller, ids) == ["pending"] * 2
            assert containers(desk) == {"n1": [], "n2": [], "n3": []}
            reasons = {controller.lookup.find(task).status.reason for task in ids}
            assert all(not reason or reason.startswith("rank 1 could not start on n2: ") for reason in reasons)
            await controller.removal.remove(ids[0], force=True, by=me(controller))
            controller.nodes.links["n2"].breakdowns.mended()


async def test_a_gang_without_targets_goes_to_another_node_when_one_refuses(desk):
    async with desk.running() as controller:
        desk.fleet.nodes["n1"].engine.refusal = NO_TOOLKIT
        ids = await submit(controller, gang("1x"))
        await all_run(controller, ids)
        assert [controller.lookup.find(task).node for task in ids] == ["n2", "n3"]
        assert containers(desk) == {"n1": [], "n2": ["running"], "n3": ["running"]}


async def test_a_member_that_cannot_be_created_undoes_the_others(desk, monkeypatch):
    engine = desk.fleet.nodes["n2"].engine

    def refuse(config):
        raise Complaint("no space left on device")

    async with desk.running() as controller:
        with monkeypatch.context() as broken:
            broken.setattr(engine, "create", refuse)
            ids = await submit(controller, gang("n1::0", "n2::0"))
            assert states(controller, ids) == ["pending"] * 2
            assert containers(desk) == {"n1": [], "n2": [], "n3": []}
        desk.clock.ahead += 3600
        await all_run(controller, ids)


async def test_a_gang_that_does_not_wait_is_refused_whole(desk):
    async with desk.running() as controller:
        desk.fleet.nodes["n2"].engine.refusal = NO_TOOLKIT
        starts = await controller.submission.submit(Submit(gang("n1::0", "n2::0", wait_for=0.0), {}, me(controller)))
        assert [(start.task, start.exit_code) for start in starts] == [(None, 3)] * 2
        assert "rank 1 could not start on n2" in starts[0].message
        assert not controller.tasks.live
        assert containers(desk) == {"n1": [], "n2": [], "n3": []}


async def test_a_command_that_no_node_can_start_ends_the_gang(desk):
    async with desk.running() as controller:
        spec = TaskSpec(("no-such-program",), gang=Gang(2))
        ids = await submit(controller, on_targets(spec, ("n1::0", "n2::0")))
        assert states(controller, ids) == ["failed", "failed"]
        assert containers(desk) == {"n1": [], "n2": [], "n3": []}


async def test_a_node_that_is_cut_off_keeps_its_place_until_it_can_be_undone(desk, monkeypatch):
    """It has created its container; then its answer is lost with the connection."""
    node = desk.fleet.nodes["n2"]
    async with desk.running() as controller:
        hold = MemberNodes.hold

        async def cut(self, task):
            container = await hold(self, task)
            if task.node == "n2":
                node.cut()
                await until(lambda: not controller.nodes.links["n2"].online)
                return await hold(self, task)
            return container

        monkeypatch.setattr(MemberNodes, "hold", cut)
        ids = await submit(controller, gang("n1::0", "n2::0"))
        monkeypatch.setattr(MemberNodes, "hold", hold)
        assert states(controller, ids) == ["pending", "assigning"]
        assert containers(desk) == {"n1": [], "n2": ["created"], "n3": []}
        assert controller.nodes.cluster(["n2"]).nodes["n2"].gpus[0].state == "allocated"
        desk.clock.ahead += LAUNCH_BOUND + 1
        await node.restore()
        await all_run(controller, ids)
        assert containers(desk) == {"n1": ["running"], "n2": ["running"], "n3": []}


@pytest.mark.parametrize(
    "step", ["start", *(pytest.param(step, marks=pytest.mark.slow) for step in ("look", "hold", "started"))]
)
async def test_another_controller_goes_on_wherever_the_last_one_was_killed(desk, monkeypatch, step):
    """It is killed before the members meet, between two creations, between two starts, and before it writes of them."""
    reached, first = asyncio.Event(), getattr(MemberNodes, step.removesuffix("ed") if step == "started" else step)

    async def hang(self, task, *created):
        if step != "look" and (step == "started" or task.node == "n1"):
            await first(self, task, *created)
            if step != "started":
                return await asyncio.Future()
        reached.set()
        return await asyncio.Future()

    with monkeypatch.context() as killed:
        killed.setattr(MemberNodes, step.replace("started", "start"), hang)
        async with desk.running() as controller:
            work = asyncio.create_task(submit(controller, gang("n1::0", "n2::0")))
            await reached.wait()
            await until(lambda: len(controller.tasks.live) == 2)
            ids = list(controller.tasks.live)
        work.cancel()
    async with desk.running() as controller:
        await all_run(controller, ids)
        assert containers(desk) == {"n1": ["running"], "n2": ["running"], "n3": []}
        [one, two] = [controller.lookup.find(task).spec.gang for task in ids]
        assert one.peers == two.peers
        assert one.port == two.port is not None


async def test_a_gang_without_a_state_is_recovered_from_its_labels(desk):
    async with desk.running() as controller:
        ids = await submit(controller, gang("n1::0", "n2::0"))
    desk.state.joinpath("state.json").unlink()
    for file in desk.state.glob("state.json*"):
        file.unlink()
    async with desk.running() as controller:
        offer = await controller.recovery.offer(me(controller))
        controller.recovery.recover([task.id for task in offer.tasks], {}, by=me(controller))
        await all_run(controller, ids)
        await controller.stops.stop(ids[0], "kill", by=me(controller))
        assert states(controller, ids) == ["killed", "killed"]


async def test_a_container_whose_label_names_a_task_of_another_stops_nothing(desk):
    async with desk.running() as controller:
        [victim] = await submit(controller, [replace(gang("n1::0", "n2::0")[0], gang=None)])
        task = controller.lookup.find(victim)
        forged = replace(task, id=new_task_id(1.0), status=Pending())
        forged = replace(forged, spec=replace(task.spec, gang=Gang(2, 0, (forged.id, victim))))
        engine = desk.fleet.nodes["n2"].engine
        labels = labels_of(forged, Placement("n2", ()), "another")
        engine.start(engine.create(Config("forged", DEFAULT_IMAGE, ["sh", "-c", "exit 3"], labels)))
        await until(lambda: forged.id in controller.recovery.unremembered(me(controller)))
        controller.recovery.recover([forged.id], {}, by=me(controller))
        await until(lambda: not controller.lookup.find(forged.id).live)
        controller.gang_ends._look(controller.lookup.find(forged.id))
        assert controller.lookup.find(victim).stop is None


@pytest.mark.parametrize(
    ("name", "others"), [("n1", ["n2", "n3"]), pytest.param("n2", ["n1", "n3"], marks=pytest.mark.slow)]
)
async def test_a_node_without_a_free_port_is_named_and_left(desk, monkeypatch, name, others):
    look = MemberNodes.look

    async def crowded(self, task):
        found = await look(self, task)
        return replace(found, used=frozenset(PORTS)) if task.node == name else found

    monkeypatch.setattr(MemberNodes, "look", crowded)
    async with desk.running() as controller:
        ids = await submit(controller, gang("1x"))
        await all_run(controller, ids)
        assert [controller.lookup.find(task).node for task in ids] == others
        fixed = await submit(controller, gang("n1::1", "n2::1"))
        status = controller.lookup.find(fixed[0]).status
        assert isinstance(status, Pending)
        rank = ["n1", "n2"].index(name)
        assert status.reason.startswith(f"rank {rank} could not start on {name}: {name}: 3268 of the ports")


async def test_a_node_that_does_not_say_how_it_is_reached_is_named_and_left(desk, monkeypatch):
    run = NodeLink.run

    async def silent(self, command, heard=None):
        if self.node.name == "n2" and "SSH_CONNECTION" in str(command):
            raise Unreachable("n2 does not answer")
        return await run(self, command, heard)

    monkeypatch.setattr(NodeLink, "run", silent)
    async with desk.running() as controller:
        ids = await submit(controller, gang("1x"))
        await all_run(controller, ids)
        assert [controller.lookup.find(task).node for task in ids] == ["n1", "n3"]


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["continue", "stop"])
async def test_nothing_runs_on_of_a_gang_whose_undoing_was_killed(desk, monkeypatch, failure):
    """Rank 0 runs, and rank 1 was refused. The next controller ends the gang, or puts it back into the queue."""
    reached = asyncio.Event()

    async def hang(self, task, *, force):
        reached.set()
        return await asyncio.Future()

    desk.fleet.nodes["n2"].engine.refusal = NO_TOOLKIT
    spec = TaskSpec(("sleep", "600"), gang=Gang(2, on_member_failure=failure), stop_grace=0.2)
    with monkeypatch.context() as killed:
        killed.setattr(MemberNodes, "undo", hang)
        async with desk.running() as controller:
            work = asyncio.create_task(submit(controller, on_targets(spec, ("n1::0", "n2::0"))))
            await reached.wait()
            ids = list(controller.tasks.live)
        work.cancel()
    assert containers(desk)["n1"] == ["running"]
    async with desk.running() as controller:
        await until(lambda: "running" not in [*containers(desk)["n1"], *states(controller, ids)])


async def test_people_are_told_of_all_nodes(agentless):
    typed = partial(asyncio.to_thread, agentless)
    task, said = await typed("submit", "--nodes", "2", "--gpus", "1", "--wait", "--", "true")
    assert said.splitlines()[0].endswith(" on 2 nodes: n1, n2")
    rows = [line.split() for line in (await typed("show", task.strip()))[0].splitlines() if "  rank " in line]
    assert [(row[2], row[4], row[-1]) for row in rows] == [("0:", "n1::0,", "completed"), ("1:", "n2::0,", "completed")]
    assert " ".join((await typed("explain", "--nodes", "5", "--gpus", "1"))[0].split()) == (
        "1x on 5 nodes would be refused; needs 5 nodes for 1x; only 3 nodes can ever run it, and 3 can start it now "
        "(n1, n2, n3) would help: --nodes 3"
    )


async def test_explain_of_a_gang_that_waits_says_what_it_lacks_and_what_would_help(agentless):
    typed = partial(asyncio.to_thread, agentless)
    other = (await typed("submit", "n3::0", "--time-limit", "1h", "--", "sleep", "600"))[0].strip()
    waits = (await typed("submit", "--nodes", "3", "--gpus", "2", "--", "sleep", "600"))[0].strip()
    said = " ".join((await typed("explain", waits))[0].split())
    assert f"task {waits} (2x on 3 nodes) is number 1 in the queue; starts within 1h 0m on n1, n2 and n3" in said
    assert "needs 3 nodes for 2x; 2 can start it now (n1, n2)" in said
    assert "n3: needs 2 GPUs; 1 of 2 on n3 is free" in said
    assert f"would help: --nodes 2; or --gpus 1; or when task {other} of " in said
    await typed("kill", waits)
    await typed("kill", other)


async def test_a_failure_on_one_node_is_told_as_the_end_of_the_task_that_was_submitted(desk, agentless):
    def typed(*words, code=0):
        return asyncio.to_thread(agentless, *words, code=code)

    script = "[ $NODE_RANK = 0 ] || exit 7; sleep 600"
    words = ("--nodes", "2", "--gpus", "1", "--grace", "0", "--name", "pair", "--", "sh", "-c", script)
    out, error = await typed("submit", "--wait", *words, code=7)
    ended = f"{out.strip()}  failed (7): rank 1 on "
    assert ended in error
    out, _ = await typed("show", "pair")
    shown = dict(line.split(None, 1) for line in out.splitlines()[:5])
    assert (shown["state"], shown["target"]) == ("failed (7)", "1x on 2 nodes")
    assert shown["reason"].endswith("failed with exit code 7")
