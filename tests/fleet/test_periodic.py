"""What the controller does from time to time, and when it leaves: one part that fails keeps no other from its turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentless.controller.periodic import do_all
from agentless.controller.state.event_bus import NodeObserved
from tests.fleet.client import until
from tests.fleet.test_time import started

STAYS = "sleep 600"
JOBS = (
    "state folder",
    "state",
    "health",
    "volumes",
    "lost tasks",
    "dependencies",
    "dependencies of clusters",
    "workflows",
    "artifacts",
    "reservations",
    "logs of ended tasks",
    "uploads",
    "idle GPUs",
    "VPS",
    "gangs",
    "preemption",
    "samples",
    "usage",
    "metrics",
    "notifications",
)
PARTS = (
    "deadlines", "dependencies", "scheduler", "preemption", "retention", "uploads", "port", "notifier", "samples",
)  # fmt: skip


def fail(*_, **__):
    raise RuntimeError("broken for the test")


def failing_for(broken, work):
    """The same work, which fails for one task."""

    def done(task, *rest):
        if getattr(task, "id", task) == broken:
            fail()
        return work(task, *rest)

    return done


async def test_a_periodic_job_that_fails_is_named_in_the_log_and_all_others_have_their_turn(desk, caplog):
    async with desk.running() as controller:
        turns = []
        do_all([replace(job, do=lambda name=job.name: (turns.append(name), fail())) for job in controller.jobs])
    assert turns == list(JOBS)
    assert "reservations: unexpected error" in caplog.text


async def test_a_task_whose_limit_cannot_be_kept_does_not_keep_the_limits_of_others_from_being_kept(desk, monkeypatch):
    async with desk.running() as controller:
        first = await started(controller, STAYS, "n1::0", time_limit=3600.0, grace=0.2)
        second = await started(controller, STAYS, "n1::1", time_limit=3600.0, grace=0.2)
        monkeypatch.setattr(controller.ledger, "apply", failing_for(first, controller.ledger.apply))
        desk.clock.ahead = 3601
        controller.deadlines.tick()
        assert (await controller.commands.wait(second, 20)).state == "timeout"


async def test_a_task_that_cannot_be_lost_does_not_keep_others_from_being_lost(desk, monkeypatch):
    async with desk.running() as controller:
        first, second = [await started(controller, STAYS, f"n1::{gpu}") for gpu in (0, 1)]
        desk.write(without="n1")
        await controller.inventory.use(None, reading=True)
        monkeypatch.setattr(controller.ledger, "apply", failing_for(first, controller.ledger.apply))
        controller.reconciler.lose_silent()
        assert controller.lookup.task(second).state == "lost"


async def test_a_task_that_cannot_be_judged_idle_does_not_keep_others_from_it(desk, monkeypatch):
    async with desk.running() as controller:
        first, second = [await started(controller, STAYS, f"n1::{gpu}") for gpu in (0, 1)]
        looked = []
        monkeypatch.setattr(controller.idle, "_look", failing_for(first, lambda task, _: looked.append(task.id)))
        controller.idle.tick()
        assert looked == [second]


async def test_a_node_whose_leftovers_fail_does_not_keep_those_of_others_from_being_fetched(desk, monkeypatch):
    async with desk.running() as controller:
        begin, begun = controller.retention._begin, []

        def first_fails(link):
            begun.append(link.node.name)
            if link.node.name == "n1":
                fail()
            begin(link)

        monkeypatch.setattr(controller.retention, "_begin", first_fails)
        monkeypatch.setattr(controller.retention._outputs, "settle_lost", fail)
        controller.retention.tick()
        assert begun == ["n1", "n2"]


async def test_who_fails_over_a_sample_does_not_keep_it_from_others(desk):
    async with desk.running() as controller:
        heard = []
        controller.bus.subscribe(NodeObserved, fail)
        controller.bus.subscribe(NodeObserved, lambda observed: heard.append(observed.node))
        await until(lambda: set(heard) == {"n1", "n2"})


@pytest.mark.parametrize("broken", PARTS)
async def test_a_part_that_fails_to_close_keeps_no_other_from_being_closed(desk, monkeypatch, broken):
    async with desk.running() as controller:
        part, store = getattr(controller, broken), controller.expected_outputs.store
        close, close_last, closed = part.close, store.close, []

        async def close_and_fail():
            await close()
            fail()

        monkeypatch.setattr(part, "close", close_and_fail)
        monkeypatch.setattr(store, "close", lambda: (close_last(), closed.append("the last one")))
    assert closed == ["the last one"]
