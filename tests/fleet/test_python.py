"""What Python can do with a cluster: a real controller, started on demand, and simulated nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from agentless import AgentlessError, Cluster, NoAnswer, NotFound, Refused, Task, UsageError, paths
from agentless.demo.fleet import NodePlan
from agentless.model.tasks.task_id import first_try
from tests.fleet.client import PATIENCE, until
from tests.fleet.inhabited import end_controller, inhabited
from tests.fleet.world import World

PLANS = [NodePlan("n1", 4), NodePlan("n2", 1, foreign=True), NodePlan("n3", 1)]
LONG = ("sh", "-c", "trap 'echo saved; exit 0' TERM; echo begun; sleep 600 & wait")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("api"), PLANS) as world:
        yield world


@pytest.fixture
def cluster(world: World) -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    for task in cluster.tasks():
        with contextlib.suppress(NotFound):  # it has just gone
            task.remove(force=True)


@pytest.fixture
def held(cluster: Cluster) -> Task:
    """A task that holds the only GPU of n3."""
    return cluster.submit(*LONG, target="n3::0")


@pytest.fixture(autouse=True)
def _threads_before(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "BEFORE", frozenset(threading.enumerate()))


BEFORE: frozenset[threading.Thread] = frozenset()
"""The threads of earlier tests."""


def threads() -> int:
    """How many threads the API has for this test."""
    return sum(thread.name.startswith("agentless") and thread not in BEFORE for thread in threading.enumerate())


# --------------------------------------------------------------------- plain


def test_a_task_from_submit_to_its_end(cluster):
    task = cluster.submit("sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; exit 3", target="n1::1", time_limit="1h", name="a")
    ended = task.wait()
    assert (task.node, task.gpus, task.time_limit, task.name) == ("n1", (1,), 3600.0, "a")
    assert (ended.id, ended.state, ended.exit_code) == (task.id, "failed", 3)
    assert list(ended.logs()) == list(task.gpu_uuids)


def test_what_no_target_says_is_an_option(cluster):
    task = cluster.submit("true", gpus=2, gpu_memory="40G", node="n1", cores=1, label={"team": "vision"})
    assert (task.node, len(task.gpus), task.cores, task.labels) == ("n1", 2, 1.0, {"team": "vision"})


def test_a_variable_and_a_secret_reach_the_task(cluster):
    task = cluster.submit("sh", "-c", "echo $A $B", target="n1", env={"A": "x y"}, secret_env={"B": "s3cret"})
    assert list(task.wait().logs()) == ["x y s3cret"]
    assert task.env_names == ("A", "B")


def test_a_log_is_followed_to_the_end_of_the_task(cluster):
    task = cluster.submit(*LONG, target="n1::0")
    seen = []
    for line in task.logs(follow=True):
        seen.append(line)
        if line == "begun":
            task.stop(grace=timedelta(seconds=20))
    assert seen == ["begun", "saved"]


def test_one_stream_and_the_last_lines_of_a_log(cluster):
    ended = cluster.submit("sh", "-c", "echo 1; echo 2; echo oops >&2", target="n1").wait()
    assert list(ended.logs(stderr=True)) == ["oops"]
    assert list(ended.logs(stdout=True)) == ["1", "2"]
    assert list(ended.logs(stdout=True, tail=1)) in (["2"], [])


def test_a_number_of_lines_that_cannot_be_is_refused_by_its_name(cluster):
    task = cluster.submit("true", target="n1").wait()
    with pytest.raises(UsageError, match=r"^--tail: "):
        list(task.logs(tail=-1))


def test_a_log_with_times_and_since_when(cluster):
    ended = cluster.submit("echo", "hello", target="n1").wait()
    (line,) = ended.logs(timestamps=True, since=timedelta(hours=1))
    when, _, text = line.partition(" ")
    assert (datetime.fromisoformat(when).tzinfo, text) == (UTC, "hello")
    assert list(ended.logs(since=datetime.now(UTC) + timedelta(hours=1))) == []


def test_stop_pause_resume_kill_and_remove_give_the_task_anew(cluster):
    task = cluster.submit(*LONG, target="n1::0")
    assert task.pause().state == "paused"
    assert task.resume().state == "running"
    assert task.refresh().state == "running"
    ended = task.kill()
    assert (task.state, ended.state) == ("running", "killed")
    assert ended.remove().id == task.id
    assert "removed" in [event.event for event in cluster.events(last=5)]


def test_a_task_is_found_by_id_beginning_and_name(cluster):
    task = cluster.submit(*LONG, target="n1::0", name="train")
    found = {cluster.task(task.id).id, cluster.task(task.id[:10]).id, cluster.task("train").id}
    assert found == {task.id}
    assert task.id in [each.id for each in cluster.tasks()]


def test_what_has_ended_is_listed_with_all(cluster):
    task = cluster.submit("true", target="n1").wait()
    assert task.id not in [each.id for each in cluster.tasks()]
    assert task.id in [each.id for each in cluster.tasks(all=True, mine=True)]


def test_who_waits_knows_why(cluster, held):
    task = cluster.submit("true", target="n3::0", priority=5)
    assert (task.state, task.position) == ("pending", 1)
    assert [each.id for each in cluster.queue()] == [task.id]
    found = task.explain()
    assert (found.task, found.obstacles[0].node) == (task.id, "n3")
    assert held.id in found.obstacles[0].text


def test_what_would_become_of_a_task_is_told_and_nothing_is_submitted(cluster, held):
    found = cluster.explain("n3::0")
    assert "would be number 1 in the queue" in found.summary
    assert found.remedies["n3"] == (f"when task {held.id} of {held.owner} ends",)
    assert cluster.explain(gpus=1).summary.startswith("1x would start now, on n")
    assert [task.id for task in cluster.tasks()] == [held.id]


def test_places_in_the_queue_are_given_by_hand(cluster, held):
    first, second = (cluster.submit("true", target="n3::0") for _ in range(2))
    assert second.move(1).position == 1
    assert [task.id for task in cluster.queue()] == [second.id, first.id]
    assert {share.owner: share.waiting for share in cluster.shares()} == {held.owner: 2}


def test_gpus_are_reserved_and_given_back(cluster):
    (made,) = cluster.reserve("n3", owner="ann", begin=timedelta(hours=1), end="2h", reason="deadline")
    assert (made.node, made.owner, made.reason) == ("n3", "ann", "deadline")
    assert [each.id for each in cluster.reservations()] == [made.id]
    cluster.unreserve(made.id)
    assert cluster.reservations() == []


def test_a_task_that_is_refused_says_why(cluster, held):
    with pytest.raises(Refused, match=f"n3::0: GPU 0 is allocated: held by task {held.id}"):
        cluster.submit("true", target="n3::0", no_queue=True)


def test_what_can_never_be_had_is_refused(cluster):
    with pytest.raises(Refused):
        cluster.submit("true", gpus=64)


def test_a_node_that_is_not_there(cluster):
    with pytest.raises(NotFound, match="n9"):
        cluster.submit("true", target="n9::0")
    with pytest.raises(NotFound, match="n9"):
        cluster.node("n9")


def test_an_image_that_cannot_be_had_is_an_error_with_its_reason(cluster):
    with pytest.raises(AgentlessError, match="no/such:image"):
        cluster.submit("true", target="n1", image="no/such:image")


def test_what_cannot_be_meant_is_told_apart(cluster):
    with pytest.raises(UsageError):
        cluster.submit("true", target="n1::0", time_limit="soon")


def test_a_word_with_a_slash_names_nothing(cluster):
    with pytest.raises(NotFound):
        cluster.task("../gpus")


def test_each_target_of_a_batch_is_served_or_fails_alone(cluster, held):
    batch = cluster.submit_batch("true", targets=["n1::0", "n3::0", "n1::1"], no_queue=True)
    assert [task.target for task in batch.tasks] == ["n1::0", "n1::1"]
    assert len({task.batch for task in batch.tasks}) == 1
    assert [type(error) for error in batch.errors] == [Refused]
    found = cluster.tasks(batch=batch.tasks[1].id, all=True)
    assert {task.id for task in found} == {task.id for task in batch.tasks}


def test_a_sweep_is_a_batch_of_all_combinations(cluster):
    batch = cluster.submit_batch("sh", "-c", "exit $0", "span:{0..2}", gpus=1, node="n1")
    assert [task.parameters for task in batch.tasks] == [{"arg3": "0"}, {"arg3": "1"}, {"arg3": "2"}]
    assert [task.wait().exit_code for task in batch.tasks] == [0, 1, 2]
    with pytest.raises(UsageError, match="submit_batch"):
        cluster.submit("echo", "span:{0..2}", gpus=1)


def test_a_batch_is_waited_for_and_what_failed_is_tried_again(cluster):
    script = "case $AGENTLESS_TASK_ID in *-2) exit 0;; *) exit $0;; esac"
    batch = cluster.submit_batch("sh", "-c", script, "span:{0..2}", gpus=1, node="n1")
    ended = batch.wait("60s")
    assert [task.exit_code for task in ended.tasks] == [0, 1, 2]
    again = ended.retry_failed()
    assert [task.attempt for task in again.tasks] == [1, 2, 2]
    assert [task.exit_code for task in again.wait().tasks] == [0, 0, 0]
    assert [task.id for task in again.retry_failed().tasks] == [task.id for task in again.tasks]


def test_a_batch_that_takes_too_long_goes_on_and_is_stopped_as_a_whole(cluster):
    batch = cluster.submit_batch("sleep", "span:{600..605}", gpus=1, node="n1")
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.05; all tasks keep running"):
        batch.wait(timeout=0.05)
    stopped = batch.stop(grace=0)
    assert [task.state for task in stopped.tasks] == ["stopped"] * 4 + ["cancelled"] * 2
    assert [task.id for task in stopped.tasks] == [task.id for task in batch.tasks]


def test_of_a_batch_all_are_acted_on_although_one_cannot_be(cluster):
    batch = cluster.submit_batch("false", targets=["n1::0", "n1::1", "n1::2"]).wait()
    batch.tasks[1].remove()
    with pytest.raises(NotFound, match=batch.tasks[1].id):
        batch.retry_failed()
    assert [cluster.task(batch.tasks[n].id).attempt for n in (0, 2)] == [2, 2]


async def test_a_batch_is_awaited(cluster):
    batch = await cluster.submit_batch.aio("sh", "-c", "exit $0", "span:{0..1}", gpus=1)
    assert [task.exit_code for task in (await batch.wait.aio()).tasks] == [0, 1]


def test_a_task_that_is_tried_again_is_one_task(cluster):
    script = "echo try $AGENTLESS_TASK_ID; case $AGENTLESS_TASK_ID in *-2) exit 0;; *) exit 3;; esac"
    begun = cluster.submit("sh", "-c", script, target="n1::0", retries=1, backoff=0)
    ended, first = begun.wait(), first_try(begun.id)  # it may have been tried again by the time that it is told
    assert (ended.id, ended.attempt, ended.exit_code) == (f"{first}-2", 2, 0)
    assert list(ended.logs()) == list(begun.logs()) == [f"try {first}-2"]
    (earlier,) = [task for task in cluster.tasks(all=True) if task.id == first]
    assert (earlier.retried_as, earlier.wait().exit_code) == (ended.id, 3)
    assert list(earlier.logs()) == [f"try {first}"]
    assert ended.retry().id == f"{first}-3"


def test_a_task_for_later_waits_for_its_time(cluster):
    task = cluster.submit("true", target="n1", at=datetime.now(UTC) + timedelta(hours=1))
    assert task.state == "scheduled"
    assert task.stop().state == "cancelled"


def test_a_rehearsal_starts_nothing(cluster):
    script = cluster.dry_run("true", target="n1::0", secret_env={"TOKEN": "s3cret"})
    assert "docker" in script
    assert "s3cret" not in script
    assert cluster.tasks() == []


def test_a_rehearsal_of_what_would_wait_has_no_script(cluster, held):
    with pytest.raises(Refused, match=f"would be pending: n3::0: GPU 0 is allocated: held by task {held.id}"):
        cluster.dry_run("true", target="n3::0")


def test_the_machines(cluster, held):
    assert [node.name for node in cluster.nodes()] == ["n1", "n2", "n3"]
    assert cluster.node("n1").gpus == 4
    assert [gpu.state for gpu in cluster.gpus("n2")] == ["foreign"]
    assert cluster.gpus("n2")[0].processes[0].pid > 0
    assert {gpu.node for gpu in cluster.gpus(free=True)} == {"n1"}
    assert {check.ok for check in cluster.doctor("n1")} == {True}
    assert cluster.controller().nodes == 3
    assert cluster.recoverable().tasks == ()


def test_a_node_is_drained_and_let_in_again(cluster, held):
    assert cluster.drain("n3", reason="new fans").drained
    try:
        with pytest.raises(Refused, match="new fans"):
            cluster.submit("true", target="n3", no_queue=True)
        held.kill()
        assert cluster.drain("n3", wait=True).tasks == 0
    finally:
        found = cluster.resume("n3")
    assert (found.node.drained, len(found.lifted)) == (False, 1)


def test_what_has_happened(cluster):
    task = cluster.submit("true", target="n1").wait()
    assert [event.event for event in task.events()] == ["assigned", "launched", "exited"]
    assert [event.task.state for event in cluster.events(task.id)] == ["assigning", "running", "completed"]
    assert len(list(cluster.events(last=2))) == 2
    following = cluster.events(task.id, follow=True)
    assert [next(following).event for _ in range(3)] == ["assigned", "launched", "exited"]


def test_a_wait_that_takes_too_long_is_over_and_the_task_goes_on(cluster, held):
    with pytest.raises(TimeoutError, match="keeps running"):
        held.wait(timeout=0.05)
    assert held.refresh().state == "running"


def test_a_wait_survives_a_controller_that_dies(cluster):
    task = cluster.submit("sh", "-c", "sleep 600 & wait", target="n1::0")
    ended = []
    waiting = threading.Thread(target=lambda: ended.append(task.wait()))
    waiting.start()
    end_controller(signal.SIGKILL)
    task.kill()
    waiting.join(PATIENCE)
    assert [each.state for each in ended] == ["killed"]


def test_a_task_is_taken_back_when_the_state_is_gone(cluster, held):
    end_controller(signal.SIGKILL)
    shutil.rmtree(paths.state_dir())
    found = cluster.recoverable()
    assert held.id in [task.id for task in found.tasks]
    assert [task.state for task in cluster.recover([held.id])] == ["running"]
    assert held.kill().state == "killed"


def test_a_node_that_does_not_answer_is_told_apart(cluster, world):
    world.do(world.nodes["n3"].cut)
    try:
        while cluster.node("n3").state != "offline":
            pass  # a launch on a connection that is not known to be cut is told otherwise
        with pytest.raises(NoAnswer, match=r"n3 \(.*\) cannot be reached"):
            cluster.submit("true", target="n3::0", no_queue=True)
    finally:
        world.do(world.nodes["n3"].restore)


def test_another_inventory_is_not_served_by_this_controller(cluster, world, tmp_path):
    other = tmp_path / "lab.yaml"
    other.write_text(world.fleet.inventory.read_text())
    with pytest.raises(Refused, match=r"lab\.yaml"):
        Cluster(inventory=other).gpus()


def test_an_inventory_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        Cluster(inventory=tmp_path / "nowhere.yaml")


def test_the_working_directory_is_left_alone(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = []
    monkeypatch.setattr(os, "chdir", changes.append)
    cluster.gpus()
    assert changes == []


# ------------------------------------------------------------------- awaited


async def test_a_task_is_awaited_from_submit_to_its_end(cluster):
    task = await cluster.submit.aio("sh", "-c", "echo one; echo two", target="n1::0")
    assert [line async for line in task.logs.aio(follow=True)] == ["one", "two"]
    assert (await task.wait.aio()).exit_code == 0


async def test_an_awaited_refusal_is_the_same(cluster, held):
    with pytest.raises(Refused, match=held.id):
        await cluster.submit.aio("true", target="n3::0", no_queue=True)


async def test_many_wait_and_others_are_served(cluster, held):
    waiting = [asyncio.create_task(held.wait.aio()) for _ in range(50)]
    await until(lambda: threads() >= 50)
    assert (await held.stop.aio()).state == "stopped"
    assert {task.state for task in await asyncio.gather(*waiting)} == {"stopped"}


async def test_a_cancelled_wait_ends_at_once_and_the_task_goes_on(cluster, held):
    waiting = asyncio.create_task(held.wait.aio())
    await until(lambda: threads() == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(lambda: threads() == 0)
    assert (await held.refresh.aio()).state == "running"


async def test_a_log_that_is_followed_no_more_is_let_go(cluster, held):
    async with contextlib.aclosing(held.logs.aio(follow=True)) as lines:
        assert await anext(lines) == "begun"
    await until(lambda: threads() == 0)
    assert (await held.refresh.aio()).state == "running"


async def test_events_are_followed_until_cancelled(cluster, held):
    seen = []

    async def follow() -> None:
        async for event in cluster.events.aio(held.id, follow=True):
            seen.append(event.event)  # noqa: PERF401 - one is looked at before the next one comes

    following = asyncio.create_task(follow())
    await until(lambda: seen == ["assigned", "launched"])
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    await until(lambda: threads() == 0)


async def test_an_awaited_wait_survives_a_controller_that_dies(cluster, held):
    waiting = asyncio.create_task(held.wait.aio())
    await until(lambda: threads() == 1)
    await asyncio.to_thread(end_controller, signal.SIGKILL)
    await held.stop.aio()
    assert (await waiting).state == "stopped"
