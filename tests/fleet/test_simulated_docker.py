"""The simulated docker does with a task what Docker does, as far as agentless can tell."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from agentless.demo.engine.container import Config
from agentless.errors import ImageMissing, Refused, RuntimeFailed
from agentless.model.command import Result
from agentless.model.containers.claim import labels_of, task_of
from agentless.model.containers.launch import Launch
from agentless.model.containers.log_query import LogQuery
from tests.fleet.client import IMAGE, PATIENCE, SIGNER, Client, gone, proc, until


async def test_a_task_comes_back_whole_from_the_labels_of_its_container(client: Client):
    task, placement = client.task("sleep", "600", gpus=(0, 2), env={"A": "b c\n'"}, labels={"x": "ü|"}, memory=1 << 30)
    cid = client.docker.parse_launch(task, await client.run(client.docker.launches([Launch(task, placement)])))
    found = task_of(await client.container(cid), "n1", time.time())
    assert (found.id, found.spec, found.placement, found.state) == (task.id, task.spec, placement, "running")


async def test_of_two_launches_for_one_gpu_one_wins_and_the_other_is_told_who_holds_it(client: Client):
    tries = [client.task("sleep", "600", gpus=gpus) for gpus in ((0, 1), (1, 2))]
    results = await asyncio.gather(*(client.run(client.docker.launches([Launch(*each)])) for each in tries))
    assert sorted(result.exit_code for result in results) == [0, 75]
    loser = 0 if results[0].exit_code else 1
    with pytest.raises(Refused, match=f"is held by task {tries[1 - loser][0].id} of ann@laptop"):
        client.docker.parse_launch(tries[loser][0], results[loser])


async def test_a_gpu_is_free_again_when_its_task_has_ended(client: Client):
    await client.ended(await client.launch("true", gpus=(0,)))
    await client.launch("sleep", "600", gpus=(0,))


async def test_the_same_task_launched_twice_is_one_container(client: Client):
    launch = client.docker.launches([Launch(*client.task("sleep", "600", gpus=(0,)))])
    first, second = await client.run(launch), await client.run(launch)
    assert first.stdout == second.stdout


async def test_a_name_is_taken_as_long_as_its_container_is_there(client: Client):
    assert (await client.run(f"docker run --detach --name mine {IMAGE} true")).exit_code == 0
    again = await client.run(f"docker run --detach --name mine {IMAGE} true")
    assert again.exit_code == 125
    assert 'The container name "/mine" is already in use by container' in again.err


async def test_a_container_whose_launcher_died_before_the_start_is_started(client: Client):
    task, placement = client.task("sleep", "600", gpus=(0,))
    labels = SIGNER.sign(labels_of(task, placement, "c1"), "n1")
    container = client.node.engine.create(Config(task.container_name, IMAGE, ["sleep", "600"], labels))
    result = await client.run(client.docker.launches([Launch(task, placement)]))
    assert client.docker.parse_launch(task, result) == container.id
    assert (await client.container(container.id)).state == "running"


async def test_a_task_sees_its_gpus_only_and_they_look_busy(client: Client):
    busy = "nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits"
    cid = await client.launch("sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; nvidia-smi -L; read x </dev/zero", gpus=(1, 3))
    one, three = client.node.gpus.uuids[1], client.node.gpus.uuids[3]
    assert [int(load) > 50 for load in (await client.run(busy)).out.split()] == [False, True, False, True]
    async with asyncio.timeout(PATIENCE):
        while (await client.log(cid)).out.count("\n") < 3:
            pass  # its programs have not printed yet
    await client.run(client.docker.signal(cid, "KILL"))
    await client.ended(cid)
    assert (await client.log(cid)).out.splitlines() == [
        f"{one},{three}",
        f"GPU 0: Simulated A100 (UUID: {one})",
        f"GPU 1: Simulated A100 (UUID: {three})",
    ]
    assert (await client.run(busy)).out.split() == ["0"] * 4


async def test_a_secret_reaches_the_task_by_name_only(client: Client):
    task, placement = client.task("sh", "-c", 'echo "$TOKEN"', secret_env=("TOKEN",))
    launch = client.docker.launches([Launch(task, placement, secrets={"TOKEN": "hunter2 '\""})])
    cid = client.docker.parse_launch(task, await client.run(launch))
    await client.ended(cid)
    assert (await client.log(cid)).out == "hunter2 '\"\n"
    assert b"hunter2" not in (await client.run(f"docker inspect {cid}")).stdout


async def test_python_images_have_python(client: Client):
    cid = await client.launch("python", "-c", "print(6 * 7)")
    assert (await client.ended(cid)).exit_code == 0
    assert (await client.log(cid)).out == "42\n"


async def test_an_image_that_is_not_there_is_missing_and_cannot_be_pulled(client: Client):
    task, placement = client.task("true", image="nobody/nothing")
    with pytest.raises(ImageMissing):
        client.docker.parse_launch(task, await client.run(client.docker.launches([Launch(task, placement)])))
    with pytest.raises(RuntimeFailed, match="no registry"):
        client.docker.check(await client.run(client.docker.images.pull("nobody/nothing")))


async def test_a_command_that_is_not_there_fails_and_leaves_no_container(client: Client):
    task, placement = client.task("no-such-program", gpus=(0,))
    result = await client.run(client.docker.launches([Launch(task, placement)]))
    assert not result.ok
    with pytest.raises(RuntimeFailed, match="the image cannot run 'no-such-program'"):
        client.docker.parse_launch(task, result)
    assert not client.node.engine.containers


async def test_the_stream_of_events_tells_a_life_from_create_to_destroy(client: Client):
    async with client.events() as event:
        cid = await client.launch("sleep", "600")
        await client.run(client.docker.pause(cid))
        await client.run(client.docker.resume(cid))
        await client.run(client.docker.remove(cid, force=True))
        found = [await event() for _ in range(7)]
    assert found == [(cid, what) for what in ("create", "start", "pause", "unpause", "kill", "die", "destroy")]


async def test_an_exit_code_is_kept_until_the_container_is_removed(client: Client):
    cid = await client.launch("sh", "-c", "exit 7")
    container = await client.ended(cid)
    assert (container.state, container.exit_code, container.oom_killed) == ("exited", 7, False)
    assert container.created_at <= container.started_at <= container.finished_at <= time.time()
    client.docker.check(await client.run(client.docker.remove(cid)))
    assert not client.node.engine.containers


async def test_what_a_task_leaves_running_ends_with_it(client: Client):
    cid = await client.launch("sh", "-c", "sleep 600 & echo $!; timeout 600 sleep 600 & echo $!; exit 0")
    await client.ended(cid)
    assert [await gone(int(pid)) for pid in (await client.log(cid)).out.split()] == [True, True]


async def test_a_first_process_that_handles_no_signal_ends_by_kill_only(client: Client):
    cid = await client.launch("sleep", "600")
    client.docker.check(await client.run(client.docker.signal(cid, "TERM")))
    client.docker.check(await client.run(client.docker.signal(cid, "KILL")))
    assert (await client.ended(cid)).exit_code == 137


async def test_a_first_process_may_handle_a_signal(client: Client):
    cid = await client.launch("sh", "-c", 'trap "echo bye; exit 5" TERM; echo ready; while :; do sleep 0.05; done')
    async with client.lines(client.docker.logs(cid, LogQuery(follow=True))) as line:
        assert await line() == "ready"
        await client.run(client.docker.signal(cid, "TERM"))
        assert [await line(), await line()] == ["bye", None]
    assert (await client.ended(cid)).exit_code == 5


async def test_a_paused_task_stands_still_until_it_is_resumed(client: Client):
    cid = await client.launch("sleep", "600")  # not a shell: while that starts a program, it is not stopped
    pid = (await client.run(f"docker inspect --format '{{{{.State.Pid}}}}' {cid}")).out.strip()
    client.docker.check(await client.run(client.docker.pause(cid)))
    assert (await client.container(cid)).state == "paused"
    await until(lambda: proc(pid, "stat").split()[2] == "T")  # a signal is delivered when its process gets a turn
    client.docker.check(await client.run(client.docker.resume(cid)))
    assert (await client.container(cid)).state == "running"
    assert proc(pid, "stat").split()[2] != "T"


async def test_a_running_container_is_not_removed_without_force(client: Client):
    cid = await client.launch("sleep", "600")
    with pytest.raises(RuntimeFailed, match="You cannot remove a running container"):
        client.docker.check(await client.run(client.docker.remove(cid)))
    assert (await client.container(cid)).state == "running"


async def test_out_of_memory_is_told_from_a_kill(client: Client):
    async with client.events() as event:
        cid = await client.launch("sleep", "600")
        client.node.engine.oom(client.node.engine.containers[cid])
        assert [(await event())[1] for _ in range(4)] == ["create", "start", "oom", "die"]
    container = await client.container(cid)
    assert (container.exit_code, container.oom_killed) == (137, True)


async def test_a_log_keeps_streams_apart_and_can_be_cut(client: Client):
    cid = await client.launch("sh", "-c", "echo one; echo two >&2; echo three; printf four")
    await client.ended(cid)
    assert await client.log(cid) == Result(0, b"one\nthree\nfour", b"two\n")
    assert (await client.log(cid, tail=1)).stdout == b"four"
    assert (await client.log(cid, since=time.time() + 60)).stdout == b""
    stamp = (await client.log(cid, timestamps=True)).out.split()[0]
    assert stamp.startswith(time.strftime("%Y-", time.gmtime()))
    assert stamp.endswith("Z")


async def test_a_followed_log_comes_as_it_is_printed_and_ends_with_the_task(client: Client):
    cid = await client.launch("sh", "-c", 'trap "exit 0" TERM; echo first; while :; do sleep 0.05; done')
    async with client.lines(client.docker.logs(cid, LogQuery(follow=True))) as line:
        assert await line() == "first"
        await client.run(client.docker.signal(cid, "TERM"))
        assert await line() is None


async def test_nobody_follows_for_a_client_that_has_gone(client: Client):
    before = len(client.node.engine._listeners)
    async with client.events():
        assert len(client.node.engine._listeners) == before + 1
    await until(lambda: len(client.node.engine._listeners) == before)


async def test_a_container_that_is_started_again_is_another_run_of_the_same(client: Client):
    cid = await client.launch("sh", "-c", "echo run; exit 7")
    first = await client.ended(cid)
    assert (await client.run(f"docker start {cid}")).exit_code == 0
    second = await client.ended(cid)
    assert first.started_at < first.finished_at < second.started_at < second.finished_at
    assert (second.exit_code, (await client.log(cid)).out) == (7, "run\nrun\n")


async def test_a_restart_is_a_stop_and_a_start(client: Client):
    async with client.events() as event:
        cid = await client.launch("sleep", "600")
        assert (await client.run(f"docker restart --time 0 {cid}")).exit_code == 0
        found = [(await event())[1] for _ in range(8)]
    assert found == ["create", "start", "kill", "kill", "die", "stop", "start", "restart"]


async def test_a_container_ends_by_kill_when_it_takes_no_notice_of_a_stop(client: Client):
    ignores, notices = (
        await client.launch("sleep", "600"),
        await client.launch("sh", "-c", 'trap "exit 5" TERM; sleep 600 & wait'),
    )
    assert (await client.run(f"docker stop --time 1 {ignores} {notices}")).exit_code == 0
    assert [(await client.container(cid)).exit_code for cid in (ignores, notices)] == [137, 5]


async def test_a_renamed_container_keeps_its_id(client: Client):
    cid = await client.launch("sleep", "600")
    assert (await client.run(f"docker rename {cid} mine")).exit_code == 0
    assert (await client.run("docker ps --no-trunc --filter name=mine --format '{{.ID}}'")).out.strip() == cid
    assert 'The container name "/mine" is already in use' in (await client.run(f"docker rename {cid} mine")).err


async def test_what_an_engine_dates_it_dates_by_the_clock_of_its_node(client: Client):
    before = await client.ended(await client.launch("true"))
    client.node.set_clock(7200.0)
    after = await client.ended(await client.launch("sh", "-c", "echo"))
    now = (await client.run("docker info --format '{{.SystemTime}}'")).out.strip()
    stamp = (await client.log(after.id, timestamps=True)).out.strip()
    assert 7200 <= after.created_at - before.created_at < 7200 + PATIENCE
    assert 7200 <= after.finished_at - before.finished_at < 7200 + PATIENCE
    ahead = datetime.now(UTC) + timedelta(hours=2)
    assert all(abs(datetime.fromisoformat(time) - ahead) < timedelta(seconds=PATIENCE) for time in (now, stamp))


async def test_files_are_refused_in_a_sentence(agentless, tmp_path):
    (tmp_path / "data").write_text("x")
    _, said = await asyncio.to_thread(agentless, "submit", "n1", "--upload", "data", "--", "true", code=1)
    assert "n1: simulated nodes cannot receive files: --upload and agentless run need a real engine" in said
    _, said = await asyncio.to_thread(agentless, "submit", "n1", "--volume", "data:/data", "--", "true", code=1)
    assert "n1: simulated nodes have no volumes: --volume needs a real engine" in said


async def test_the_program_of_the_documentation_is_there_and_takes_any_options(client: Client):
    ended = await client.ended(await client.launch("python", "train.py", "--lr", "0.1", "--epochs", "0"))
    assert (ended.exit_code, (await client.log(ended.id)).out) == (0, "train.py --lr 0.1\nloss 0.0000\n")
