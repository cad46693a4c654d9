"""Nodes that are drained, and GPUs that are kept out, on simulated nodes: n1 has four GPUs, n2 one in foreign use."""

from __future__ import annotations

import asyncio
import os

import orjson
import pytest

from agentless.controller.submit.request import Submit
from agentless.errors import Refused, StateError
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from tests.fleet.client import until
from tests.fleet.desk import Desk, me

ECC = {"ecc.errors.uncorrected.volatile.total": 2}


async def submit(controller, target="1x", **terms):
    spec = TaskSpec(("sleep", "600"), needs=parse_target(target), terms=Terms(**terms))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    return start


def node(controller, name="n1"):
    return controller.nodes.cluster().nodes[name]


def gpu(controller, index=0):
    return next(gpu for gpu in node(controller).gpus if gpu.reading.index == index)


def event_names(controller, *events):
    rows = [orjson.loads(event) for _, event in controller.tasks.history.events(0, -1)]
    return [(row["kind"], row["event"]) for row in rows if row.get("event") in events]


async def test_on_a_drained_node_nothing_new_starts_and_what_runs_goes_on(desk):
    async with desk.running() as controller:
        runs = (await submit(controller, "n1::0")).task.id
        controller.exclusions.drain("n1", "new disks", by=me(controller))
        waits = [(await submit(controller, target)).task for target in ("n1::1", "n1", "1x")]
        assert [task.state for task in waits] == ["pending"] * 3
        assert all("n1 is drained: new disks (by " in task.reason for task in waits)
        await controller.nodes.links["n1"].refresh()
        assert controller.lookup.find(runs).state == "running"
        controller.exclusions.resume("n1", by=me(controller))
        await until(lambda: all(controller.lookup.find(task.id).state == "running" for task in waits))
        assert event_names(controller, "drained", "resumed") == [("node", "drained"), ("node", "resumed")]


async def test_who_does_not_want_to_wait_for_a_drained_node_is_told_who_drained_it_when_and_why(desk):
    async with desk.running() as controller:
        desk.clock.ahead = 4_070_908_800 - controller.clock.now()
        controller.exclusions.drain("n1", "new disks", by=me(controller))
        start = await submit(controller, "n1::0", wait_for=0.0)
        assert (start.task, start.exit_code) == (None, 3)
        assert f"n1 is drained: new disks (by {controller.tasks.owner}, 2099-01-01 00:00 UTC)" in start.message


async def test_a_drained_node_is_told_as_drained_whatever_happens_on_it(desk):
    async with desk.running() as controller:
        controller.exclusions.drain("n1", "new disks", by=me(controller))
        with controller.bus.listen() as news:
            desk.fleet.nodes["n1"].gpus.use(1, os.getpid(), "python", 2_000)
            async for each in news:
                if each["kind"] == "node" and each["node"] == "n1":
                    assert each["state"] == "drained"
                    break


async def test_explain_names_the_drain_once(desk):
    async with desk.running() as controller:
        controller.exclusions.drain("n1", "new disks", by=me(controller))
        task = (await submit(controller, "n1::0-3")).task
        (why,) = controller.explanations.explain(controller.lookup.find(task.id)).obstacles
        assert (why.node, why.text.startswith("n1 is drained: new disks")) == ("n1", True)


async def test_the_free_gpus_of_a_drained_node_are_not_free(desk):
    async with desk.running() as controller:
        await submit(controller, "n1::0")
        controller.exclusions.drain("n1", by=me(controller))
        assert [gpu.state for gpu in node(controller).gpus] == ["allocated", "drained", "drained", "drained"]
        assert gpu(controller, 1).reason == node(controller).reason


async def test_a_drain_outlives_the_controller_and_the_connection(desk):
    async with desk.running() as controller:
        controller.exclusions.drain("n1", "new disks", by=me(controller))
        desk.fleet.nodes["n1"].cut()
        await until(lambda: node(controller).state == "offline")
        assert (node(controller).drained, "drained: new disks" in node(controller).reason) == (True, True)
        await desk.fleet.nodes["n1"].restore()
    async with desk.running() as controller:
        assert (node(controller).state, "new disks" in node(controller).reason) == ("drained", True)
        _, lifted = controller.exclusions.resume("n1", by=me(controller))
        assert (node(controller).state, len(lifted)) == ("online", 1)
    async with desk.running() as controller:
        assert node(controller).state == "online"


async def test_a_second_drain_changes_the_reason_if_it_has_one_and_not_the_time(desk):
    async with desk.running() as controller:
        controller.exclusions.drain("n1", "new disks", by=me(controller))
        first = controller.records.known["n1"].drain
        desk.clock.ahead = 600
        controller.exclusions.drain("n1", by=me(controller))
        assert controller.records.known["n1"].drain == first
        controller.exclusions.drain("n1", "new GPUs", by=me(controller))
        assert (controller.records.known["n1"].drain.reason, controller.records.known["n1"].drain.since) == (
            "new GPUs",
            first.since,
        )
        assert event_names(controller, "drained") == [("node", "drained")] * 2


async def test_to_resume_what_is_not_kept_out_lifts_nothing(desk):
    async with desk.running() as controller:
        assert controller.exclusions.resume("n1", by=me(controller))[1] == ()
        assert controller.exclusions.resume("n1", 2, by=me(controller))[1] == ()
        with pytest.raises(Refused, match="n1 has no GPU 7; to list its GPUs, run: agentless gpus n1"):
            controller.exclusions.resume("n1", 7, by=me(controller))
        assert event_names(controller, "resumed") == []


async def test_a_drain_that_cannot_be_written_is_an_error_and_does_not_happen(desk, monkeypatch):
    def full(_):
        raise StateError("the disk is full")

    async with desk.running() as controller:
        with monkeypatch.context() as patch:
            patch.setattr(controller.records._store, "save", full)
            with pytest.raises(StateError):
                controller.exclusions.drain("n1", by=me(controller))
        assert node(controller).state == "online"


# ------------------------------------------------------------------ until it is empty


async def test_a_drained_node_is_empty_when_the_last_task_of_anybody_has_ended(desk, tmp_path):
    other = Desk(tmp_path / "other", desk.fleet)
    async with desk.running() as mine, other.running() as theirs:
        my_task, their_task = [(await submit(each, "n1")).task.id for each in (mine, theirs)]
        await until(lambda: node(mine).tasks == 2)
        mine.exclusions.drain("n1", by=me(mine))
        empty = asyncio.create_task(mine.exclusions.empty("n1", 20))
        await mine.stops.stop(my_task, "kill", by=me(mine))
        assert ((await mine.exclusions.empty("n1", 0)).tasks, empty.done()) == (1, False)
        await theirs.stops.stop(their_task, "kill", by=me(theirs))
        assert (await empty).tasks == 0


async def test_a_node_that_does_not_answer_is_not_empty(desk):
    async with desk.running() as controller:
        controller.exclusions.drain("n1", by=me(controller))
        desk.fleet.nodes["n1"].cut()
        await until(lambda: node(controller).state == "offline")
        empty = asyncio.create_task(controller.exclusions.empty("n1", 600))
        assert (await controller.exclusions.empty("n1", 0)).tasks is None
        assert not empty.done()
        await desk.fleet.nodes["n1"].restore()
        await controller.nodes.links["n1"].ready()
        assert (await asyncio.wait_for(empty, 20)).tasks == 0


async def test_who_waits_until_it_is_empty_is_told_that_it_was_resumed(desk):
    async with desk.running() as controller:
        await submit(controller, "n1")
        controller.exclusions.drain("n1", by=me(controller))
        empty = asyncio.create_task(controller.exclusions.empty("n1", 600))
        await until(lambda: len(controller.bus._listeners) > 1)
        controller.exclusions.resume("n1", by=me(controller))
        assert not (await asyncio.wait_for(empty, 20)).drained


# ------------------------------------------------------------------ health


async def test_a_gpu_with_memory_errors_is_kept_out_and_its_task_goes_on(desk):
    async with desk.running() as controller:
        runs = (await submit(controller, "n1::0")).task.id
        desk.fleet.nodes["n1"].gpus.show(0, ECC)
        await until(lambda: gpu(controller).state == "unhealthy")
        assert "2 uncorrected ECC errors (since " in gpu(controller).reason
        assert f"held by task {runs}" in gpu(controller).reason
        assert controller.lookup.find(runs).state == "running"
        assert event_names(controller, "unhealthy") == [("task", "unhealthy"), ("node", "unhealthy")]
        await controller.stops.stop(runs, "kill", by=me(controller))
        waits = (await submit(controller, "n1::0")).task
        assert (waits.state, "GPU 0 is unhealthy: 2 uncorrected ECC errors" in waits.reason) == ("pending", True)
        assert (await submit(controller, "n1::1")).task.state == "running"
        controller.exclusions.resume("n1", 0, by=me(controller))
        await until(lambda: controller.lookup.find(waits.id).state == "running")


async def test_a_gpu_stays_out_when_all_is_well_again_and_in_once_it_was_resumed(desk):
    async with desk.running() as controller:
        desk.fleet.nodes["n1"].gpus.show(0, ECC)
        await until(lambda: gpu(controller).state == "unhealthy")
        desk.fleet.nodes["n1"].gpus.show(0, {})
    async with desk.running() as controller:
        assert gpu(controller).state == "unhealthy"
        desk.fleet.nodes["n1"].gpus.show(0, ECC)
        await controller.nodes.links["n1"].refresh()
        controller.exclusions.resume("n1", by=me(controller))
        assert gpu(controller).state == "free"
        await controller.nodes.links["n1"].refresh()
        assert gpu(controller).state == "free"
        desk.fleet.nodes["n1"].gpus.show(0, {"ecc.errors.uncorrected.volatile.total": 3})
        await until(lambda: gpu(controller).state == "unhealthy")
        controller.exclusions.drain("n1", by=me(controller))
        assert len(controller.exclusions.resume("n1", drain_only=True, by=me(controller))[1]) == 1
        assert [each.state for each in node(controller).gpus] == ["unhealthy", "free", "free", "free"]


async def test_heat_counts_from_the_inventorys_limit_on_and_passes_by_itself_if_it_says_so(desk):
    desk.inventory.write_text(desk.inventory.read_text() + "health: {temperature: 90, resume: automatic}\n")
    async with desk.running() as controller:
        gpus = desk.fleet.nodes["n1"].gpus
        gpus.show(0, {"temperature.gpu": 91})
        gpus.show(1, {"temperature.gpu": 89})
        await until(lambda: gpu(controller).state == "unhealthy")
        assert gpu(controller, 1).state == "free"
        gpus.show(0, {})
        await controller.nodes.links["n1"].refresh()
        assert gpu(controller).state == "unhealthy"
        desk.clock.ahead = 61
        await until(lambda: event_names(controller, "resumed"))
        desk.clock.ahead = 0
        assert gpu(controller).state == "free"
        assert event_names(controller, "unhealthy", "resumed") == [("node", "unhealthy"), ("node", "resumed")]


async def test_a_gpu_that_has_vanished_is_still_listed(desk):
    gpus = desk.fleet.nodes["n1"].gpus
    async with desk.running():
        gpus.vanish(3)
    async with desk.running() as controller:
        assert len(node(controller).gpus) == 4
        assert (gpu(controller, 3).state, "disappeared" in gpu(controller, 3).reason) == (
            "unhealthy",
            True,
        )
        assert (await submit(controller, "n1::3")).task.state == "pending"
        gpus.come_back(3)
        await controller.nodes.links["n1"].refresh()
        assert gpu(controller, 3).state == "unhealthy"
        gpus.vanish(3)
        await controller.nodes.links["n1"].refresh()
        controller.exclusions.resume("n1", 3, by=me(controller))
        assert len(node(controller).gpus) == 3


async def test_what_the_kernel_log_said_before_the_first_look_is_old_and_what_it_says_then_counts(desk):
    gpus = desk.fleet.nodes["n1"].gpus
    gpus.log("[  100.000001] NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.")
    async with desk.running() as controller:
        assert gpu(controller).state == "free"
    gpus.log("[  200.000001] NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.")
    gpus.log("[  200.000001] NVRM: Xid (PCI:0000:02:00): 31, pid=1, MMU Fault")
    async with desk.running() as controller:
        assert gpu(controller).state == "unhealthy"
        assert "Xid 79: the GPU has fallen off the bus" in gpu(controller).reason
        assert gpu(controller, 1).state == "free"


async def test_a_gpu_is_kept_out_although_the_disk_is_full_and_it_is_written_later(desk, monkeypatch):
    def full(_):
        raise StateError("the disk is full")

    async with desk.running() as controller:
        with monkeypatch.context() as patch:
            patch.setattr(controller.records._store, "save", full)
            desk.fleet.nodes["n1"].gpus.show(0, ECC)
            await until(lambda: gpu(controller).state == "unhealthy")
            assert node(controller).state == "online"
        controller.records.flush()
        desk.fleet.nodes["n1"].gpus.show(0, {})
    async with desk.running() as controller:
        assert gpu(controller).state == "unhealthy"
