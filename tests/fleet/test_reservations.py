"""Reservations, on simulated nodes: n1 has four GPUs, n2 has one that somebody else uses."""

from __future__ import annotations

import asyncio
import os

import orjson
import pytest

from agentless.controller.http.api import make
from agentless.controller.http.schemas import ReservationRequest
from agentless.errors import NotFound, Refused, UsageError
from tests import ready, validators
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.fleet.test_queue import ids, states, submit

validators.make_once()

HOUR = 3600.0


async def reserve(controller, *targets, owner="ann", begin=0.0, end=HOUR, reason=""):
    now = controller.clock.now()
    request = ReservationRequest(targets=targets, owner=owner, begin=now + begin, end=now + end, reason=reason)
    return await controller.reservations.reserve(request, by=me(controller))


async def test_who_does_not_want_to_wait_for_what_is_reserved_is_refused_and_told_for_whom_it_is(desk):
    async with desk.running() as controller:
        await reserve(controller, "n1::0-2", reason="deadline")
        start = await submit(controller, "n1::2", wait_for=0.0)
        assert (start.task, start.exit_code) == (None, 3)
        assert start.message.startswith("n1::2: GPU 2 is reserved for ann from ")
        assert start.message.endswith(" (deadline)")
        assert (await submit(controller, "1x", wait_for=0.0)).task.gpus == (3,)


async def test_what_is_named_twice_is_reserved_once(desk):
    async with desk.running() as controller:
        assert [each.gpus for each in await reserve(controller, "n1::0", "n1::1", "n1::0")] == [(0,), (1,)]


async def test_the_owner_may_use_it_and_others_are_told_why_they_wait(desk):
    async with desk.running() as controller:
        me = controller.tasks.owner.partition("@")[0]
        await reserve(controller, "n1::0", owner=me)
        await reserve(controller, "n1::1-3")
        mine, other = await ids(controller, 2)
        assert states(controller, [mine, other]) == ["running", "pending"]
        found = controller.explanations.explain(controller.lookup.find(other))
        (on_n1,) = [obstacle for obstacle in found.obstacles if obstacle.node == "n1"]
        assert any(detail.startswith("GPUs 1-3 are reserved for ann from ") for detail in on_n1.details)


async def test_an_owner_who_waits_is_not_told_of_his_own_reservation(desk):
    async with desk.running() as controller:
        await reserve(controller, "n1", owner=controller.tasks.owner)
        holder = (await submit(controller, "n1::0")).task.id
        held = f"GPU 0 is allocated: held by task {holder} of {controller.tasks.owner}"
        assert (await submit(controller, "n1::0")).task.reason == held
        assert (await submit(controller, "n1::0", wait_for=0.0)).message == f"n1::0: {held}"


async def test_who_waits_starts_when_the_reservation_is_given_back(desk):
    async with desk.running() as controller:
        (made,) = await reserve(controller, "n1", owner=None)
        task = (await submit(controller, "n1::0")).task.id
        assert states(controller, [task]) == ["pending"]
        controller.reservations.remove(made.id, by=me(controller))
        await until(lambda: states(controller, [task]) == ["running"])


async def test_who_waits_is_told_when_the_reservation_is_over_and_starts_then(desk):
    async with desk.running() as controller:
        (made,) = await reserve(controller, "n1", owner=None, end=6.0)
        task = (await submit(controller, "n1::0")).task.id
        await until(lambda: controller.queue.plan.promises.get(task))
        assert controller.views.view(controller.lookup.find(task)).expected_start == made.ends_at
        await until(lambda: states(controller, [task]) == ["running"])
        assert controller.views.view(controller.lookup.find(task)).started_at >= made.ends_at


async def test_what_is_over_is_not_listed_and_then_forgotten(desk):
    async with desk.running() as controller:
        await reserve(controller, "n1")
        (later,) = await reserve(controller, "n2", end=2 * HOUR)
        desk.clock.ahead = HOUR + 1
        assert [each.id for each in await controller.reservations.views()] == [later.id]
        controller.reservations.tick()
        assert list(controller.reservation_book.known) == [later.id]
    async with desk.running() as controller:
        assert list(controller.reservation_book.known) == [later.id]


async def test_what_is_over_before_the_window_begins_may_run_until_then(desk):
    async with desk.running() as controller:
        await reserve(controller, "n1", owner=None, begin=HOUR, end=2 * HOUR)
        short, long = [(await submit(controller, "n1::0", time_limit=limit)).task for limit in (1800.0, 7200.0)]
        assert (short.state, long.state) == ("running", "pending")
        assert "the task may run for 2h 0m" in (await submit(controller, "n1::1", time_limit=7200.0)).task.reason


async def test_what_runs_when_it_begins_goes_on_and_is_named(desk):
    async with desk.running() as controller:
        task = (await submit(controller, "n1::1")).task.id
        (made, other) = await reserve(controller, "n1::0,1", "n1::2")
        assert made.in_the_way == (f"task {task} of {controller.tasks.owner} (no time limit)",)
        assert other.in_the_way == ()
        assert states(controller, [task]) == ["running"]


async def test_reservations_outlive_the_controller_and_are_told_as_events(desk):
    async with desk.running() as controller:
        (made,) = await reserve(controller, "n1::0-3", reason="deadline")
    async with desk.running() as controller:
        (again,) = await controller.reservations.views()
        assert again == made
        assert (await submit(controller, "n1::0")).task.state == "pending"
        controller.reservations.remove(made.id, by=me(controller))
        events = [orjson.loads(event) for _, event in controller.tasks.history.events(0, -1)]
        found = [(event["event"], event["reservation"]["id"]) for event in events if event["kind"] == "reservation"]
        assert found == [("reserved", made.id), ("unreserved", made.id)]


async def test_of_several_targets_all_are_kept_or_none(desk):
    async with desk.running() as controller:
        with pytest.raises(Refused, match="no GPU 7"):
            await reserve(controller, "n1::0", "n1::7")
        assert await controller.reservations.views() == []


async def test_a_target_that_cannot_be_reserved_is_refused_with_what_could_be(desk):
    async with desk.running() as controller:
        for targets, error, words in (
            ([], UsageError, "no target"),
            (["2xA100"], UsageError, "specify a node or exact GPUs"),
            (["n1:0"], UsageError, "specify a node or exact GPUs"),
            (["n3"], NotFound, "no node 'n3' in the inventory"),
        ):
            with pytest.raises(error, match=words):
                await reserve(controller, *targets)


async def test_what_is_not_reserved_cannot_be_given_back(desk):
    async with desk.running() as controller:
        (made,) = await reserve(controller, "n1")
        with pytest.raises(NotFound, match=f"did you mean '{made.id}'"):
            controller.reservations.remove(made.id[:-1], by=me(controller))


async def test_gpus_say_for_whom_they_are_reserved(desk):
    async with desk.running() as controller:
        await reserve(controller, "n1::0")
        await reserve(controller, "n1::1", begin=30 * HOUR, end=40 * HOUR)
        (gpus,) = [route.endpoint for route in make(controller).routes if route.path == "/v1/gpus"]
        found = await gpus(me(controller), "n1")
        assert [gpu.state for gpu in found] == ["free"] * 4
        assert found[0].reserved.startswith("reserved for ann from ")
        assert found[0].reservation.owner == "ann"
        assert [(gpu.reserved, gpu.reservation) for gpu in found[1:]] == [(None, None)] * 3


async def test_it_is_all_there_on_the_command_line(desk, tmp_path):
    env = {**os.environ, "AGENTLESS_INVENTORY": str(desk.inventory), "XDG_STATE_HOME": str(tmp_path / "typed")}

    async def typed(*words):
        done = await asyncio.to_thread(ready.agentless, *words, env=env)
        return done.returncode, done.stdout, done.stderr

    try:
        code, out, _ = await typed(
            "reserve", "n1::0,1", "--for", "ann", "--from", "now", "--to", "2h", "--reason", "deadline"
        )
        made = out.split()[0]
        assert (code, "n1::0,1 for ann, from " in out) == (0, True)
        code, out, _ = await typed("reservations")
        assert (code, [made in out, "active" in out, "deadline" in out]) == (0, [True] * 3)
        assert "reserved for ann" in (await typed("gpus", "n1"))[1]
        code, _, err = await typed("submit", "n1::0", "--no-queue", "--", "sleep", "600")
        assert (code, "GPU 0 is reserved for ann from " in err) == (3, True)
        first, second = [(await typed("submit", "n1::0", "--", "sleep", "600"))[1].strip() for _ in range(2)]
        assert (await typed("queue", "top", second))[:2] == (0, f"{second}  number 1 in the queue\n")
        code, out, _ = await typed("queue")
        assert (code, [line.split()[:2] for line in out.splitlines()[1:]]) == (0, [["1*", second], ["2", first]])
        assert (await typed("queue", "move", second, "--after", first))[:2] == (
            0,
            f"{second}  number 2 in the queue\n",
        )
        assert (await typed("unreserve", made))[0] == 0
    finally:
        await typed("controller", "stop")
