"""Numbers over time on simulated nodes: of GPUs, of what was used, and for Prometheus. n1 has four GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentless.controller.nodes.link import sampler
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import NotFound, UsageError
from agentless.model.address import Address
from agentless.model.usage.spent import GpuActivity, Spent
from agentless.rules.usage.series import GPU, LEVELS, NODE
from agentless.stores.records.samples import SampleStore
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.ports import reserve

HOUR = 3600.0


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Samples come quickly: what is waited for is the next one."""
    monkeypatch.setattr(sampler, "SAMPLE_EVERY", 0.05)


@contextlib.asynccontextmanager
async def running(desk):
    """A controller whose links have its clock, which a test may set."""
    async with desk.running() as controller:
        yield controller


@pytest.fixture
def free_port():
    with contextlib.ExitStack() as held:
        yield lambda: held.enter_context(reserve()).getsockname()[1]


async def sampled(controller, node="n1"):
    """Wait for a sample that is taken from now on."""
    link, now = controller.nodes.links[node], controller.clock.now()
    await until(lambda: link.observation.sampled_at > now)


async def known(controller, target, metric="utilization_pct", span=60, points=1):
    (gpu,) = (await controller.samples.history([target], span, points)).gpus
    return [value for value in getattr(gpu, metric) if value is not None]


# ------------------------------------------------------------------- history


async def test_what_a_gpu_does_is_in_its_history_at_once(desk):
    async with running(desk) as controller:
        await desk.submit("sleep 600", "n1::1")
        await until(lambda: controller.nodes.links["n1"].observation.sample.gpus[1].utilization_pct)
        assert (await known(controller, "n1::1"))[-1] > 0
        assert set(await known(controller, "n1::0", "utilization_pct_max")) == {0.0}
        found = await controller.samples.history([], 60, 3)
        assert [(gpu.node, gpu.index) for gpu in found.gpus] == [("n1", 0), ("n1", 1), ("n1", 2), ("n1", 3), ("n2", 0)]
        assert (found.step, {len(gpu.power_w) for gpu in found.gpus}) == (20.0, {3})


async def test_how_busy_a_node_is_is_in_its_history_at_once(desk):
    async with running(desk) as controller:
        link = controller.nodes.links["n1"]
        await until(lambda: link.observation.load and link.observation.load.cores_busy is not None)
        found = await controller.samples.history([], 60, 1, ["n1"])
        (node,) = found.nodes
        assert (found.gpus, node.node) == ((), "n1")
        assert 0 <= node.cores_busy[-1] <= link.observation.host.cores
        assert 0 < node.memory_used_mib[-1] <= node.memory_used_mib_max[-1] < link.observation.host.memory_mib
        assert node.disk_used_mib[-1] > 0
        with pytest.raises(NotFound, match="no node 'nowhere' in the inventory"):
            await controller.samples.history([], 60, 1, ["nowhere"])
        assert not (await controller.samples.history([], 60, 1)).nodes


async def test_an_engine_that_moves_its_root_is_followed(desk, tmp_path):
    """Its disk may be another one."""
    async with running(desk) as controller:
        link, engine = controller.nodes.links["n1"], desk.fleet.nodes["n1"].engine
        await until(lambda: link.observation.load and link.observation.load.disk)
        assert link.observation.load.disk.path == str(engine.root)
        engine.root = tmp_path
        await link.refresh()
        await until(lambda: link.observation.load.disk and link.observation.load.disk.path == str(tmp_path))
        desk.fleet.nodes["n1"].stop_engine()
        await link.refresh()
        await sampled(controller)
        assert link.observation.load.disk.path == str(tmp_path)  # an engine that is down has not moved


async def test_a_node_that_gives_few_sessions_is_asked_about_its_machine_too(desk, monkeypatch):
    """There the samples are asked for one by one."""
    monkeypatch.setattr(NodeLink, "_may_have", lambda *_: False)
    async with running(desk) as controller:
        link = controller.nodes.links["n1"]
        await until(lambda: link.observation.load and link.observation.load.cores_busy is not None)
        assert link.observation.load.disk


async def test_all_of_it_is_on_disk_when_the_controller_has_left(desk):
    async with running(desk) as controller:
        await sampled(controller)
        await until(lambda: "node n1" in controller.samples._minute)
        known = {key: sum(block.counts) for key, (_, block) in controller.samples._minute.items()}
    store = SampleStore(desk.state / "samples.sqlite")
    left = {**store.pieces(known, LEVELS[0], 0.0, GPU), **store.pieces(known, LEVELS[0], 0.0, NODE)}
    assert all(sum(sum(block.counts) for _, _, block in left[key]) >= count for key, count in known.items())


async def test_a_restart_leaves_no_gap_but_its_own(desk):
    async with running(desk) as controller:
        await sampled(controller)
        before = controller.clock.now()
    async with running(desk) as controller:
        found = await controller.samples.history(["n1::0"], 60, 60)
        times = [found.at - back * found.step for back in range(59, -1, -1)]
        values = dict(zip(times, found.gpus[0].power_w, strict=True))
        assert any(value is not None for at, value in values.items() if at <= before + found.step)


async def test_a_minute_that_is_over_is_handed_over_once_and_whole(desk):
    async with running(desk) as controller:
        await sampled(controller)
        samples, uuid = controller.samples, desk.fleet.nodes["n1"].gpus.uuids[0]
        _, block = samples._minute[uuid]
        desk.clock.ahead += 60
        await sampled(controller)
        for _ in range(2):
            samples.tick()
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(samples._thread, samples._store.pieces, {uuid}, LEVELS[0], 0.0)
        assert [sum(written.counts) for _, _, written in found[uuid]] == [sum(block.counts)]
        assert samples.trouble is None


async def test_a_node_that_does_not_answer_leaves_a_gap(desk):
    async with running(desk) as controller:
        await sampled(controller)
        desk.fleet.nodes["n1"].cut()
        await until(lambda: not controller.nodes.links["n1"].online)
        desk.clock.ahead += 120
        assert await known(controller, "n1::0", span=60) == []


async def test_a_disk_that_takes_nothing_is_told_of_and_harms_nothing(desk):
    (desk.state / "samples.sqlite").mkdir()
    async with running(desk) as controller:
        await sampled(controller)
        desk.clock.ahead += 60
        controller.samples.tick()
        await until(lambda: controller.samples.trouble)
        assert any("cannot store GPU samples" in warning for warning in controller.status.describe().warnings)
        await sampled(controller)
        assert (await controller.commands.wait(await desk.submit("true"), 20)).state == "completed"
        (desk.state / "samples.sqlite").rmdir()
        await sampled(controller)
        desk.clock.ahead += 60
        controller.samples.tick()
        await until(lambda: controller.samples.trouble is None)


async def test_what_is_not_there_is_refused_in_words(desk):
    async with running(desk) as controller:
        await sampled(controller)
        for targets, points, error, words in (
            (["n9::0"], 1, NotFound, "no node 'n9'"),
            (["n1::9"], 1, NotFound, "n1 has no GPU 9"),
            (["2x"], 1, UsageError, "is not a GPU; use node1::0"),
            ([], 100_000, UsageError, "request at most 200,000 points in total"),
        ):
            with pytest.raises(error, match=words):
                await controller.samples.history(targets, 60, points)


# --------------------------------------------------------------------- usage


async def usage(controller, by="owner"):
    now = controller.clock.now()
    return await controller.usage.view([now - HOUR, now], by)


async def test_live_and_ended_tasks_are_counted_each_once(desk):
    async with running(desk) as controller:
        over = await desk.ended("true", "n1::0")
        await desk.submit("sleep 600", "n1::1,2")
        desk.clock.ahead += 1800
        found = await usage(controller)
        assert [(row.name, row.tasks) for row in found.rows] == [(controller.tasks.owner, 2)]
        assert found.total.gpu_hours == pytest.approx(1.0, abs=0.02)
        assert found.total.share == pytest.approx(found.total.gpu_hours / 5, abs=0.001)
        assert over in [row.name for row in (await usage(controller, "batch")).rows]
        assert [row.name for row in (await usage(controller, "node")).rows] == ["n1"]


async def test_a_task_that_had_ended_and_lives_again_counts_once(desk):
    async with running(desk) as controller:
        task = await desk.submit("sleep 600", "n1::0")
        now = controller.clock.now()
        controller.tasks.history.accounts.keep(Spent(task, "me", "n1", task, 1, now - 60, now, 0, 0))
        assert (await usage(controller)).total.tasks == 1


async def test_a_task_that_is_removed_still_counts(desk):
    async with running(desk) as controller:
        task = await desk.ended("true", "n1::0")
        await controller.removal.remove(task, force=False, by=me(controller))
        assert (await usage(controller)).total.tasks == 1


async def test_a_task_that_is_paused_or_whose_node_is_silent_holds_its_gpus(desk):
    async with running(desk) as controller:
        await controller.commands.pause(await desk.submit("sleep 600", "n1::0"))
        await desk.submit("sleep 600", "n1::1")
        desk.fleet.nodes["n1"].cut()
        await until(lambda: not controller.nodes.links["n1"].online)
        desk.clock.ahead += 1800
        controller.reconciler.lose_silent()
        assert {task.state for task in controller.tasks.live.values()} == {"lost"}
        assert (await usage(controller)).total.gpu_hours == pytest.approx(1.0, abs=0.02)


async def test_how_busy_the_gpus_of_a_task_are_is_known_while_it_runs_after_a_restart_and_when_it_has_ended(desk):
    async with running(desk) as controller:
        task = await desk.submit("sleep 600", "n1::1")
        await until(lambda: controller.tasks.loads.get(task, GpuActivity()).busy)
        assert (await usage(controller)).total.utilization_pct > 0
    async with running(desk) as controller:
        before = controller.tasks.loads[task]
        assert before.seen > 0
        await until(lambda: controller.tasks.loads[task].seen > before.seen)
        await controller.stops.stop(task, "kill", by=me(controller))
        assert task not in controller.tasks.loads
        assert (await usage(controller)).total.utilization_pct > 0


async def test_time_in_which_a_stranger_uses_a_gpu_says_nothing_of_its_task(desk):
    async with running(desk) as controller:
        task = await desk.submit("sleep 600", "n1::1")
        await until(lambda: controller.tasks.loads.get(task, GpuActivity()).seen)
        stranger = await asyncio.create_subprocess_exec("sleep", "600")
        try:
            desk.fleet.nodes["n1"].gpus.use(1, stranger.pid, "python", 1000)
            await until(lambda: controller.tasks.intruders.get(task))
            before = controller.tasks.loads[task]
            for _ in range(3):
                await sampled(controller)
            assert controller.tasks.loads[task] == before
        finally:
            stranger.kill()
            await stranger.wait()


# ------------------------------------------------------------------- metrics


async def scrape(port: int, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.0\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


def samples(text: str) -> dict[str, float]:
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {f"{sample.name}{list(sample.labels.values())}": sample.value for sample in found}


async def test_no_port_is_opened_unless_it_is_asked_for(desk):
    async with running(desk) as controller:
        assert controller.port._serving is None


async def test_on_its_port_there_are_the_metrics_and_nothing_else(desk, free_port):
    port = free_port()
    desk.inventory.write_text(desk.inventory.read_text() + f"metrics: {port}\n")
    async with running(desk) as controller:
        await desk.submit("sleep 600", "n1::1")
        await desk.ended("true")
        desk.clock.ahead += 10
        status, text = await scrape(port)
        found = samples(text)
        assert status == 200
        assert found["agentless_node_up['n1']"] == 1
        assert found["agentless_tasks['running']"] == 1
        assert found["agentless_tasks_ended_total['completed']"] == 1
        assert found[f"agentless_gpu_seconds_total['{controller.tasks.owner}']"] >= 10
        assert (await scrape(port, "/v1/tasks"))[0] == 404
        assert (await scrape(port, "/metrics", "POST"))[0] == 405
    with pytest.raises(OSError, match="Connect call failed"):
        await scrape(port)


async def test_a_port_in_use_is_warned_of_and_had_once_it_is_free(desk):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        desk.inventory.write_text(desk.inventory.read_text() + f"metrics: {port}\n")
        async with running(desk) as controller:
            (warning,) = controller.status.describe().warnings
            assert warning.startswith(f"cannot serve metrics on 127.0.0.1:{port}: Address already in use")
            taken.close()
            controller.port.tick()
            assert controller.status.describe().warnings == ()
            assert (await scrape(port))[0] == 200


async def test_the_port_follows_the_inventory(desk, free_port):
    one, other = free_port(), free_port()
    text = desk.inventory.read_text()
    desk.inventory.write_text(text + f"metrics: {one}\n")
    async with running(desk) as controller:
        desk.inventory.write_text(text + f"metrics: 127.0.0.1:{other}  # another\n")
        await controller.inventory.use(None, reading=True)
        assert (await scrape(other))[0] == 200
        with pytest.raises(OSError, match="Connect call failed"):
            await scrape(one)
        assert controller.port._wanted == Address("127.0.0.1", other)
        desk.inventory.write_text(text)
        await controller.inventory.use(None, reading=True)
        with pytest.raises(OSError, match="Connect call failed"):
            await scrape(other)


async def test_who_is_scraped_is_wanted_and_does_not_leave(desk, free_port):
    port = free_port()
    desk.inventory.write_text(desk.inventory.read_text() + f"metrics: {port}\n")
    async with running(desk) as controller:
        controller.traffic.last = 0.0
        assert controller.lifetime.is_idle()
        await scrape(port)
        assert not controller.lifetime.is_idle()
