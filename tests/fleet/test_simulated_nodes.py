"""The simulated nodes are like nodes: what is said to them over SSH is answered as a real one answers."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path

import asyncssh
import pytest

from agentless.demo.fleet import Fleet, NodePlan
from agentless.demo.node import Moment
from agentless.demo.processes.guard import belonging
from agentless.errors import RuntimeFailed
from agentless.model.command import Command, Result, join_sections, split_sections
from agentless.model.containers.log_query import LogQuery
from tests.fleet.client import IMAGE, PATIENCE, Client, connect, gone, proc, until


async def test_a_command_has_its_exit_code_and_both_streams_apart(client: Client):
    assert await client.run("echo out; echo err >&2; exit 3") == Result(3, b"out\n", b"err\n")


async def test_a_signal_is_an_exit_signal(client: Client):
    done = await client.connection.run("kill -TERM $$")
    assert (done.exit_signal[0], done.returncode) == ("TERM", -15)


async def test_bytes_pass_both_ways_unchanged_however_slow_either_side_is(client: Client):
    data = os.urandom(1 << 20) * 4
    for _ in range(5):
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


async def test_another_simulation_on_this_machine_has_other_gpus(tmp_path: Path, fleet: Fleet):
    """Its launches are processes of this machine, like those of this one: what they claim must not be refused here."""
    async with Fleet(tmp_path / "another", [NodePlan("n1", 4)]) as another:
        assert not {*another.nodes["n1"].gpus.uuids} & {*fleet.nodes["n1"].gpus.uuids}


async def test_a_lost_connection_ends_all_that_was_started_through_it(fleet: Fleet):
    async with connect(fleet, "n1") as client:
        process = await client.connection.create_process("exec sh")
        # `timeout` leaves the process group.
        process.stdin.write("sleep 600 & echo $!; timeout 600 sh -c 'echo $$; exec sleep 600' & echo $!; wait\n")
        async with asyncio.timeout(PATIENCE):
            pids = [int(await process.stdout.readline()) for _ in range(3)]
        client.connection.abort()
    assert [await gone(pid) for pid in pids] == [True] * 3


async def test_the_engine_says_that_it_is_a_simulation_and_hands_out_gpus(client: Client):
    answer = await client.run(join_sections(client.docker.facts()))
    facts = client.docker.parse_facts(split_sections(answer.stdout), 0.0, 2e9)
    assert (facts.version, facts.error, facts.listed) == ("20.10.0-simulated", None, {})
    assert facts.toolkits["nvidia"].ready


async def test_gpus_are_called_simulated(client: Client):
    names = await client.run("nvidia-smi --query-gpu=name --format=csv,noheader")
    assert names.out.split("\n")[0] == "Simulated A100"


async def test_somebody_else_uses_a_gpu_with_a_real_process(fleet: Fleet):
    async with connect(fleet, "n2") as client:
        listed = await client.run("nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv,noheader")
    uuid, pid = listed.out.strip().split(", ")
    assert uuid == fleet.nodes["n2"].gpus.uuids[0]
    assert proc(pid, "cmdline").startswith("sleep\0")


async def test_a_node_does_not_wait_for_the_lock_of_another(fleet: Fleet):
    async with connect(fleet, "n1") as one, connect(fleet, "n2") as two:
        async with one.lines(Command("exec 9< /; flock -n 9; echo locked; sleep 600")) as line:
            assert await line() == "locked"
            assert (await one.run("exec 9< /; flock -n 9")).exit_code == 1
            assert (await two.run("exec 9< /; flock -n 9")).exit_code == 0
        # It went with the process that held it.
        assert (await one.run("exec 9< /; until flock -n 9; do sleep 0.01; done")).exit_code == 0


async def test_a_cut_node_refuses_and_comes_back_with_its_containers(fleet: Fleet):
    async with connect(fleet, "n1") as client:
        cid = await client.launch("sleep", "600")
        fleet.nodes["n1"].cut()
        with pytest.raises((asyncssh.Error, OSError)):
            await client.run("true")
    with pytest.raises(ConnectionRefusedError):
        async with connect(fleet, "n1"):
            pass
    await fleet.nodes["n1"].restore()
    async with connect(fleet, "n1") as client:
        assert (await client.container(cid)).state == "running"


async def test_a_stopped_engine_cannot_be_reached_and_ends_its_streams(client: Client):
    async with client.events() as event:
        client.node.stop_engine()
        assert await event() is None
    with pytest.raises(RuntimeFailed, match="Docker daemon on n1 is not running"):
        client.docker.check(await client.run(client.docker.inspect(["any"])))
    answer = await client.run(join_sections(client.docker.facts()))
    assert (
        "Docker daemon on n1 is not running" in client.docker.parse_facts(split_sections(answer.stdout), 0.0, 2e9).error
    )
    client.node.start_engine()
    await client.launch("true")


async def test_a_reboot_ends_containers_with_255(fleet: Fleet):
    async with connect(fleet, "n1") as client:
        cid = await client.launch("sleep", "600")
        pid = fleet.nodes["n1"].engine.containers[cid].inspect()["State"]["Pid"]
        await fleet.nodes["n1"].reboot()
    assert await gone(pid)
    async with connect(fleet, "n1") as client:
        container = await client.container(cid)
    assert (container.state, container.exit_code) == ("exited", 255)


async def test_an_engine_may_take_its_containers_with_it(client: Client):
    cid = await client.launch("sleep", "600")
    client.node.stop_engine(live_restore=False)
    client.node.start_engine()
    container = await client.container(cid)
    assert (container.state, container.exit_code) == ("exited", 137)


@pytest.mark.parametrize(("moment", "states"), [("before", []), ("after", ["running"])])
async def test_an_answer_is_lost_before_or_after(fleet: Fleet, moment: Moment, states: list[str]):
    async with connect(fleet, "n1") as client:
        client.node.lose_answer("run", moment)
        lost = await client.connection.run(f"docker run --detach --label mine {IMAGE} sleep 600")
        assert (lost.exit_status, lost.stdout) == (None, "")
    async with connect(fleet, "n1") as client:
        listed = await client.run("docker ps --all --filter label=mine --format '{{.State}}'")
    assert listed.out.split() == states


async def test_kept_answers_are_not_lost(client: Client):
    client.node.lose_answer("ps", "before")
    client.node.keep_answers()
    assert (await client.run("docker ps")).exit_code == 0


async def test_a_hung_gpu_hangs_until_it_is_healed(client: Client):
    client.node.hang_gpu()
    assert (await client.run("timeout 0.2 nvidia-smi -L")).exit_code == 124
    client.node.heal_gpu()
    assert (await client.run("timeout 10 nvidia-smi -L")).exit_code == 0


async def test_a_fleet_ends_what_hides_its_environment_too(tmp_path: Path):
    async with Fleet(tmp_path / "fleet", [NodePlan("n1")]) as fleet, connect(fleet, "n1") as client:
        cid = await client.launch("env", "-i", "/bin/sh", "-c", "echo $$; exec sleep 600")
        async with client.lines(client.docker.logs(cid, LogQuery(follow=True))) as line:
            pid = int(await line())
    assert await gone(pid)


async def start_demo(root: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agentless.demo", str(root), "--nodes", "2,1", stdin=-1, stdout=-1, start_new_session=True
    )
    async with asyncio.timeout(PATIENCE):
        assert (await process.stdout.readline()).decode() == f"ready {root}/inventory.yaml\n"
    return process


@pytest.mark.parametrize(
    "end",
    [signal.SIGTERM, signal.SIGKILL, *(pytest.param(end, marks=pytest.mark.slow) for end in (signal.SIGINT, None))],
)
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
        # The task's shell, both its children, and the process on the GPU of the second node.
        await until(lambda: len(belonging(str(tmp_path / "demo"))) >= 4)
        pids = belonging(str(tmp_path / "demo"))
        if end is None:
            process.stdin.close()
        else:
            process.send_signal(end)
        async with asyncio.timeout(PATIENCE):
            code = await process.wait()
    assert code == (-9 if end == signal.SIGKILL else 0)
    assert [await gone(pid) for pid in pids] == [True] * len(pids)
