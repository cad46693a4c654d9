"""What may be relied on when a command is run, over every transport."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import uuid

import pytest

from agentless.errors import Timeout, Unreachable
from agentless.model.command import Command
from agentless.session import SHELLS
from tests.real.transports.nodes import MB
from tests.real.transports.sshd import WAIT, until

MAX_SESSIONS = 10
"""What sshd allows on one connection when it is not told otherwise."""


@pytest.mark.parametrize("code", [0, 1, 255])
async def test_exit_code(session, code):
    assert (await session.run(Command(f"exit {code}"))).exit_code == code


async def test_exit_code_of_a_signal(session):
    assert (await session.run(Command("sh -c 'kill -9 $$'"))).exit_code == 137


async def test_streams_are_apart_and_exact(session):
    result = await session.run(Command("printf out; printf 'err\n\n' >&2; printf ' more'"))
    assert (result.stdout, result.stderr) == (b"out more", b"err\n\n")


async def test_every_byte_comes_back(session):
    every = bytes(range(256)) * 3
    assert (await session.run(Command("tee /dev/stderr", stdin=every))).stdout == every
    assert (await session.run(Command("tee /dev/stderr", stdin=every))).stderr == every


async def test_every_byte_comes_back_from_a_kept_shell(session):
    octal = "".join(f"\\{byte:03o}" for byte in range(256))
    result = await session.run(Command(f"printf '{octal}'; printf '{octal}' >&2"))
    assert (result.stdout, result.stderr) == (bytes(range(256)), bytes(range(256)))


async def test_stdin(session):
    result = await session.run(Command("read -r a; cat; echo $a", stdin=b"first\nsecond\n"))
    assert result.stdout == b"second\nfirst\n"


async def test_100_mb_of_stdin(session):
    data = os.urandom(MB) * 100
    result = await session.run(Command("sha256sum", stdin=data, timeout=60))
    assert result.out.split()[0] == hashlib.sha256(data).hexdigest()


async def test_a_big_script(session):
    assert (await session.run(Command(f": '{'x' * MB}'\necho $((1 + 1))"))).stdout == b"2\n"


async def test_a_shell_is_kept_for_the_next_command(session):
    first = await session.run(Command("echo $$"))
    assert (await session.run(Command("echo $$"))).stdout == first.stdout


async def test_a_kept_shell_that_has_died_is_replaced(session, node):
    pid = int((await session.run(Command("echo $$"))).stdout)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: pid not in node.processes())
    assert int((await session.run(Command("echo $$"))).stdout) != pid


async def test_two_commands_run_at_once(session, tmp_path):
    os.mkfifo(tmp_path / "a")
    os.mkfifo(tmp_path / "b")
    there, back = await asyncio.gather(
        session.run(Command(f"echo x >{tmp_path}/a; cat {tmp_path}/b", timeout=WAIT)),
        session.run(Command(f"cat {tmp_path}/a; echo y >{tmp_path}/b", timeout=WAIT)),
    )
    assert (there.stdout, back.stdout) == (b"y\n", b"x\n")


async def test_many_commands_share_a_few_shells(session):
    results = await asyncio.gather(*(session.run(Command(f"echo {n} $$")) for n in range(30)))
    words = [result.out.split() for result in results]
    assert [int(number) for number, _ in words] == list(range(30))
    assert len({shell for _, shell in words}) <= SHELLS


async def test_between_commands_only_shells_are_left(session, node):
    await session.run(Command("true"))
    await until(lambda: set(node.processes().values()) == {"sh"}, "more than a sh is left")


async def test_a_timeout_leaves_nothing_running(session, node, mark):
    script = f"echo some output; (trap '' TERM; sleep {mark}) | (sleep {mark}; cat)"
    with pytest.raises(Timeout, match=r"node1 did not finish a command within 0\.2 s"):
        await session.run(Command(script, timeout=0.2))
    await until(lambda: not node.runs(mark))
    assert session.connected
    assert (await session.run(Command("echo usable"))).ok


async def test_a_timeout_while_stdin_is_sent_leaves_nothing_running(session, node, mark):
    with pytest.raises(Timeout):
        await session.run(Command(f"sleep {mark}", stdin=b"x" * 10 * MB, timeout=0.2))
    await until(lambda: not node.runs(mark))


async def test_when_all_shells_hang_each_times_out_by_itself(session, node, mark):
    hanging = [session.run(Command(f"sleep {mark}", timeout=0.2)) for _ in range(SHELLS)]
    results = await asyncio.gather(*hanging, session.run(Command("echo after")), return_exceptions=True)
    assert [type(result) for result in results[:-1]] == [Timeout] * SHELLS
    assert results[-1].ok
    await until(lambda: not node.runs(mark))


async def test_a_cancelled_command_is_ended(session, node, mark):
    task = asyncio.create_task(session.run(Command(f"sleep {mark} & sleep {mark}")))
    await until(lambda: node.runs(mark))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not node.runs(mark))
    assert (await session.run(Command("echo usable"))).ok


async def test_cancelling_before_it_has_begun_costs_no_shell(session, node):
    for turns in range(2 * MAX_SESSIONS):
        task = asyncio.create_task(session.run(Command("true", stdin=b"")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await session.run(Command("echo usable"))).ok
    await until(lambda: len(node.processes()) == 1, "shells pile up")


async def test_closing_breaks_what_is_in_flight(node, mark, monkeypatch):
    monkeypatch.setattr("agentless.session.GUARD_GRACE", 0.0)
    session = node.session()
    await session.connect()
    running = asyncio.create_task(session.run(Command(f"sleep {mark}", timeout=3.0)))
    await until(lambda: node.runs(mark))
    await session.close()
    with pytest.raises(Unreachable, match="node1 closed the connection"):
        await running
    with pytest.raises(Unreachable, match="node1 is not connected"):
        await session.run(Command("true"))
    await until(lambda: not node.processes(), "its guard did not end it")


async def test_a_secret_reaches_the_script_and_no_argv(session):
    secret = uuid.uuid4().hex
    command = Command("printenv TOKEN; sleep 0.2 & cat /proc/[0-9]*/cmdline; wait", secrets={"TOKEN": secret})
    result = await session.run(command)
    assert result.out.startswith(f"{secret}\n")
    assert result.out.count(secret) == 1


async def test_a_secret_is_in_no_exception(session):
    secret = uuid.uuid4().hex
    with pytest.raises(Timeout) as caught:
        await session.run(Command("sleep 60", secrets={"TOKEN": f"{secret}\udcff"}, timeout=0.1))
    error: BaseException | None = caught.value
    while error is not None:
        assert secret not in f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__
