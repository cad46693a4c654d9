"""The simulated nodes are like nodes: what agentless says to a node over SSH is answered as a real one answers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from agentless.demo.fleet import Fleet, NodePlan
from agentless.demo.guard import belonging
from agentless.demo.node import SimulatedNode
from agentless.errors import Refused, RuntimeFailed
from agentless.model.claim import task_of
from agentless.model.command import Command, Result, join_sections, split_sections
from agentless.model.node import NodeConfig
from agentless.model.spec import TaskSpec
from agentless.model.target import Target
from agentless.model.task import Placement, Task, new_task_id
from agentless.paths import template_dir
from agentless.render import Renderer
from agentless.runtimes.docker import Docker, ImageMissing, LogQuery

PATIENCE = 20
"""Seconds after which something that should have happened counts as not happening."""

IMAGE = "simulated/python:3.12"


@dataclass
class Client:
    """What a controller is to a node: a connection, and a runtime that renders and parses."""

    connection: asyncssh.SSHClientConnection
    node: SimulatedNode

    def __post_init__(self) -> None:
        self.docker = Docker(NodeConfig(self.node.name, "127.0.0.1"), Renderer([template_dir()]))

    async def run(self, command: Command | str) -> Result:
        script = command if isinstance(command, str) else command.text()
        async with asyncio.timeout(PATIENCE):
            done = await self.connection.run("exec sh", input=script.encode(), encoding=None)
        code = done.returncode
        return Result(code if code >= 0 else 128 - code, done.stdout, done.stderr)

    def task(self, *command: str, gpus: tuple[int, ...] = (), **spec: object) -> tuple[Task, Placement]:
        task = Task(
            id=new_task_id(time.time()),
            spec=TaskSpec(command, **{"image": IMAGE, **spec}),
            target=Target(self.node.name, None, gpus),
            batch="b1",
            owner="ann@laptop",
            created_at=1_700_000_000.5,
        )
        return task, Placement(self.node.name, gpus, tuple(self.node.gpus.uuids[gpu] for gpu in gpus))

    async def launch(self, *command: str, **spec: object) -> str:
        task, placement = self.task(*command, **spec)
        return self.docker.parse_launch(task, await self.run(self.docker.launch(task, placement, {})))

    async def container(self, id: str):
        listed = self.docker.parse_containers(await self.run(self.docker.containers()))
        return next(container for container in listed if container.id == id)

    @contextlib.asynccontextmanager
    async def lines(self, command: Command):
        """The output of a command that goes on, line by line; None when it ends."""
        async with self.connection.create_process("exec sh", encoding="utf-8") as process:
            process.stdin.write(command.text())
            process.stdin.write_eof()

            async def line() -> str | None:
                async with asyncio.timeout(PATIENCE):
                    return (await process.stdout.readline()).rstrip("\n") or None

            yield line
            process.close()

    @contextlib.asynccontextmanager
    async def events(self):
        """Gives a function that waits for the next event: (container, action). Listens from the `async with` on."""
        listening = self.docker.events().text()
        before = len(self.node.engine._listeners)
        async with self.lines(Command(listening)) as line:
            async with asyncio.timeout(PATIENCE):
                while len(self.node.engine._listeners) == before:
                    await asyncio.sleep(0.005)

            async def event() -> tuple[str, str]:
                id, action, name = (await line()).split()
                assert name.startswith("agentless-")
                return id, action

            yield event

    async def ended(self, id: str):
        """The container after its end."""
        async with asyncio.timeout(PATIENCE):
            with self.node.engine.events() as events:
                while self.node.engine.containers[id].live:
                    await events.get()
        return await self.container(id)

    async def log(self, id: str, **query: object) -> Result:
        return await self.run(self.docker.logs(id, LogQuery(**query)))


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with Fleet(tmp_path / "fleet", [NodePlan("n1", 4), NodePlan("n2", 1, foreign=True)]) as fleet:
        yield fleet


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[Client]:
    async with connect(fleet, "n1") as client:
        yield client


@contextlib.asynccontextmanager
async def connect(fleet: Fleet, name: str) -> AsyncIterator[Client]:
    async with asyncssh.connect(
        "127.0.0.1",
        fleet.nodes[name].port,
        username="demo",
        client_keys=[str(fleet.identity)],
        known_hosts=str(fleet.known_hosts),
        config=None,
    ) as connection:
        yield Client(connection, fleet.nodes[name])


async def gone(pid: int) -> bool:
    """Wait for the end of a process, whoever its parent is."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, over.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await over.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


# --------------------------------------------------------------------- SSH


async def test_a_command_has_its_exit_code_and_both_streams_apart(client: Client):
    assert await client.run("echo out; echo err >&2; exit 3") == Result(3, b"out\n", b"err\n")


async def test_a_signal_is_an_exit_signal(client: Client):
    done = await client.connection.run("kill -TERM $$")
    assert (done.exit_signal[0], done.returncode) == ("TERM", -15)


async def test_bytes_pass_both_ways_unchanged_however_slow_either_side_is(client: Client):
    data = os.urandom(1 << 20) * 20
    done = await client.connection.run("exec cat", input=data, encoding=None)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


async def test_another_key_is_not_let_in(fleet: Fleet):
    with pytest.raises(asyncssh.PermissionDenied):
        await asyncssh.connect(
            "127.0.0.1",
            fleet.nodes["n1"].port,
            username="demo",
            client_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            known_hosts=str(fleet.known_hosts),
            config=None,
        )


async def test_a_lost_connection_ends_all_that_was_started_through_it(fleet: Fleet):
    async with connect(fleet, "n1") as client:
        process = await client.connection.create_process("exec sh")
        # `timeout` leaves the process group.
        process.stdin.write("sleep 600 & echo $!; timeout 600 sh -c 'echo $$; exec sleep 600' & echo $!; wait\n")
        async with asyncio.timeout(PATIENCE):
            pids = [int(await process.stdout.readline()) for _ in range(3)]
        client.connection.abort()
    assert [await gone(pid) for pid in pids] == [True] * 3


# ------------------------------------------------------------------ looking


async def test_the_engine_says_that_it_is_a_simulation_and_hands_out_gpus(client: Client):
    answer = await client.run(join_sections(client.docker.facts()))
    facts = client.docker.parse_facts(split_sections(answer.stdout))
    assert (facts.version, facts.nvidia, facts.error, facts.containers) == ("20.10.0-simulated", True, None, ())


async def test_gpus_are_called_simulated(client: Client):
    names = await client.run("nvidia-smi --query-gpu=name --format=csv,noheader")
    assert names.out.split("\n")[0] == "Simulated A100"


async def test_somebody_else_uses_a_gpu_with_a_real_process(fleet: Fleet):
    async with connect(fleet, "n2") as client:
        listed = await client.run("nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv,noheader")
    uuid, pid = listed.out.strip().split(", ")
    assert uuid == fleet.nodes["n2"].gpus.uuids[0]
    assert Path("/proc", pid, "cmdline").read_bytes().startswith(b"sleep\0")


# ---------------------------------------------------------------- launching


async def test_a_task_comes_back_whole_from_the_labels_of_its_container(client: Client):
    task, placement = client.task("sleep", "600", gpus=(0, 2), env={"A": "b c\n'"}, labels={"x": "ü|"}, memory=1 << 30)
    id = client.docker.parse_launch(task, await client.run(client.docker.launch(task, placement, {})))
    found = task_of(await client.container(id), "n1")
    assert (found.id, found.spec, found.placement, found.state) == (task.id, task.spec, placement, "running")


async def test_of_two_launches_for_one_gpu_one_wins_and_the_other_is_told_who_holds_it(client: Client):
    tries = [client.task("sleep", "600", gpus=gpus) for gpus in ((0, 1), (1, 2))]
    results = await asyncio.gather(*(client.run(client.docker.launch(*each, {})) for each in tries))
    assert sorted(result.exit_code for result in results) == [0, 75]
    loser = 0 if results[0].exit_code else 1
    with pytest.raises(Refused, match=f"is held by task {tries[1 - loser][0].id} of ann@laptop"):
        client.docker.parse_launch(tries[loser][0], results[loser])


async def test_a_gpu_is_free_again_when_its_task_has_ended(client: Client):
    await client.ended(await client.launch("true", gpus=(0,)))
    await client.launch("sleep", "600", gpus=(0,))


async def test_the_same_task_launched_twice_is_one_container(client: Client):
    launch = client.docker.launch(*client.task("sleep", "600", gpus=(0,)), {})
    first, second = await client.run(launch), await client.run(launch)
    assert first.stdout == second.stdout


async def test_a_node_does_not_wait_for_the_lock_of_another(fleet: Fleet):
    async with connect(fleet, "n1") as one, connect(fleet, "n2") as two:
        async with one.lines(Command("exec 9< /; flock -n 9; echo locked; sleep 600")) as line:
            assert await line() == "locked"
            assert (await one.run("exec 9< /; flock -n 9")).exit_code == 1
            assert (await two.run("exec 9< /; flock -n 9")).exit_code == 0
        # It went with the process that held it.
        assert (await one.run("exec 9< /; until flock -n 9; do sleep 0.01; done")).exit_code == 0


async def test_a_task_sees_its_gpus_only_and_they_look_busy(client: Client):
    busy = "nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits"
    id = await client.launch("sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; nvidia-smi -L; read x </dev/zero", gpus=(1, 3))
    one, three = client.node.gpus.uuids[1], client.node.gpus.uuids[3]
    assert [int(load) > 50 for load in (await client.run(busy)).out.split()] == [False, True, False, True]
    await client.run(client.docker.signal(id, "KILL"))
    await client.ended(id)
    assert (await client.log(id)).out.splitlines() == [
        f"{one},{three}",
        f"GPU 0: Simulated A100 (UUID: {one})",
        f"GPU 1: Simulated A100 (UUID: {three})",
    ]
    assert (await client.run(busy)).out.split() == ["0"] * 4


async def test_a_secret_reaches_the_task_by_name_only(client: Client):
    task, placement = client.task("sh", "-c", 'echo "$TOKEN"', secret_env=("TOKEN",))
    launch = client.docker.launch(task, placement, {"TOKEN": "hunter2 '\""})
    id = client.docker.parse_launch(task, await client.run(launch))
    await client.ended(id)
    assert (await client.log(id)).out == "hunter2 '\"\n"
    assert b"hunter2" not in (await client.run(f"docker inspect {id}")).stdout


async def test_python_images_have_python(client: Client):
    id = await client.launch("python", "-c", "print(6 * 7)")
    assert (await client.ended(id)).exit_code == 0
    assert (await client.log(id)).out == "42\n"


async def test_an_image_that_is_not_there_is_missing_and_cannot_be_pulled(client: Client):
    task, placement = client.task("true", image="nobody/nothing")
    with pytest.raises(ImageMissing):
        client.docker.parse_launch(task, await client.run(client.docker.launch(task, placement, {})))
    with pytest.raises(RuntimeFailed, match="no registry"):
        client.docker.check(await client.run(client.docker.pull("nobody/nothing")))


async def test_a_command_that_is_not_there_fails_and_leaves_no_container(client: Client):
    task, placement = client.task("no-such-program", gpus=(0,))
    result = await client.run(client.docker.launch(task, placement, {}))
    assert result.exit_code == 127
    with pytest.raises(RuntimeFailed, match="'no-such-program' cannot be run in the image"):
        client.docker.parse_launch(task, result)
    assert client.docker.parse_containers(await client.run(client.docker.containers())) == ()


# ------------------------------------------------------------------ its life


async def test_the_stream_of_events_tells_a_life_from_create_to_destroy(client: Client):
    async with client.events() as event:
        id = await client.launch("sleep", "600")
        await client.run(client.docker.pause(id))
        await client.run(client.docker.resume(id))
        await client.run(client.docker.remove(id, force=True))
        told = [await event() for _ in range(7)]
    assert told == [(id, what) for what in ("create", "start", "pause", "unpause", "kill", "die", "destroy")]


async def test_an_exit_code_is_kept_until_the_container_is_removed(client: Client):
    id = await client.launch("sh", "-c", "exit 7")
    container = await client.ended(id)
    assert (container.state, container.exit_code, container.oom_killed) == ("exited", 7, False)
    assert container.created_at <= container.started_at <= container.finished_at <= time.time()
    client.docker.check(await client.run(client.docker.remove(id)))
    assert client.docker.parse_containers(await client.run(client.docker.containers())) == ()


async def test_what_a_task_leaves_running_ends_with_it(client: Client):
    id = await client.launch("sh", "-c", "sleep 600 & echo $!; timeout 600 sleep 600 & echo $!; exit 0")
    await client.ended(id)
    assert [await gone(int(pid)) for pid in (await client.log(id)).out.split()] == [True, True]


async def test_a_first_process_that_handles_no_signal_ends_by_kill_only(client: Client):
    id = await client.launch("sleep", "600")
    client.docker.check(await client.run(client.docker.signal(id, "TERM")))
    client.docker.check(await client.run(client.docker.signal(id, "KILL")))
    assert (await client.ended(id)).exit_code == 137


async def test_a_first_process_may_handle_a_signal(client: Client):
    id = await client.launch("sh", "-c", 'trap "echo bye; exit 5" TERM; echo ready; while :; do sleep 0.05; done')
    async with client.lines(client.docker.logs(id, LogQuery(follow=True))) as line:
        assert await line() == "ready"
        await client.run(client.docker.signal(id, "TERM"))
        assert [await line(), await line()] == ["bye", None]
    assert (await client.ended(id)).exit_code == 5


async def test_a_paused_task_stands_still_until_it_is_resumed(client: Client):
    id = await client.launch("sh", "-c", "while :; do sleep 0.05; done")
    pid = (await client.run(f"docker inspect --format '{{{{.State.Pid}}}}' {id}")).out.strip()
    client.docker.check(await client.run(client.docker.pause(id)))
    assert (await client.container(id)).state == "paused"
    assert Path("/proc", pid, "stat").read_text().split()[2] == "T"
    client.docker.check(await client.run(client.docker.resume(id)))
    assert (await client.container(id)).state == "running"
    assert Path("/proc", pid, "stat").read_text().split()[2] != "T"


async def test_a_running_container_is_not_removed_without_force(client: Client):
    id = await client.launch("sleep", "600")
    with pytest.raises(RuntimeFailed, match="You cannot remove a running container"):
        client.docker.check(await client.run(client.docker.remove(id)))
    assert (await client.container(id)).state == "running"


async def test_out_of_memory_is_told_from_a_kill(client: Client):
    async with client.events() as event:
        id = await client.launch("sleep", "600")
        client.node.engine.oom(client.node.engine.containers[id])
        assert [(await event())[1] for _ in range(4)] == ["create", "start", "oom", "die"]
    container = await client.container(id)
    assert (container.exit_code, container.oom_killed) == (137, True)


# --------------------------------------------------------------------- logs


async def test_a_log_keeps_streams_apart_and_can_be_cut(client: Client):
    id = await client.launch("sh", "-c", "echo one; echo two >&2; echo three; printf four")
    await client.ended(id)
    assert await client.log(id) == Result(0, b"one\nthree\nfour", b"two\n")
    assert (await client.log(id, tail=1)).stdout == b"four"
    assert (await client.log(id, since=time.time() + 60)).stdout == b""
    stamp = (await client.log(id, timestamps=True)).out.split()[0]
    assert stamp.startswith(time.strftime("%Y-", time.gmtime()))
    assert stamp.endswith("Z")


async def test_a_followed_log_comes_as_it_is_printed_and_ends_with_the_task(client: Client):
    id = await client.launch("sh", "-c", 'trap "exit 0" TERM; echo first; while :; do sleep 0.05; done')
    async with client.lines(client.docker.logs(id, LogQuery(follow=True))) as line:
        assert await line() == "first"
        await client.run(client.docker.signal(id, "TERM"))
        assert await line() is None


async def test_nobody_follows_for_a_client_that_has_gone(client: Client):
    before = len(client.node.engine._listeners)
    async with client.events():
        assert len(client.node.engine._listeners) == before + 1
    async with asyncio.timeout(PATIENCE):
        while len(client.node.engine._listeners) != before:
            await asyncio.sleep(0.005)


# ------------------------------------------------------------------- faults


async def test_a_cut_node_refuses_and_comes_back_with_its_containers(fleet: Fleet):
    async with connect(fleet, "n1") as client:
        id = await client.launch("sleep", "600")
        fleet.nodes["n1"].cut()
        with pytest.raises((asyncssh.Error, OSError)):
            await client.run("true")
    with pytest.raises(ConnectionRefusedError):
        async with connect(fleet, "n1"):
            pass
    await fleet.nodes["n1"].restore()
    async with connect(fleet, "n1") as client:
        assert (await client.container(id)).state == "running"


async def test_a_stopped_engine_cannot_be_reached_and_ends_its_streams(client: Client):
    async with client.lines(client.docker.events()) as line:
        client.node.stop_engine()
        assert await line() is None
    with pytest.raises(RuntimeFailed, match="Docker daemon on n1 does not run"):
        client.docker.check(await client.run(client.docker.containers()))
    answer = await client.run(join_sections(client.docker.facts()))
    assert "Docker daemon on n1 does not run" in client.docker.parse_facts(split_sections(answer.stdout)).error
    client.node.start_engine()
    await client.launch("true")


async def test_a_reboot_ends_containers_with_255(fleet: Fleet):
    async with connect(fleet, "n1") as client:
        id = await client.launch("sleep", "600")
        pid = fleet.nodes["n1"].engine.containers[id].inspect()["State"]["Pid"]
        await fleet.nodes["n1"].reboot()
    assert await gone(pid)
    async with connect(fleet, "n1") as client:
        container = await client.container(id)
    assert (container.state, container.exit_code) == ("exited", 255)


async def test_a_hung_gpu_hangs_until_it_is_healed(client: Client):
    client.node.hang_gpu()
    assert (await client.run("timeout 0.2 nvidia-smi -L")).exit_code == 124
    client.node.heal_gpu()
    assert (await client.run("timeout 10 nvidia-smi -L")).exit_code == 0


# -------------------------------------------------------------- in a process


async def start_demo(root: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agentless.demo", str(root), "--nodes", "2,1", stdin=-1, stdout=-1, start_new_session=True
    )
    async with asyncio.timeout(PATIENCE):
        assert (await process.stdout.readline()).decode() == f"ready {root}/inventory.yaml\n"
    return process


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, None])
async def test_a_demo_leaves_no_process_however_it_ends(tmp_path: Path, end: signal.Signals | None):
    process = await start_demo(tmp_path / "demo")
    port = int((tmp_path / "demo" / "known_hosts").read_text().split("]:")[1].split()[0])
    async with asyncssh.connect(
        "127.0.0.1",
        port,
        username="demo",
        client_keys=[str(tmp_path / "demo" / "id_ed25519")],
        known_hosts=str(tmp_path / "demo" / "known_hosts"),
        config=None,
    ) as connection:
        started = await connection.run(f"docker run --detach --name task {IMAGE} sh -c 'setsid sleep 600 & sleep 600'")
        assert started.exit_status == 0
        async with asyncio.timeout(PATIENCE):
            # The task's shell, both its children, and the process on the GPU of the second node.
            while len(pids := belonging(str(tmp_path / "demo"))) < 4:
                await asyncio.sleep(0.005)
        if end is None:
            process.stdin.close()
        else:
            process.send_signal(end)
        async with asyncio.timeout(PATIENCE):
            code = await process.wait()
    assert code == (-9 if end == signal.SIGKILL else 0)
    assert [await gone(pid) for pid in pids] == [True] * len(pids)
