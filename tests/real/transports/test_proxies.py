"""Programs that connect to a node (ProxyCommand): what they print, how they end, and that nothing of them stays.

What they print is what tsh, tailscale, cloudflared and aws print on a machine where nobody has logged in.
"""

from __future__ import annotations

import shlex
import sys
import uuid

import pytest

from agentless.errors import NobodyThere
from agentless.model.command import Command
from tests.real.transports.nodes import MB, node_of, opened, refusal
from tests.real.transports.sshd import processes, until

RELAY = """\
import os, socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := os.read(0, 65536): s.sendall(data)
threading.Thread(target=up, daemon=True).start()
while data := s.recv(65536): os.write(1, data)
"""
TSH = "Enter password for Teleport user me:\nERROR: failed reading prompt response\nunderlying reader is not a terminal"
TAILSCALE = "failed to connect to local tailscaled; it doesn't appear to be running (sudo systemctl start tailscaled ?)"
CLOUDFLARED = "A browser window should have opened at the following URL:\n\nhttps://team.example.com/cdn-cgi/access/cli"
AWS = "An error occurred (TargetNotConnected) when calling the StartSession operation: i-123456 is not connected."


@pytest.fixture
def through(shared_server, library, tmp_path):
    """A node behind a program; `RELAY` in it is one that connects."""
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/known_hosts").write_text(shared_server.known_hosts.read_text())

    def through(script, name="tsh", **changes):
        program, connect = tmp_path / name, f'{shlex.quote(sys.executable)} {relay} "$@"'
        program.write_text(f"#!/bin/sh\n{script.replace('RELAY', connect)}\n")
        program.chmod(0o755)
        (tmp_path / ".ssh/config").write_text(f"Host 127.0.0.1\n  ProxyCommand {program} %h %p\n")
        return node_of(shared_server, library, identity_file=str(shared_server.key)).but(home=tmp_path, **changes)

    return through


def running(mark):
    return any(mark in line for line in processes("").values())


async def test_a_proxy_command(through, tmp_path):
    async with opened(through("exec RELAY")) as session:
        assert (await session.run(Command("cat", stdin=b"x" * MB))).stdout == b"x" * MB
        assert running(str(tmp_path / "relay.py"))
    await until(lambda: not running(str(tmp_path / "relay.py")))


@pytest.mark.parametrize(
    "before",
    ["echo Starting session; printf 'SS\\nH-SSH'; sleep 0.1; printf 'S\\n'", "yes noise | head -c 20000", "sleep 0.2"],
    ids=["says something", "says much", "takes a while"],
)
async def test_what_comes_before_the_greeting_is_passed_over(through, before):
    async with opened(through(f"echo connecting >&2; {before}; RELAY")) as session:
        assert (await session.run(Command("echo there"))).stdout == b"there\n"


@pytest.mark.parametrize(
    ("name", "says", "code"),
    [("tsh", TSH, 1), ("tailscale", TAILSCALE, 1), ("aws", AWS, 254)],
)
@pytest.mark.parametrize("stream", [pytest.param(1, marks=pytest.mark.slow), 2])
async def test_one_that_wants_a_login_says_so(through, shared_server, name, says, code, stream):
    error = str(await refusal(through(f"printf '%s\\n' {shlex.quote(says)} >&{stream}; exit {code}", name)))
    assert f"): its ProxyCommand {name} ended with exit code {code} and printed: " in error
    assert error.endswith(
        f" {' '.join(says.removesuffix('.').split())}; "
        f"run `ssh -p {shared_server.port} root@127.0.0.1` in a terminal, and log in there if it asks"
    )


async def test_one_that_waits_for_a_browser_is_ended_with_its_children(through):
    mark = f"{uuid.uuid4().int % 10**6 + 10**6}.5"
    script = f"printf '%s\\n' {shlex.quote(CLOUDFLARED)} >&2; sleep {mark} & sleep {mark} | sleep {mark}"
    error = await refusal(through(script, "cloudflared", connect_timeout=0.5))
    assert isinstance(error, NobodyThere)
    assert "its ProxyCommand cloudflared did not connect within 0.5 s and printed: A browser window should" in str(
        error
    )
    assert "https://team.example.com/cdn-cgi/access/cli; run `ssh -p " in str(error)
    await until(lambda: not running(mark))


async def test_a_program_that_is_not_there_and_one_that_says_nothing(through, tmp_path):
    node = through("kill -9 $$")
    assert "its ProxyCommand tsh was ended by signal 9 and printed nothing; run" in str(await refusal(node))
    (tmp_path / "tsh").unlink()
    assert "its ProxyCommand tsh ended with exit code 127 and printed: /bin/sh: 1: exec:" in str(await refusal(node))


async def test_what_it_prints_is_made_safe_and_its_arguments_stay_secret(through, tmp_path):
    node = through("printf '\\033]0;title\\007two\\nlines' >&2")
    config = tmp_path / ".ssh/config"
    config.write_text(config.read_text().replace("%h %p", "--token hunter2"))
    error = str(await refusal(node))
    assert "printed: �]0;title�two lines; run" in error
    assert "hunter2" not in error


async def test_a_connect_timeout_of_the_configuration_counts(through, tmp_path):
    node = through("sleep 0.4; exec RELAY", connect_timeout=0.2)
    config = tmp_path / ".ssh/config"
    config.write_text(config.read_text() + "  ConnectTimeout 30\n")
    async with opened(node) as session:
        assert (await session.run(Command("true"))).ok


async def test_what_is_no_ssh_server_is_given_up(through):
    assert "printed no greeting of an SSH server and printed: …" in str(await refusal(through("exec yes HTTP/1.1")))
