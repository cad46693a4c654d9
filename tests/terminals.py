"""What may be relied on when a script has a terminal, over every transport: imported by the rings that have nodes."""

from __future__ import annotations

import asyncio

import pytest

from agentless.errors import Unreachable
from agentless.model.command import Command
from agentless.model.terminal import Size

SIZE = Size(91, 31)
WITHIN = 60
EVERY = bytes(range(256)) * 40


async def shown(terminal, until: bytes = b"") -> bytes:
    """What it prints, until this is there or it has ended."""
    seen = b""
    async with asyncio.timeout(WITHIN):
        while not until or until not in seen:
            chunk = await terminal.read()
            if chunk is None:
                break
            assert chunk[0] == 1
            seen += chunk[1]
    return seen


async def test_a_terminal_has_its_size_and_both_streams_of_the_script(session):
    async with session.terminal(Command("stty size; test -t 0 && echo err >&2; exit 7"), SIZE) as terminal:
        assert await shown(terminal) == b"31 91\r\nerr\r\n"
        assert await terminal.wait() == 7


async def test_a_terminal_that_is_resized_says_so_to_what_runs_there(session):
    script = "trap 'stty size; exit' WINCH; echo begun; while :; do sleep 0.1; done"
    async with session.terminal(Command(script), SIZE) as terminal:
        await shown(terminal, b"begun")
        await terminal.resize(Size(120, 40))
        assert b"40 120\r\n" in await shown(terminal)


async def test_keys_are_signals_to_what_is_in_front(session):
    script = "trap 'echo caught; exit 3' INT; echo begun; while :; do sleep 0.1; done"
    async with session.terminal(Command(script), SIZE) as terminal:
        await shown(terminal, b"begun")
        await terminal.write(b"\x03")
        assert b"caught" in await shown(terminal)
        assert await terminal.wait() == 3


async def test_every_byte_passes_a_terminal_both_ways(session):
    script = f"stty raw -echo; printf begun; head -c {len(EVERY)}"
    async with session.terminal(Command(script), SIZE) as terminal:
        seen = await shown(terminal, b"begun")
        await terminal.write(EVERY)
        assert seen + await shown(terminal) == b"begun" + EVERY


async def test_a_script_for_a_terminal_means_what_it_says(session):
    script = "cat <<'END'\nit's \"$x\" `y` \\z !! é\nEND\nprintf '%s' 'a  b' # end"
    async with session.terminal(Command(script), SIZE) as terminal:
        assert (await shown(terminal)).decode() == 'it\'s "$x" `y` \\z !! é\r\na  b'


async def test_a_terminal_that_is_left_is_hung_up(session, tmp_path):
    script = f"trap 'echo heard >{tmp_path}/hup; exit' HUP; echo begun; while :; do sleep 0.1; done"
    async with session.terminal(Command(script), SIZE) as terminal:
        await shown(terminal, b"begun")
    async with asyncio.timeout(WITHIN):
        while not (tmp_path / "hup").exists():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.02)


async def test_a_terminal_does_not_outlive_the_connection(session):
    async with session.terminal(Command("echo begun; sleep 600"), SIZE) as terminal:
        await shown(terminal, b"begun")
        closing = asyncio.create_task(session.close())
        with pytest.raises(Unreachable):
            await shown(terminal)
        await closing


async def test_a_dialogue_has_an_input_and_both_streams(session):
    async with session.dialogue(Command("echo begun; read -r line; echo got $line; echo err >&2; exit 4")) as shell:
        assert await shell.read() == (1, b"begun\n")
        await shell.write(b"it\n")
        chunks = [chunk async for chunk in _chunks(shell)]
        assert sorted(chunks) == [(1, b"got it\n"), (2, b"err\n")]
        assert await shell.wait() == 4


async def test_the_input_of_a_dialogue_that_is_left_breaks_off(session, tmp_path):
    script = f"echo begun; cat; echo heard >{tmp_path}/eof"
    async with session.dialogue(Command(script)) as shell:
        assert await shell.read() == (1, b"begun\n")
        await shell.write_eof()
        assert await shell.read() is None
    assert (tmp_path / "eof").exists()


async def _chunks(shell):
    while (chunk := await shell.read()) is not None:
        yield chunk
