"""Time limits, tasks for later, and tries, on simulated nodes: n1 has four GPUs."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from agentless.controller.submit.request import Submit
from agentless.errors import Refused
from agentless.model.files.file_spec import Upload
from agentless.model.files.snapshot import Entry
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task_id import first_try, next_try
from agentless.model.tasks.terms import Terms
from tests.fleet.client import until
from tests.fleet.desk import Desk, me
from tests.fleet.test_queue import submit

FAR = 1e9


async def started(controller, script, target="n1", secrets=None, grace=10.0, **terms):
    """The first try of a task that has been submitted with these terms; it may be over, and the next one the answer."""
    names = tuple(secrets or ())
    spec = TaskSpec(
        ("sh", "-c", script), needs=parse_target(target), secret_env=names, stop_grace=grace, terms=Terms(**terms)
    )
    (start,) = await controller.submission.submit(Submit((spec,), secrets or {}, me(controller)))
    assert start.task, start.message
    return first_try(start.task.id)


async def events(controller, task):
    return [event for _, event in controller.tasks.history.events(0, -1, task)]


# ------------------------------------------------------------------ time limits


async def test_at_its_limit_a_task_gets_sigterm_and_is_called_timeout(desk):
    async with desk.running() as controller:
        task = await started(controller, "trap 'echo told; exit 3' TERM; while :; do sleep 0.05; done", time_limit=0.5)
        over = (await controller.commands.wait(task, 20)).status
        assert (over.state, over.exit_code) == ("timeout", 3)
        assert (await desk.log(task))[1] == b"told\n"


async def test_its_own_signal_comes_before_the_limit(desk):
    async with desk.running() as controller:
        script = "trap 'echo usr1' USR1; trap 'echo term' TERM; while :; do sleep 0.05; done"
        task = await started(controller, script, time_limit=1.5, signal="USR1", signal_before=1.0, grace=3600.0)
        over = (await controller.commands.wait(task, 20)).status
        assert (over.state, over.exit_code) == ("timeout", 137)
        assert (await desk.log(task))[1] == b"usr1\n"
        assert over.ended_at - over.started_at > 1.5 - 0.1


async def test_who_does_not_listen_is_killed_after_the_grace_time(desk):
    async with desk.running() as controller:
        task = await started(controller, "trap '' TERM; while :; do sleep 0.05; done", time_limit=0.3, grace=0.3)
        over = (await controller.commands.wait(task, 20)).status
        assert (over.state, over.exit_code) == ("timeout", 137)


async def test_a_stop_without_a_grace_time_has_that_of_the_submit(desk):
    """As long as nobody hears of it: killed after an hour, it would not have ended here."""
    async with desk.running() as controller:
        patient = await started(controller, "trap '' TERM; while :; do sleep 0.05; done", grace=3600.0)
        hasty = await started(controller, "trap '' TERM; while :; do sleep 0.05; done", grace=0.2)
        waiting = asyncio.create_task(controller.stops.stop(patient, "stop", by=me(controller)))
        async with asyncio.timeout(30):
            assert (await controller.stops.stop(hasty, "stop", by=me(controller))).state == "stopped"
        assert not waiting.done()
        await controller.stops.stop(patient, "kill", by=me(controller))
        await waiting


async def test_a_grace_time_that_is_asked_for_does_not_reach_beyond_the_limit(desk):
    async with desk.running() as controller:
        task = await started(controller, "trap '' TERM; while :; do sleep 0.05; done", time_limit=1.0, grace=0.2)
        async with asyncio.timeout(30):
            assert (await controller.stops.stop(task, "stop", 3600.0, by=me(controller))).state == "stopped"


async def test_who_is_done_in_time_has_completed(desk):
    async with desk.running() as controller:
        task = await started(controller, "true", time_limit=30.0)
        assert (await controller.commands.wait(task, 20)).state == "completed"


async def test_a_limit_that_passed_while_there_was_no_controller_is_kept_by_the_next_one(desk):
    async with desk.running() as controller:
        task = await started(controller, "sleep 600", time_limit=3600.0, grace=0.2)
    async with desk.running() as controller:
        desk.clock.ahead = 3601
        controller.deadlines.tick()
        assert (await controller.commands.wait(task, 20)).state == "timeout"


# ---------------------------------------------------------------------- for later


async def test_a_task_for_later_holds_nothing_before_its_time_and_starts_at_it(desk):
    async with desk.running() as controller:
        at = desk.clock.now() + 2
        task = await started(controller, "sleep 600", "n1::0-3", start_at=at)
        view = controller.views.view(controller.lookup.find(task))
        assert (view.state, view.position, view.gpu_uuids) == ("scheduled", None, ())
        assert [waiting.id for waiting in controller.queue.tasks] == [task]
        assert (await submit(controller, "n1::0", command=("true",))).task.gpu_uuids
        await until(lambda: controller.lookup.find(task).state == "running")
        assert controller.lookup.find(task).status.started_at >= at


async def test_a_task_for_later_can_be_cancelled(desk):
    async with desk.running() as controller:
        task = await started(controller, "true", start_at=desk.clock.now() + 3600)
        assert (await controller.stops.stop(task, "stop", by=me(controller))).state == "cancelled"


async def test_what_can_never_be_had_is_not_had_later(desk):
    async with desk.running() as controller:
        start = await submit(controller, "9x", start_at=desk.clock.now() + 3600)
        assert (start.task, start.exit_code) == (None, 3)


# -------------------------------------------------------------------------- tries


@pytest.mark.slow
async def test_a_task_is_tried_until_it_succeeds(desk, tmp_path):
    async with desk.running() as controller:
        count = tmp_path / "count"
        script = f"echo x >> {count}; test $(wc -l < {count}) -ge 3 || exit 75"
        task = await started(controller, script, retries=5, retry_on=("exit:75",), backoff=0.05)
        last = await controller.commands.wait(task, 30)
        assert (last.id, last.state, last.attempt) == (f"{task}-3", "completed", 3)
        assert [controller.lookup.find(f"{task}-{n}").status.exit_code for n in (1, 2, 3)] == [75, 75, 0]
        assert controller.views.view(controller.lookup.find(f"{task}-1")).retried_as == f"{task}-2"


async def test_after_the_last_try_it_has_failed(desk):
    async with desk.running() as controller:
        task = await started(controller, "exit 1", retries=1, backoff=0.05)
        last = await controller.commands.wait(task, 30)
        assert (last.id, last.state) == (f"{task}-2", "failed")
        assert not controller.tasks.live


async def test_who_stops_a_task_stops_its_next_try(desk):
    async with desk.running() as controller:
        task = await started(controller, "exit 1", retries=3, backoff=3600.0)
        await until(lambda: controller.tasks.knows(f"{task}-2"))
        view = await controller.stops.stop(task, "stop", by=me(controller))
        assert (view.id, view.state) == (f"{task}-2", "cancelled")
        assert not controller.tasks.live


async def test_a_stopped_task_is_not_tried_again(desk):
    async with desk.running() as controller:
        task = await started(controller, "sleep 600", retries=3, backoff=0.0)
        assert (await controller.stops.stop(task, "kill", by=me(controller))).id == task
        assert not controller.tasks.knows(f"{task}-2")


@pytest.mark.slow
async def test_secrets_are_there_for_each_try_and_gone_after_the_last(desk):
    async with desk.running() as controller:
        task = await started(
            controller, 'test "$KEY" = s3cret && exit 9', secrets={"KEY": "s3cret"}, retries=2, backoff=0.05
        )
        last = await controller.commands.wait(task, 30)
        assert (last.attempt, last.status.exit_code) == (3, 9)
        assert controller.ledger.stores.secrets.tasks() == []


async def test_following_its_log_shows_all_tries(desk, tmp_path):
    async with desk.running() as controller:
        wait = f"while test ! -e {tmp_path}/go; do sleep 0.05; done"
        script = f"echo try; {wait}; test -e {tmp_path}/seen || {{ touch {tmp_path}/seen; exit 1; }}"
        task = await started(controller, script, retries=1, backoff=0.05)
        following = asyncio.create_task(desk.log(task, follow=True))
        await asyncio.sleep(0)  # it has begun with the first try
        (tmp_path / "go").touch()
        log = await following
        assert log[1] == b"try\ntry\n"
        assert log[3] == f"try 2 of 2, task {task}-2".encode()


async def test_the_next_try_is_kept_by_the_next_controller(desk):
    async with desk.running() as controller:
        task = await started(controller, "exit 1", retries=1, backoff=3600.0)
        await until(lambda: controller.tasks.knows(f"{task}-2"))
    async with desk.running() as controller:
        assert controller.lookup.find(task).state == "scheduled"
        desk.clock.ahead = 3601
        controller.deadlines.tick()
        assert controller.lookup.find(task).state == "pending"


async def test_a_lost_task_that_may_goes_on_elsewhere_and_is_ended_when_its_node_is_back(desk):
    async with desk.running() as controller:
        task = await started(controller, "sleep 600", "1x", retries=1, retry_on=("lost",), backoff=0.0)
        link = controller.nodes.links[controller.lookup.find(task).node]
        node = desk.fleet.nodes[link.node.name]
        node.cut()
        await until(lambda: not link.online)
        link.connection.offline_since -= FAR
        controller.reconciler.lose_silent()
        await node.restore()
        await link.ready()
        await until(lambda: controller.lookup.task(task).state == "killed")
        again = controller.lookup.find(task)
        assert (again.id, again.live) == (f"{task}-2", True)
        await until(lambda: controller.lookup.find(task).state == "running")


@pytest.mark.parametrize("ended", [False, True])
async def test_an_earlier_try_is_not_tried_again_in_place_of_the_one_after_it(desk, ended):
    async with desk.running() as controller:
        task = await started(controller, "sleep 600")
        await controller.stops.stop(task, "kill", by=me(controller))
        second = controller.retries.retry(task, by=me(controller)).id
        await until(lambda: controller.lookup.find(second).state == "running")
        if ended:
            await controller.stops.stop(second, "kill", by=me(controller))
        before = controller.lookup.find(second)
        with pytest.raises(Refused, match=f"was already retried as {second}; run: agentless retry {second}"):
            controller.retries.retry(f"{task}-1", by=me(controller))
        assert controller.lookup.find(second) == before
        await controller.stops.stop(second, "kill", by=me(controller))
        assert not any(container.live for container in desk.fleet.nodes["n1"].engine.containers.values())
        assert controller.retries.retry(task, by=me(controller)).id == f"{task}-3"


async def test_a_task_of_another_controller_is_not_tried_again_here(desk, tmp_path):
    other = Desk(tmp_path / "other", desk.fleet)
    async with desk.running() as mine, other.running() as theirs:
        task = await other.ended("exit 1")
        await until(lambda: task in mine.lookup.others())
        with pytest.raises(Refused, match="to take over your own tasks, run: agentless recover"):
            mine.retries.retry(task, by=me(mine))
        assert theirs.retries.retry(task, by=me(theirs)).id == f"{task}-2"


async def uploaded_and_ended(controller):
    """A task that has ended, with a file that was uploaded."""
    content = hashlib.sha256(b"hello").hexdigest()
    snapshot, _ = controller.uploads.store.put({"": Entry("file", 0o644, 5, content)})
    writer = controller.uploads.store.writer(content)
    writer.write(b"hello")
    assert writer.finish()
    spec = TaskSpec(("true",), needs=parse_target("n1"), uploads=(Upload("/here/file", "file", snapshot),))
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    return await controller.commands.wait(start.task.id, 20)


async def test_a_task_is_tried_again_with_what_was_uploaded_with_it(desk):
    async with desk.running() as controller:
        task = await uploaded_and_ended(controller)
        assert controller.retries.retry(task.id, by=me(controller)).attempt == 2


async def test_a_task_whose_upload_is_not_kept_any_more_is_not_tried_again_and_says_so(desk):
    async with desk.running() as controller:
        task = await uploaded_and_ended(controller)
        for kept in (desk.state / "snapshots" / "manifests").iterdir():
            kept.unlink()
        words = f"cannot retry task {task.id}: its uploaded files have been deleted; submit again"
        with pytest.raises(Refused, match=words):
            controller.retries.retry(task.id, by=me(controller))
        assert not controller.tasks.knows(next_try(task.id))


async def test_a_task_whose_upload_has_lost_a_file_is_not_tried_again_and_says_so(desk):
    async with desk.running() as controller:
        task = await uploaded_and_ended(controller)
        for kept in (desk.state / "snapshots" / "contents").glob("*/*"):
            kept.unlink()
        with pytest.raises(Refused, match="the upload of /here/file is incomplete; submit again"):
            controller.retries.retry(task.id, by=me(controller))
