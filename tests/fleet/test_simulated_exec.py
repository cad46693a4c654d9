"""The simulated `docker exec` does with a program in a container what Docker does, also when its client goes."""

from __future__ import annotations

import os

from agentless.model.command import Command
from tests.fleet.client import Client, gone


async def test_a_program_has_its_input_both_streams_and_an_exit_code(client: Client):
    cid = await client.launch("sleep", "600")
    script = f"printf 'a\\nb' | docker exec --interactive {cid} sh -c 'cat; echo err >&2; exit 3'"
    done = await client.run(script)
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"a\nb", b"err\n")


async def test_a_program_on_a_terminal_has_the_size_of_the_clients(client: Client):
    cid = await client.launch("sleep", "600")
    command = f"docker exec --interactive --tty {cid} sh -c 'stty size; exit 3'; echo $?; stty size"
    terminal = {"request_pty": "force", "term_type": "xterm", "term_size": (90, 20)}
    done = await client.connection.run(command, encoding=None, **terminal)
    assert done.stdout == b"20 90\r\n3\r\n20 90\r\n"


async def test_without_a_terminal_there_is_none_to_give(client: Client):
    done = await client.run(f"docker exec --interactive --tty {await client.launch('sleep', '600')} true </dev/null")
    assert (done.exit_code, done.err) == (1, "the input device is not a TTY\n")


async def test_a_program_lives_on_when_its_client_goes_and_ends_with_its_container(client: Client):
    cid = await client.launch("sleep", "600")
    async with client.lines(Command(f"exec docker exec {cid} sh -c 'echo $$; exec sleep 600'")) as line:
        pid = int(await line())
    os.kill(pid, 0)
    await client.run(client.docker.signal(cid, "KILL"))
    assert await gone(pid)


async def test_nothing_can_be_run_in_a_container_that_does_not_run(client: Client):
    cid = await client.launch("sleep", "600")
    await client.run(client.docker.pause(cid))
    assert "is paused, unpause the container" in (await client.run(f"docker exec {cid} true")).err
    await client.run(client.docker.signal(cid, "KILL"))
    await client.ended(cid)
    assert f"Container {cid} is not running" in (await client.run(f"docker exec {cid} true")).err
    assert (await client.run("docker exec nobody true")).err == "Error: No such container: nobody\n"


async def test_a_program_that_is_not_there(client: Client):
    done = await client.run(f"docker exec {await client.launch('sleep', '600')} no-such-program")
    assert done.exit_code == 126
    assert 'exec: "no-such-program": executable file not found' in done.err
