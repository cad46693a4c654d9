"""Messages about tasks on simulated nodes: what is sent, how often, what survives, and that nothing waits for it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agentless.controller.notify import notifier
from agentless.controller.submit.request import Submit
from agentless.errors import NotSent, UsageError
from agentless.model.notify import Notice
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.spec import TaskSpec, on_targets
from agentless.model.tasks.task_id import first_try, next_try
from agentless.model.tasks.terms import Terms
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.hooks import hook


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Events are gathered for a shorter time, and messages follow each other sooner."""
    monkeypatch.setattr(notifier, "SOON", 0.05)


@pytest.fixture
def server():
    with hook() as server:
        yield server


def targets(desk, **targets):
    """Let the inventory have these targets."""
    desk.write()
    text = "notify:\n" + "".join(f"  {name}: {text}\n" for name, text in targets.items())
    desk.inventory.write_text(desk.inventory.read_text() + text)


async def submit(controller, script="true", count=1, owner=None, **more):
    """Submit a batch of this script; the ids."""
    terms = more.pop("terms", Terms())
    specs = tuple(
        TaskSpec(("sh", "-c", script, str(number)), needs=parse_target("1x"), terms=terms, **more)
        for number in range(count)
    )
    starts = await controller.submission.submit(Submit(specs, {}, me(controller), owner=owner))
    return [start.task.id for start in starts]


async def all_ended(controller, tasks):
    for task in tasks:
        await controller.commands.wait(task, 60)


async def sent(controller):
    """Wait until nothing is to be sent any more, without the pauses between messages."""

    def is_done():
        for name in controller.notifier.targets:
            controller.notifier._paces.pop(name, None)
        controller.notifier.tick()
        return not controller.notifier.busy

    await until(is_done)


@pytest.mark.slow
async def test_a_task_that_starts_and_fails(desk, server):
    targets(desk, hook=f"{{webhook: '{server.url}', events: [start, fail]}}")
    async with desk.running() as controller:
        (task,) = await submit(controller, "exit 3", name="train")
        await all_ended(controller, [task])
        await sent(controller)
        found = [each for body in server.bodies for each in body["events"]]
        assert sorted((each["event"], each["task"]["state"]) for each in found) == [
            ("fail", "failed"),
            ("start", "running"),
        ]
        (failed,) = [each["task"] for each in found if each["event"] == "fail"]
        assert (failed["id"], failed["name"], failed["exit_code"], failed["node"]) == (task, "train", 3, "n1")


@pytest.mark.slow
async def test_a_task_chooses_its_own_events(desk, server):
    targets(desk, hook=f"{{webhook: '{server.url}', events: [end]}}")
    async with desk.running() as controller:
        silent = await submit(controller, notify=())
        started = await submit(controller, notify=("start",))
        usual = await submit(controller)
        await all_ended(controller, [*silent, *started, *usual])
        await sent(controller)
        heard = {each["task"]["id"]: each["event"] for body in server.bodies for each in body["events"]}
        assert heard == {started[0]: "start", usual[0]: "end"}


@pytest.mark.slow
async def test_a_target_is_for_some_owners(desk, server):
    targets(desk, hook=f"{{webhook: '{server.url}', owners: [ann]}}")
    async with desk.running() as controller:
        ann, bob = await submit(controller, owner="ann@laptop"), await submit(controller, owner="bob")
        await all_ended(controller, [*ann, *bob])
        await sent(controller)
        assert [each["task"]["id"] for body in server.bodies for each in body["events"]] == ann


@pytest.mark.slow
async def test_to_ask_for_messages_without_a_target_is_refused(desk):
    async with desk.running() as controller:
        with pytest.raises(UsageError, match="the inventory has no targets"):
            await submit(controller, notify=("end",))
        await submit(controller, notify=())


@pytest.mark.slow
async def test_a_try_that_is_followed_by_another_is_no_end(desk, server):
    targets(desk, hook=f"{{webhook: '{server.url}', events: [end, fail]}}")
    async with desk.running() as controller:
        (task,) = await submit(controller, "exit 3", terms=Terms(retries=1, backoff=0))
        second = next_try(first_try(task))  # the answer may have either
        await until(lambda: controller.tasks.history.has(second))
        await sent(controller)
        assert [each["task"]["id"] for body in server.bodies for each in body["events"]] == [second]


async def test_a_batch_is_a_few_messages_that_count_all(desk, server):
    targets(desk, hook=f"{{webhook: '{server.url}', events: [end, fail]}}")
    async with desk.running() as controller:
        tasks = await submit(controller, "test $0 != 3", count=8)
        await all_ended(controller, tasks)
        await sent(controller)
        assert len(server.bodies) <= 2
        last = server.bodies[-1]
        assert (last["batch"], last["count"], last["states"]) == (tasks[0], 8, {"completed": 7, "failed": 1})
        assert last["title"] == f"Batch {tasks[0]}: 7 completed, 1 failed"
        assert last["events"][0]["task"]["id"] == tasks[3]


async def test_a_gang_is_one_message_by_its_name(desk, server):
    targets(desk, hook=f"{{webhook: '{server.url}', events: [end, fail]}}")
    async with desk.running() as controller:
        script = '[ "$NODE_RANK" = 0 ] || exit 7; sleep 600'
        spec = TaskSpec(("sh", "-c", script), name="pair", gang=Gang(2), stop_grace=0.1)
        starts = await controller.submission.submit(Submit(tuple(on_targets(spec, ())), {}, me(controller)))
        await all_ended(controller, [start.task.id for start in starts])
        await sent(controller)
        (told,) = [each for body in server.bodies for each in body["events"]]
        assert (told["event"], told["task"]["id"], told["task"]["name"]) == ("fail", starts[0].task.id, "pair")
        assert told["task"]["reason"] == "rank 1 on n2 failed with exit code 7"


async def test_what_is_not_sent_survives_a_crash_and_is_sent_once(desk, server):
    server.status = 500
    targets(desk, hook=f"{{webhook: '{server.url}'}}")
    async with desk.running() as controller:
        (task,) = await submit(controller)
        await all_ended(controller, [task])
        await until(lambda: controller.notifier.views()[0].problem)
        await until(lambda: not controller.retention.busy)
        controller.traffic.last = 0
        assert not controller.lifetime.is_idle()
    (refused,) = server.bodies
    server.status, server.requests[:] = 200, []
    async with desk.running() as controller:
        await sent(controller)
        assert server.bodies == [refused]
        controller.traffic.last = 0
        await until(controller.lifetime.is_idle)
    async with desk.running() as controller:
        await sent(controller)
        assert len(server.bodies) == 1


async def test_a_server_that_never_answers_holds_up_nothing(desk, server):
    server.open.clear()
    targets(desk, hook=f"{{webhook: '{server.url}', events: [start, end]}}", prog="{command: sleep 600}")
    async with desk.running() as controller:
        for _ in range(3):
            await all_ended(controller, await submit(controller))
        await until(lambda: server.requests)
        assert len(controller.notifier._sending) == 2


async def test_a_test_that_fails_is_shown(desk, server):
    server.status = 404
    targets(desk, hook=f"{{webhook: '{server.url}'}}")
    async with desk.running() as controller:
        with pytest.raises(NotSent):
            await controller.notifier.test("hook")
        assert controller.notifier.views()[0].problem == "the server answered 404 Not Found"
        server.status = 200
        assert not (await controller.notifier.test("hook")).problem


async def test_a_message_that_cannot_be_written_holds_up_no_other(desk, tmp_path, caplog):
    mails, program = tmp_path / "mails", tmp_path / "sendmail"
    program.write_text(f"#!/bin/sh\ncat >> {mails}\n")
    program.chmod(0o755)
    targets(desk, box=f"{{mail: [a@b.c], sendmail: {program}}}")
    async with desk.running() as controller:
        for name in ("evil\nBcc: x", "good"):
            notice = Notice("fail", desk.clock.now(), name[:4], name[:4], "ann", "failed", name=name)
            controller.notifier._store.add(["box"], notice)
            await sent(controller)
        assert "good (good) failed" in mails.read_text()
        assert "evil" not in mails.read_text()
        assert "dropped a message that cannot be written" in caplog.text


@pytest.mark.slow
async def test_what_fails_is_shown_and_then_forgotten(desk, server):
    server.status = 404
    targets(desk, hook=f"{{webhook: '{server.url}/s3cret'}}")
    async with desk.running() as controller:
        await all_ended(controller, await submit(controller))
        for failures in range(1, 4):
            await until(lambda: controller.notifier._paces["hook"].failures == failures)  # noqa: B023
            assert bool(controller.notifier.trouble) is (failures == 3)
            controller.notifier._paces["hook"] = _now(controller.notifier._paces["hook"])
            if failures < 3:
                controller.notifier.tick()
        (warning,) = controller.status.warnings()
        assert warning.startswith("notify target hook: the server answered 404 Not Found, for 0s; 1 event not")
        server.status = 200
        await sent(controller)
        assert controller.status.warnings() == ()


def _now(pace):
    return type(pace)(pace.sent_at, pace.gap, 0.0, pace.failures, pace.failing_since, pace.problem)


@pytest.mark.slow
async def test_events_that_cannot_be_sent_for_days_are_dropped(desk, server):
    server.status = 500
    targets(desk, hook=f"{{webhook: '{server.url}'}}")
    async with desk.running() as controller:
        await all_ended(controller, await submit(controller))
        await until(lambda: controller.notifier._paces["hook"].failures)
        desk.clock.ahead = 49 * 3600
        controller.notifier.tick()
        assert controller.status.warnings() == (
            "1 event dropped, because no message could be sent in time; see: agentless notify list",
        )
        assert not controller.notifier.busy


@pytest.mark.slow
async def test_a_target_that_is_removed_gets_nothing_more(desk, server):
    server.status = 500
    targets(desk, hook=f"{{webhook: '{server.url}'}}")
    async with desk.running() as controller:
        await all_ended(controller, await submit(controller))
        await until(lambda: controller.notifier._paces["hook"].failures)
        desk.write()
        await controller.inventory.use(None, reading=False)
        controller.notifier.tick()
        assert not controller.notifier.busy
        assert controller.notifier.trouble is None


# ---------------------------------------------------------------------- typed


async def typed(agentless, *words, code=0):
    return await asyncio.to_thread(agentless, *words, code=code)


@pytest.mark.slow
async def test_a_target_is_tried_and_listed(agentless, desk, server):
    targets(desk, hook=f"{{webhook: '{server.url}/s3cret'}}", phone="{ntfy: nowhere, events: []}")
    assert await typed(agentless, "notify", "test", "hook") == ("hook: sent\n", "")
    assert server.bodies[0]["title"] == "test message: notifications work"
    out, err = await typed(agentless, "notify", "test", "phone", "hok", code=1)
    assert out == ""
    assert f"phone: cannot read {desk.inventory.parent}/nowhere: No such file or directory\n" in err
    assert "no notify target 'hok' (did you mean 'hook'?); targets: hook, phone" in err
    out, _ = await typed(agentless, "notify", "list")
    assert "No such file or directory, since" in out
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["TARGET", "KIND", "EVENTS", "OWNERS", "WAITING", "STATUS"]
    assert [row[:3] for row in rows[1:]] == [["hook", "webhook", "end"], ["phone", "ntfy", "as"]]
    listed = json.loads((await typed(agentless, "notify", "list", "--json"))[0])
    assert "s3cret" not in json.dumps(listed)


@pytest.mark.slow
async def test_a_target_that_fails_is_listed_with_the_reason(agentless, desk, environment, server):
    server.status = 403
    targets(desk, hook=f"{{webhook: '{server.url}/s3cret'}}")
    await typed(agentless, "submit", "1x", "--", "true")
    await until(lambda: server.requests)
    log = Path(environment["XDG_STATE_HOME"], "agentless", "controller.log")
    await until(lambda: log.exists() and "notify target hook: the server answered 403" in log.read_text())
    assert "the server answered 403 Forbidden, since" in (await typed(agentless, "notify", "list"))[0]
    assert "s3cret" not in log.read_text()  # noqa: ASYNC240
