"""Several owners of one controller, on simulated nodes: n1 has four GPUs, n2 has one that somebody else uses."""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from urllib.parse import urlencode

import pytest

from agentless.controller.http import api
from agentless.controller.submit.request import Submit
from agentless.errors import UsageError
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from tests import validators
from tests.fleet.client import until
from tests.fleet.desk import Desk, me

validators.make_once()


async def submit(controller, owner, target="1x", command=("sleep", "600"), **terms):
    spec = TaskSpec(command, needs=parse_target(target), terms=Terms(**terms))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller), owner=owner))
    return start.task.id


made = lru_cache(maxsize=1)(api.make)
"""The API of the controller that was asked last: to make it takes as long as ten requests."""


async def ask(controller, method, path, owner=None, body=None, **query):
    """One request to the API in this process: its status and what it answers."""
    app, sent = made(controller), []
    headers = [(b"content-type", b"application/json")]
    headers += [(b"x-agentless-owner", owner.encode())] if owner else []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": urlencode(query).encode(), "headers": headers, "root_path": "",
        "scheme": "http", "server": ("a", 80), "client": ("a", 1), "state": {},
    }  # fmt: skip
    waiting = [{"type": "http.request", "body": json.dumps(body or {}).encode(), "more_body": False}]

    async def receive():
        return waiting.pop() if waiting else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(part.get("body", b"") for part in sent[1:]))


async def test_who_has_used_less_is_next_although_the_other_has_waited_for_longer(desk):
    async with desk.running() as controller:
        held = await submit(controller, "ann", "n1::0-3", time_limit=3600.0)
        await until(lambda: controller.lookup.find(held).state == "running")  # else it has used nothing
        again = await submit(controller, "ann", "n1::0-3")
        other = await submit(controller, "bob", "n1::0-3")
        await until(lambda: [task.id for task in controller.queue.tasks] == [other, again])
        await controller.stops.stop(held, "kill", by=me(controller))
        await until(lambda: controller.lookup.find(other).state == "running")
        assert controller.lookup.find(again).state == "pending"


@pytest.mark.slow
async def test_what_was_used_is_known_after_a_restart_and_what_runs_counts_too(desk):
    async with desk.running() as controller:
        task = await submit(controller, "ann", "n1::0,1")
        await submit(controller, "bob", "n1::2")
        async with controller.nodes.links["n1"].inspector._asking:  # no look is under way
            desk.clock.ahead = 3600
            desk.fleet.nodes["n1"].set_clock(3600)
        await controller.stops.stop(task, "kill", by=me(controller))
        (_, before) = await ask(controller, "GET", "/v1/shares")
    async with desk.running() as controller:
        desk.clock.ahead = 3600
        (_, after) = await ask(controller, "GET", "/v1/shares")
    assert [share["owner"] for share in before] == ["bob", "ann"]
    bob, ann = after
    assert (ann["gpu_hours"], ann["running"]) == (pytest.approx(2, rel=0.05), 0)
    assert (bob["running"], bob["gpus"], bob["waiting"]) == (1, 1, 0)
    assert ann["gpu_hours"] == pytest.approx(before[1]["gpu_hours"], rel=0.05)


async def test_a_task_belongs_to_whom_the_submit_names_or_the_one_who_asks_or_the_controllers_owner(desk):
    body = {"targets": ["n1::0"], "spec": {"command": ["sleep", "600"]}}
    async with desk.running() as controller:
        owners = []
        for who, named, target in ((None, None, "n1::0"), ("ann", None, "n1::1"), ("ann", "bob", "n1::2")):
            _, (start,) = await ask(controller, "POST", "/v1/tasks", who, body | {"targets": [target], "owner": named})
            owners.append((start["task"]["owner"], start["task"]["mine"]))
        assert owners == [(controller.tasks.owner, True), ("ann", True), ("bob", False)]
        _, hers = await ask(controller, "GET", "/v1/tasks", "ann", mine="true")
        _, its = await ask(controller, "GET", "/v1/tasks", None, mine="true")
        assert [task["owner"] for task in hers] == ["ann"]
        assert [task["owner"] for task in its] == [controller.tasks.owner]
        await until(lambda: len(controller.nodes.links["n1"].containers) == 3)
        labels = {container.labels["agentless.owner"] for container in controller.nodes.links["n1"].containers}
        assert labels == {owner for owner, _ in owners}


async def test_what_is_no_name_is_refused(desk):
    async with desk.running() as controller:
        for name in ("", "a b", "-x", "a\nb", "é", "x" * 128):
            with pytest.raises(UsageError, match="--owner"):
                await submit(controller, name)
        assert not controller.tasks.live


async def test_a_header_that_is_no_name_is_refused(desk):
    async with desk.running() as controller:
        status, answer = await ask(controller, "GET", "/v1/tasks", "a b")
        assert (status, answer["exit_code"], "$AGENTLESS_OWNER" in answer["message"]) == (400, 2, True)


async def test_who_lost_the_state_gets_its_own_back_and_others_get_theirs_when_they_ask(desk, tmp_path):
    async with desk.running() as controller:
        own, hers = await submit(controller, None), await submit(controller, "ann")
        await submit(controller, "bob")
    fresh = Desk(tmp_path / "fresh", desk.fleet)
    async with fresh.running() as controller:
        await until(lambda: len(controller.lookup.others()) == 3)
        _, found = await ask(controller, "GET", "/v1/recovery")
        assert [task["id"] for task in found["tasks"]] == [own]
        _, found = await ask(controller, "GET", "/v1/recovery", "ann")
        assert [(task["id"], task["mine"]) for task in found["tasks"]] == [(own, False), (hers, True)]
        _, taken = await ask(controller, "POST", "/v1/recovery", "ann", {"tasks": [hers, hers]})
        assert [(task["id"], task["owner"]) for task in taken] == [(hers, "ann")]
        assert list(controller.tasks.live) == [hers]


async def test_a_torn_state_takes_back_what_its_own_label_names_whosever_it_is(desk):
    async with desk.running() as controller:
        hers = await submit(controller, "ann")
        name = controller.tasks.controller
        await until(lambda: controller.lookup.find(hers).state == "running")
        controller.ledger.stores.state.remove(hers)
    async with desk.running() as controller:
        assert controller.tasks.controller == name
        await until(lambda: hers in controller.tasks.live)
        assert controller.tasks.live[hers].owner == "ann"


# ------------------------------------------------------------- who has asked


def causes(controller, event):
    """The causes of such events, the oldest first."""
    found = [json.loads(document) for _, document in controller.tasks.history.events(0, -1)]
    return [each["cause"] for each in found if each.get("event") == event]


async def done(controller, method, path, owner="ann", body=None, **query):
    status, answer = await ask(controller, method, path, owner, body, **query)
    assert status == 200, answer
    return answer


async def test_a_node_is_drained_and_resumed_by_who_asks(desk):
    async with desk.running() as controller:
        await done(controller, "POST", "/v1/nodes/n1/drain", body={"reason": "new disks"})
        assert controller.records.known["n1"].drain.by == "ann"
        await done(controller, "POST", "/v1/nodes/n1/resume", "bob", {})
        (cause,) = causes(controller, "resumed")
        assert cause.startswith("by bob; was drained: new disks (by ann, ")


async def test_a_reservation_is_made_and_given_back_by_who_asks(desk):
    async with desk.running() as controller:
        now = desk.clock.now()
        body = {"targets": ["n1::0"], "owner": "eve", "begin": now, "end": now + 3600}
        (made,) = await done(controller, "POST", "/v1/reservations", body=body)
        assert (made["owner"], made["made_by"]) == ("eve", "ann")
        await done(controller, "DELETE", f"/v1/reservations/{made['id']}", "bob")
        assert causes(controller, "reserved")[0].endswith("agentless reserve, by ann")
        assert causes(controller, "unreserved")[0].endswith("agentless unreserve, by bob")


@pytest.mark.parametrize(
    ("verb", "event", "cause"),
    [
        ("stop", "stop-asked", "agentless stop, by ann"),
        ("kill", "stop-asked", "agentless kill, by ann"),
    ],
)
async def test_a_task_is_ended_by_who_asks(desk, verb, event, cause):
    async with desk.running() as controller:
        task = await submit(controller, "eve")
        await done(controller, "POST", f"/v1/tasks/{task}/{verb}", body={"grace": 0} if verb == "stop" else {})
        assert causes(controller, event) == [cause]


async def test_a_task_is_retried_and_removed_by_who_asks(desk):
    async with desk.running() as controller:
        task = await submit(controller, "eve", command=("true",))
        await controller.commands.wait(task, 20)
        again = await done(controller, "POST", f"/v1/tasks/{task}/retry")
        await controller.commands.wait(again["id"], 20)
        await done(controller, "DELETE", f"/v1/tasks/{again['id']}", "bob", force="true")
        assert "agentless retry, by ann" in causes(controller, "queued")
        assert causes(controller, "removed")[-1] == "agentless rm, by bob"


async def test_a_task_is_moved_by_who_asks(desk):
    async with desk.running() as controller:
        await submit(controller, "eve", "n1::0-3")
        _, last = await submit(controller, "eve", "n1::0-3"), await submit(controller, "eve", "n1::0-3")
        await done(controller, "POST", f"/v1/tasks/{last}/move", body={"position": 1})
        assert causes(controller, "moved")[-1] == "agentless queue: to position 1, by ann"


async def test_a_task_for_somebody_else_is_submitted_by_who_asks(desk):
    async with desk.running() as controller:
        body = {"targets": ["n1::0"], "owner": "eve", "spec": {"command": ["true"]}}
        await done(controller, "POST", "/v1/tasks", body=body)
        assert causes(controller, "assigned") == ["submitted by ann for eve"]


async def test_a_task_is_taken_back_by_who_asks(desk, tmp_path):
    async with desk.running() as controller:
        task = await submit(controller, "ann")
    async with Desk(tmp_path / "other", desk.fleet).running() as other:
        await done(other, "POST", "/v1/recovery", body={"tasks": [task]})
        assert causes(other, "adopted") == ["agentless recover, by ann"]
