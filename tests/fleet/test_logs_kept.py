"""Logs outlive containers: a controller as it is, on simulated nodes, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from agentless.controller.submit.request import Submit
from agentless.controller.tasks import retention
from agentless.controller.tasks.retention import Retention
from agentless.errors import Refused, StateError, Unreachable
from agentless.model.containers.log_query import LogQuery
from agentless.model.files.file_spec import Output
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from tests.fleet.client import until
from tests.fleet.desk import Desk, me

DAY = 24 * 3600.0


BINARY = r"printf 'a\000\377b'; printf 'c\r\n\001' >&2"
BOTH = {1: b"a\0\xffb", 2: b"c\r\n\1", 3: b""}


async def full(*_: object) -> None:
    raise StateError("the disk is full")


async def remove_by_hand(desk: Desk) -> None:
    engine = desk.fleet.nodes["n1"].engine
    for container in list(engine.containers.values()):
        await engine.remove(container, force=True)
    await desk.empty()


async def test_a_log_is_fetched_when_its_task_ends_and_outlives_the_container(desk):
    async with desk.running():
        task = await desk.ended(BINARY)
        await remove_by_hand(desk)
        assert await desk.log(task) == BOTH


async def test_a_log_is_fetched_when_its_task_ended_while_no_controller_ran(desk, tmp_path):
    go = tmp_path / "go"
    async with desk.running():
        task = await desk.submit(f"until [ -e {go} ]; do sleep 0.02; done; {BINARY}")
    go.touch()
    engine = desk.fleet.nodes["n1"].engine
    await until(lambda: not any(container.live for container in engine.containers.values()))
    async with desk.running():
        await until(lambda: desk.kept(task))
        await remove_by_hand(desk)
        assert await desk.log(task) == BOTH


async def test_a_log_that_a_controller_before_this_one_had_no_time_for_is_fetched(desk):
    async with desk.running() as controller:
        controller.retention._begin = lambda _: None
        task = await desk.submit(BINARY)
        await controller.commands.wait(task, 20)
        assert desk.kept(task) is None
    async with desk.running() as controller:
        controller.retention.tick()
        await until(lambda: desk.kept(task))
        assert await desk.log(task) == BOTH


async def test_a_kept_log_is_read_without_its_node(desk):
    """Which does not answer, or is not in the inventory any more."""
    async with desk.running() as controller:
        task = await desk.ended(BINARY)
        desk.fleet.nodes["n1"].cut()
        await until(lambda: not controller.nodes.links["n1"].online)
        assert await desk.log(task) == BOTH
        desk.write(without="n1")
        await controller.inventory.use(None, reading=True)
        assert list(controller.nodes.links) == ["n2"]
        assert await desk.log(task) == BOTH
        with pytest.raises(Refused, match="has no timestamps, and n1 does not answer; omit --since"):
            await desk.log(task, timestamps=True)


async def test_a_log_on_a_node_that_comes_back_is_fetched_then(desk, tmp_path):
    go = tmp_path / "go"
    async with desk.running() as controller:
        task = await desk.submit(f"until [ -e {go} ]; do sleep 0.02; done; {BINARY}")
        desk.fleet.nodes["n1"].cut()
        await until(lambda: not controller.nodes.links["n1"].online)
        go.touch()
        with pytest.raises(Unreachable):
            await desk.log(task)
        await desk.fleet.nodes["n1"].restore()
        await controller.nodes.links["n1"].ready()
        await until(lambda: desk.kept(task))
        assert await desk.log(task) == BOTH


async def test_an_ended_container_goes_after_its_time_and_not_before(desk):
    async with desk.running() as controller:
        task = await desk.ended(BINARY)
        desk.clock.ahead = DAY - 60
        controller.retention.tick()
        assert not controller.retention.busy
        desk.clock.ahead = DAY + 60
        controller.retention.tick()
        await desk.empty()
        assert await desk.log(task) == BOTH
        assert controller.lookup.find(task).state == "completed"


async def test_the_time_is_the_inventorys(desk):
    desk.write("{containers: 1h}")
    async with desk.running() as controller:
        await desk.ended(BINARY)
        desk.clock.ahead = 3660
        controller.retention.tick()
        await desk.empty()


async def test_a_container_whose_log_cannot_be_kept_stays_until_it_can(desk):
    async with desk.running() as controller:
        logs = desk.state / "logs"
        logs.rename(desk.state / "away")
        task = await desk.submit(BINARY)
        await controller.commands.wait(task, 20)
        await until(lambda: controller.status.describe().warnings)
        (warning,) = controller.status.describe().warnings
        assert "No such file or directory; the container stays on n1, and agentless retries" in warning
        controller.retention.tick()
        assert controller.status.describe().warnings == (warning,)
        desk.clock.ahead = 2 * DAY
        controller.retention.tick()
        await until(lambda: not controller.retention.busy)
        assert len(desk.fleet.nodes["n1"].engine.containers) == 1
        (desk.state / "away").rename(logs)
        desk.clock.ahead += 61
        controller.retention.tick()
        await desk.empty()
        assert await desk.log(task) == BOTH
        controller.retention.tick()
        assert controller.status.describe().warnings == ()


async def test_a_log_that_cannot_be_kept_is_tried_again_after_a_minute_and_not_at_once(desk):
    async with desk.running() as controller:
        tries = []
        keeping = desk.controller.retention._logs.writer
        desk.controller.retention._logs.writer = lambda task, cap: (tries.append(task), keeping(task, cap))[1]
        (desk.state / "logs").rename(desk.state / "away")
        await controller.commands.wait(await desk.submit(BINARY), 20)
        await until(lambda: tries and not controller.retention.busy)
        for ahead, expected in ((0, 1), (59, 1), (61, 2), (119, 2), (122, 3)):
            desk.clock.ahead = ahead
            controller.retention.tick()
            await until(lambda: not controller.retention.busy)
            assert len(tries) == expected


async def test_a_warning_goes_with_its_reason(desk):
    async with desk.running() as controller:
        (desk.state / "logs").rename(desk.state / "away")
        await controller.commands.wait(await desk.submit(BINARY), 20)
        await until(lambda: controller.status.describe().warnings)
        await remove_by_hand(desk)
        desk.clock.ahead = 61
        controller.retention.tick()
        assert controller.status.describe().warnings == ()


async def test_outputs_that_cannot_be_kept_are_said_until_they_can_although_logs_are_kept(desk, tmp_path, monkeypatch):
    async with desk.running() as controller:
        with monkeypatch.context() as patch:
            patch.setattr(controller.outputs, "bring", full)
            outputs = (Output("/out", f"{tmp_path}/out/"),)
            spec = TaskSpec(("sh", "-c", BINARY), needs=parse_target("n1"), outputs=outputs)
            await controller.submission.submit(Submit((spec,), {}, me(controller)))
            await until(lambda: controller.status.describe().warnings)
            await desk.ended(BINARY)
            controller.retention.tick()
            (warning,) = controller.status.describe().warnings
        assert warning.startswith("the disk is full")
        desk.clock.ahead = 61
        controller.retention.tick()
        await until(lambda: not controller.status.describe().warnings)


async def test_what_another_controller_started_is_left_alone(desk, tmp_path):
    """Also by one whose owner has the same name."""
    other = Desk(tmp_path / "other", desk.fleet)
    async with desk.running() as controller, other.running():
        task = await other.ended(BINARY)
        await until(lambda: [container.over for container in controller.nodes.links["n1"].containers] == [True])
        desk.clock.ahead = 2 * DAY
        controller.retention.tick()
        assert not controller.retention.busy
        assert desk.kept(task) is None
        assert await desk.log(task) == BOTH


async def test_a_task_that_is_started_again_has_its_whole_log_afterwards(desk, tmp_path):
    go, end = tmp_path / "go", tmp_path / "end"
    script = f"echo run; [ -e {go} ] && until [ -e {end} ]; do sleep 0.02; done; true"
    async with desk.running() as controller:
        task = await desk.ended(script)
        go.touch()
        (container,) = desk.fleet.nodes["n1"].engine.containers.values()
        desk.fleet.nodes["n1"].engine.start(container)
        await until(lambda: task in controller.tasks.live)
        await until(lambda: not desk.kept(task))
        end.touch()
        await until(lambda: desk.kept(task))
        assert await desk.log(task) == {1: b"run\nrun\n", 2: b"", 3: b""}
        desk.clock.ahead = DAY + 60
        controller.retention.tick()
        await desk.empty()


async def test_a_task_that_was_recovered_has_its_log_kept(desk, tmp_path):
    """Its container stays: it is labelled as another controller's."""
    async with desk.running():
        task = await desk.ended(BINARY)
    again = Desk(tmp_path / "again", desk.fleet)
    async with again.running() as controller:
        controller.retention.tick()
        assert not controller.retention.busy
        controller.ledger.adopt(controller.recovery.unremembered(me(controller))[task][0], "agentless recover")
        await until(lambda: again.kept(task))
        assert await again.log(task) == BOTH


async def test_of_a_long_log_the_two_ends_are_kept_and_what_is_missing_is_counted(desk):
    desk.write("{log: 1000B}")
    script = "seq 1000; seq 5000 5999 >&2"
    out = "".join(f"{n}\n" for n in range(1, 1001)).encode()
    err = "".join(f"{n}\n" for n in range(5000, 6000)).encode()
    async with desk.running():
        task = await desk.ended(script)
        assert desk.kept(task) == "cut"
        await remove_by_hand(desk)
        kept = [frame async for frame in desk.controller.logs.read(task, LogQuery())]
    at = next(n for n, (stream, _) in enumerate(kept) if stream == 3)
    head, note, tail = kept[:at], kept[at][1].decode(), kept[at + 1 :]
    parts = [{fd: b"".join(d for s, d in part if s == fd) for fd in (1, 2)} for part in (head, tail)]
    assert sum(len(part[fd]) for part in parts for fd in (1, 2)) == 1000
    for fd, whole in ((1, out), (2, err)):
        assert whole.startswith(parts[0][fd])
        assert whole.endswith(parts[1][fd])
        assert len(parts[1][fd]) == 250
        missing = len(whole) - len(parts[0][fd]) - 250
        assert f"{missing:,} bytes of standard {'output' if fd == 1 else 'error'}" in note


async def test_of_a_long_log_the_container_has_all_as_long_as_it_is_there(desk):
    desk.write("{log: 1000B}")
    async with desk.running():
        task = await desk.ended("seq 1000")
        assert len((await desk.log(task))[1]) == 3893


async def test_a_log_that_was_given_up_is_told(desk):
    desk.write("{logs: 5000B}")
    async with desk.running():
        first, second = await desk.ended("echo first"), await desk.ended("echo second")
        assert (await desk.log(first))[1] == b"first\n"
        await remove_by_hand(desk)
        with pytest.raises(Refused, match=rf"the log of task {first} was discarded to save disk space \(keep: logs\)"):
            await desk.log(first)
        assert (await desk.log(second))[1] == b"second\n"


async def test_a_removed_task_leaves_no_log(desk):
    async with desk.running() as controller:
        task = await desk.ended(BINARY)
        await controller.removal.remove(task, by=me(controller))
        assert list((desk.state / "logs").iterdir()) == []


async def test_a_removed_task_is_not_shown_again_by_an_answer_that_was_on_its_way(desk):
    async with desk.running() as controller:
        task = await desk.ended("true")
        link = controller.nodes.links["n1"]
        answer = link.observation
        await controller.removal.remove(task, by=me(controller))
        await desk.empty()
        link.cache.observation = answer
        assert controller.lookup.others() == {}


@pytest.fixture
def hold(monkeypatch):
    """Fetching stops before its end: `begun` says that it has come so far, `go` lets it go on."""
    hold = SimpleNamespace(begun=asyncio.Event(), go=asyncio.Event())
    real = retention.copy_log

    async def copy(*words):
        await real(*words)
        hold.begun.set()
        await hold.go.wait()

    monkeypatch.setattr(retention, "copy_log", copy)
    return hold


async def test_a_controller_does_not_leave_while_it_fetches(desk, hold):
    async with desk.running() as controller:
        await controller.commands.wait(await desk.submit(BINARY), 20)
        await asyncio.wait_for(hold.begun.wait(), 20)
        controller.traffic.last = 0
        assert not controller.lifetime.is_idle()
        hold.go.set()
        await until(controller.lifetime.is_idle)


async def test_a_task_that_is_removed_while_its_log_is_fetched_leaves_none(desk, hold):
    async with desk.running() as controller:
        task = await desk.submit(BINARY)
        await asyncio.wait_for(hold.begun.wait(), 20)
        await controller.removal.remove(task, by=me(controller))
        hold.go.set()
        await until(lambda: not controller.retention.busy)
        assert list((desk.state / "logs").iterdir()) == []


async def test_a_log_that_does_not_come_as_it_was_counted_is_not_kept(desk, tmp_path):
    folder = tmp_path / "config" / "agentless" / "templates"
    folder.mkdir()
    (folder / "docker-log-ends.sh.j2").write_text("echo 5000; echo 5000 >&2\n")
    desk.write("{log: 1000B}")
    async with desk.running() as controller:
        task = await desk.submit("seq 1000")
        await controller.commands.wait(task, 20)
        await until(lambda: controller.retention._backoff._not_before and not controller.retention.busy)
        assert desk.kept(task) is None


async def test_one_log_is_fetched_at_a_time_from_a_node(desk, monkeypatch):
    under_way, most = set(), []
    real = Retention._fetch

    async def fetch(keeper, link, task):
        under_way.add((link.node.name, task.id))
        most.append(max(sum(node == name for node, _ in under_way) for name in ("n1", "n2")))
        await real(keeper, link, task)
        under_way.discard((link.node.name, task.id))

    monkeypatch.setattr(Retention, "_fetch", fetch)
    async with desk.running():
        await asyncio.gather(*(desk.ended("seq 100", node) for node in ("n1", "n2") for _ in range(4)))
    assert most == [1] * 8
