"""What may be relied on whatever the `sh` of a node is."""

from __future__ import annotations

import os
import shutil

import pytest

from agentless.errors import Timeout
from agentless.model.command import Command
from tests.real.transports.nodes import opened
from tests.real.transports.sshd import until


@pytest.fixture(params=["dash", "bash", "busybox"])
def node(request, here, tmp_path, monkeypatch):
    """This machine, with that `sh`."""
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"no {request.param} here")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return here


@pytest.fixture
async def sh(node):
    """A session with it."""
    async with opened(node) as session:
        yield session


async def test_many_commands_in_a_row(sh):
    for n in range(100):
        result = await sh.run(Command(f"echo {n}; printf err >&2; exit {n}"))
        assert (result.exit_code, result.stdout, result.stderr) == (n, b"%d\n" % n, b"err")


async def test_no_output_is_none(sh):
    result = await sh.run(Command("# nothing"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"", b"")


async def test_quotes_and_here_documents_mean_what_they_say(sh):
    script = "cat <<'END'\nit's \"$x\" `y` \\z\nEND\necho 'a  b'  # end"
    assert (await sh.run(Command(script))).stdout == b'it\'s "$x" `y` \\z\na  b\n'


async def test_a_syntax_error_is_a_result(sh):
    result = await sh.run(Command("if then"))
    assert result.exit_code == 2
    assert b"yntax error" in result.stderr
    assert (await sh.run(Command("echo fine"))).ok


async def test_a_script_leaves_no_trace_in_the_next_one(sh):
    await sh.run(Command("cd /; export x=1; set -e; trap 'echo trapped' EXIT; exec 1>/dev/null 2>&1; false"))
    result = await sh.run(Command('false; echo "[$x] $#"; [ "$PWD" = / ] || echo elsewhere >&2'))
    assert (result.stdout, result.stderr) == (b"[] 0\n", b"elsewhere\n")


async def test_a_script_that_reads_gets_nothing_of_the_conversation(sh):
    assert (await sh.run(Command("cat; echo end"))).stdout == b"end\n"


async def test_a_script_that_kills_its_shell_has_ended_and_the_next_one_runs(sh):
    result = await sh.run(Command("echo before; kill -9 $$"))
    assert (result.exit_code, result.stdout) == (137, b"before\n")
    assert (await sh.run(Command("echo next"))).stdout == b"next\n"


async def test_stdin(sh):
    result = await sh.run(Command("cat; exit 4", stdin=b"data"))
    assert (result.exit_code, result.stdout) == (4, b"data")


async def test_stdin_that_nobody_reads(sh):
    assert (await sh.run(Command("exit 3", stdin=b"echo run me\n" * 100_000))).exit_code == 3


async def test_stdin_is_never_taken_for_commands(sh, tmp_path):
    await sh.run(Command("read -r a", stdin=f"a\ntouch {tmp_path}/taken\n".encode()))
    assert not (tmp_path / "taken").exists()


async def test_a_timeout_leaves_nothing_running(sh, node, mark):
    with pytest.raises(Timeout):
        await sh.run(Command(f"(trap '' TERM; sleep {mark}) & sleep {mark} | cat", timeout=0.2))
    await until(lambda: not node.runs(mark))
    assert (await sh.run(Command("echo usable"))).ok


async def test_a_stream_that_is_left_ends(sh, node, mark):
    async with sh.stream(Command(f"sleep {mark} | cat; sleep {mark}")):
        await until(lambda: node.runs(mark))
    await until(lambda: not node.processes(), "something outlived its stream")


async def test_a_stream_that_has_ended_leaves_nothing(sh, node):
    async with sh.stream(Command("echo x; exit 5")) as stream:
        assert [chunk async for chunk in stream] == [(1, b"x\n")]
        await until(lambda: not node.processes(), "something outlived its stream")
    assert stream.exit_code == 5


async def test_a_pipe_reads_every_byte_and_leaves_nothing(sh, node):
    data = bytes(range(256)) * 1000
    async with sh.pipe(Command("cat")) as pipe:
        await pipe.write(data)
        await pipe.write_eof()
        seen = b""
        while chunk := await pipe.read():
            seen += chunk[1]
        assert (seen, await pipe.wait()) == (data, 0)
    await until(lambda: len(node.processes()) == 0, "something outlived its pipe")


async def test_a_pipe_that_is_left_ends(sh, node, mark):
    async with sh.pipe(Command(f"sleep {mark} | cat")):
        await until(lambda: node.runs(mark))
    await until(lambda: not node.runs(mark), "something outlived its pipe")
