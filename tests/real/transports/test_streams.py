"""What may be relied on when the output of a command is streamed, over every transport."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc

import pytest

from agentless.model.command import Command
from tests.real.transports.nodes import MB, Node
from tests.real.transports.sshd import WAIT, until


async def test_both_outputs_and_an_exit_code(session):
    seen = {1: b"", 2: b""}
    async with session.stream(Command("printf out; printf err >&2; exit 7")) as stream:
        async for fd, data in stream:
            seen[fd] += data
    assert (seen, stream.exit_code) == ({1: b"out", 2: b"err"}, 7)


async def test_output_comes_as_it_is_written(session, tmp_path):
    os.mkfifo(tmp_path / "go")
    async with asyncio.timeout(WAIT), session.stream(Command(f"echo one; cat {tmp_path}/go")) as stream:
        assert await anext(stream) == (1, b"one\n")
        (tmp_path / "go").write_bytes(b"two\n")
        assert await anext(stream) == (1, b"two\n")


async def test_100_mb(session, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(os.urandom(MB) * 100)
    digest = hashlib.sha256()
    async with session.stream(Command(f"cat {data}")) as stream:
        async for _, chunk in stream:
            digest.update(chunk)
    assert digest.digest() == hashlib.sha256(data.read_bytes()).digest()
    data.unlink()


async def test_a_slow_reader_slows_the_node_down_and_nothing_piles_up_here(session):
    """What has come and is not read yet is bounded, however long the node could go on."""
    tracemalloc.start()
    try:
        async with session.stream(Command("yes 0123456789abcdef | head -c 50000000")) as stream:
            async for _ in stream:
                await asyncio.sleep(0.0005)
        assert tracemalloc.get_traced_memory()[1] < 24 * MB
    finally:
        tracemalloc.stop()


async def test_a_stream_that_has_ended_leaves_nothing(session, node):
    async with session.stream(Command("echo x")) as stream:
        async for _ in stream:
            pass
        await until(lambda: not node.processes(), "something outlived its stream")


async def test_leaving_a_stream_ends_it_on_the_node(session, node, mark):
    script = f"sleep {mark} | cat & while :; do (trap '' TERM HUP; sleep {mark}); done"
    async with session.stream(Command(script)):
        await until(lambda: node.runs(mark))
    await until(lambda: not node.processes(), "something outlived its stream")


async def test_the_timeout_of_the_command_is_not_for_its_stream(session):
    async with session.stream(Command("sleep 0.3; echo late", timeout=0.1)) as stream:
        assert [chunk async for chunk in stream] == [(1, b"late\n")]


async def test_a_slow_reader_slows_the_writer_down(session, tmp_path):
    progress = tmp_path / "progress"
    progress.write_text("0")
    seen = []

    def stands_still():
        seen.append(progress.read_text())
        return len(seen) > 20 and len(set(seen[-20:])) == 1 and seen[-1] not in ("", "0")

    script = f"i=0; while :; do head -c {MB // 10} /dev/zero; i=$((i+1)); echo $i >{progress}; done"
    async with session.stream(Command(script)):
        await until(stands_still, "the writer never waits")
        assert int(progress.read_text()) < 40


async def read(pipe):
    seen = {1: b"", 2: b""}
    while (chunk := await pipe.read()) is not None:
        seen[chunk[0]] += chunk[1]
    return seen


async def test_every_byte_goes_down_a_pipe_and_back_to_its_end(session):
    data = bytes(range(256)) * (4 * MB // 256)
    async with asyncio.timeout(WAIT), session.pipe(Command("echo err >&2; cat; exit 7")) as pipe:
        reading = asyncio.create_task(read(pipe))
        for start in range(0, len(data), MB):
            await pipe.write(data[start : start + MB])
        await pipe.write_eof()
        assert (await reading, await pipe.wait()) == ({1: data, 2: b"err\n"}, 7)


async def test_what_runs_in_a_pipe_that_is_left_may_tidy_up_and_is_ended(session, node, mark, tmp_path, monkeypatch):
    monkeypatch.setattr("agentless.remote.guards.PIPE_GRACE", 1)
    (tmp_path / "half").touch()
    stubborn = f"(trap '' TERM; exec sleep {mark}1) &"
    script = f"trap 'rm {tmp_path}/half; exit' TERM PIPE; {stubborn} while :; do sleep {mark}; done"
    async with session.pipe(Command(script)):
        await until(lambda: node.runs(mark))
    assert not (tmp_path / "half").exists()
    await until(lambda: not node.runs(mark), "something outlived the pipe")


async def test_the_death_of_the_controller_ends_its_pipes(node, mark):
    with controller(node, f"pipe(Command('sleep {mark} | cat; sleep {mark}'))") as process:
        await until(lambda: node.runs(mark))
        process.kill()
    await until(lambda: not node.processes(), "something outlived the controller")


async def test_a_node_that_takes_nothing_makes_the_sender_wait(node, mark):
    transport = node.transport()
    await transport.connect()
    shell = await transport.shell()
    await shell.write(f"sleep {mark}\n".encode())

    async def fill():
        for _ in range(200):
            await shell.write(b"#" * MB)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(fill(), 0.3)
    for pid in node.processes():
        os.kill(pid, signal.SIGKILL)
    await shell.close()
    await transport.close()


async def test_what_is_fed_to_a_script_comes_as_it_is(session):
    data = [os.urandom(MB) for _ in range(20)]

    async def pieces():
        for piece in data:
            yield piece

    result = await session.feed(Command("sha256sum; exit 3"), pieces())
    assert (result.exit_code, result.out.split()[0]) == (3, hashlib.sha256(b"".join(data)).hexdigest())


async def test_no_more_is_asked_for_than_the_script_takes(session, node, mark):
    asked = []

    async def zeros():
        for _ in range(200):
            asked.append(1)
            yield bytes(MB)

    feeding = asyncio.create_task(session.feed(Command(f"sleep {mark}"), zeros()))
    await until(lambda: node.runs(mark) and asked)
    await asyncio.sleep(0.3)
    assert len(asked) < 100
    feeding.cancel()
    await until(lambda: not node.runs(mark), "what was fed outlived its end")


async def test_a_script_ends_when_what_it_is_fed_breaks_off(session, node, mark):
    async def broken():
        yield b"x"
        await until(lambda: node.runs(mark))
        raise KeyError("broken")

    with pytest.raises(KeyError):
        await session.feed(Command(f"sleep {mark} | cat"), broken())
    await until(lambda: not node.runs(mark), "the script goes on without its input")


async def test_the_death_of_the_controller_ends_its_streams(node, mark):
    with controller(node, f"stream(Command('sleep {mark} | cat; sleep {mark}'))") as process:
        await until(lambda: node.runs(mark))
        process.kill()
    await until(lambda: not node.processes(), "something outlived the controller")


async def test_after_the_death_of_the_controller_a_command_still_ends_in_its_time(node, mark):
    with controller(node, f"run(Command('sleep {mark} & sleep {mark}', timeout=1.0))") as process:
        await until(lambda: node.runs(mark))
        process.kill()
    await until(lambda: not node.processes(), "something outlived the controller")


@contextlib.contextmanager
def controller(node: Node, call: str):
    """Another process that does one thing on the node, to be killed."""
    program = f"""
        import asyncio
        from pathlib import Path
        from agentless.controller import plugins
        from agentless.remote import guards, session
        from agentless.model.command import Command
        from agentless.model.nodes.node import NodeConfig
        from agentless.remote.transports import SshFiles

        async def main():
            guards.GUARD_GRACE = 0.0
            node = NodeConfig("node1", "127.0.0.1", port={node.config.port}, connection={node.config.connection!r})
            files = SshFiles(Path({str(node.files.home)!r}), Path("/nonexistent"))
            it = session.Session(plugins.load("remote.transports", node.connection).make(node, files))
            await it.connect()
            call = it.{call}
            if hasattr(call, "__aenter__"):
                await call.__aenter__()
                await asyncio.sleep(60)
            await call

        asyncio.run(main())
    """
    # Not as an argument: `node.runs` would find it there.
    with subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, text=True) as process:
        process.stdin.write(textwrap.dedent(program))
        process.stdin.close()
        yield process
        process.kill()
