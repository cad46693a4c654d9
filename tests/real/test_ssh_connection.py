"""What a connection by ssh has beside its programs: signals, the user's agent, its events, and a pause in between."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import asyncssh
import pytest

from agentless.client.ssh import proxy
from tests.real.cli import until
from tests.real.test_ssh import EVERYTHING, WAITS, Ssh, inside

ASK = """\
import os, socket, struct
there = socket.socket(socket.AF_UNIX)
there.connect(os.environ["SSH_AUTH_SOCK"])
there.sendall(struct.pack("!IB", 1, 11))
size, kind, keys = struct.unpack("!IBI", there.recv(9, socket.MSG_WAITALL))
print(kind, keys, there.recv(size - 5, socket.MSG_WAITALL)[-11:])
"""
"""A small client of an agent: asks for its keys, and prints the last one's comment; 12 is the kind of the answer."""


@pytest.fixture
def ssh(agentless, tmp_path):
    return Ssh(agentless, tmp_path)


@pytest.fixture
def box(agentless):
    agentless.submit("node1", "--name", "box", *WAITS)
    return "box.agentless"


@pytest.fixture
def full(agentless):
    agentless.submit("node1", "--name", "full", *EVERYTHING, *WAITS)
    return "full.agentless"


@contextlib.contextmanager
def agent_of(folder):
    """An agent of this machine with one key; gives its socket."""
    socket, key = folder / "agent", folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "of the test", "-f", key], check=True)
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=-3) as process:
        until(socket.exists)
        subprocess.run(["ssh-add", "-q", key], env={"SSH_AUTH_SOCK": str(socket)}, check=True)
        yield str(socket)
        process.kill()


@pytest.fixture
def agent(tmp_path):
    with agent_of(tmp_path) as socket:
        yield socket


def proxied(ssh, host):
    """The ProxyCommand for another client."""
    return [sys.executable, "-IS", proxy.__file__, str(Path(ssh.env["XDG_STATE_HOME"], "agentless")), "", host]


# ---------------------------------------------------------------------- signals


async def signalled(proxy_command, names):
    """What a program prints that hears of these signals, and its exit code; the last one ends it."""
    traps = "; ".join(f"trap 'echo {name}' {name}" for name in names[:-1])
    options = {"known_hosts": None, "config": None, "username": "anybody", "agent_path": None}
    async with asyncio.timeout(60), asyncssh.connect("box", proxy_command=proxy_command, **options) as connection:
        script = f"{traps}; echo up; while :; do sleep 0.05; done"
        async with connection.create_process(script, stdin=asyncssh.PIPE) as process:
            heard = []
            for name in names:
                heard.append((await process.stdout.readline()).strip())
                process.send_signal(name)
            return heard, (await process.wait()).exit_status


def test_each_signal_reaches_the_program_as_it_is(ssh, box):
    names = ("USR1", "INT", "HUP", "USR2", "QUIT", "TERM", "KILL")
    assert asyncio.run(signalled(proxied(ssh, box), names)) == (["up", *names[:-1]], 137)


# ---------------------------------------------------------------------- the user's agent


def test_the_agent_is_there_when_it_is_asked_for_and_gone_with_the_connection(ssh, full, agent):
    ssh.env["SSH_AUTH_SOCK"] = agent
    look = "ls -ld ${SSH_AUTH_SOCK%/*} $SSH_AUTH_SOCK | cut -c 1-10"
    with ssh.running("-A", full, f"{look}; python3 -c '{ASK}'; ls -d /tmp/agentless-*; cat") as process:
        assert process.stdout.readline() == b"drwx------\n"
        assert process.stdout.readline() == b"srw-------\n"
        assert process.stdout.readline() == b"12 1 b'of the test'\n"
        folder = process.stdout.readline()
        assert folder.startswith(b"/tmp/agentless-")
    until(lambda: ssh(full, "ls -d /tmp/agentless-* 2>/dev/null || echo none").stdout == b"none\n")


@pytest.mark.slow
def test_without_being_asked_there_is_no_agent(ssh, full, agent):
    said = ssh(full, "echo ${SSH_AUTH_SOCK-none}; ls -d /tmp/agentless-* || echo none", SSH_AUTH_SOCK=agent).stdout
    assert said == b"none\nnone\n"


@pytest.mark.slow
def test_an_image_that_cannot_forward_it_is_a_sentence_and_the_command_runs(ssh, box, agent):
    done = ssh("-A", box, "echo ran", SSH_AUTH_SOCK=agent)
    assert done.stdout == b"ran\n"
    assert done.stderr == b"agentless: cannot forward the SSH agent: needs python3 or perl in the container\r\n"


# ---------------------------------------------------------------------- events


def logins(agentless, task):
    events = agentless.get(f"/v1/tasks/{task}/events")
    return [(each["event"], each["cause"]) for each in events if each["event"].startswith("ssh-")]


def test_a_login_is_one_event_when_it_begins_and_one_when_it_ends(agentless, ssh, box, tmp_path):
    ssh(box, "true", AGENTLESS_OWNER="anna")
    ssh("-b", "-", box, program="sftp", stdin=b"pwd\n")
    until(lambda: len(logins(agentless, "box")) == 4)
    (begun, ended), (copying, copied) = (logins(agentless, "box")[at : at + 2] for at in (0, 2))
    assert begun == ("ssh-opened", "agentless ssh, by anna: command")
    assert (ended[0], ended[1].rpartition("; ")[0]) == ("ssh-closed", "agentless ssh, by anna: command")
    assert (copying[0], copying[1][-7:], copied[0]) == ("ssh-opened", ": files", "ssh-closed")


# ---------------------------------------------------------------------- a pause


@pytest.mark.slow
def test_what_was_left_in_a_paused_container_ends_when_it_goes_on(agentless, ssh, node, box):
    with ssh.running(box, "exec sleep 4321"):
        until(lambda: "sleep 4321" in inside(node, agentless, "box"))
        agentless("pause", "box")
    until(lambda: [each for each in logins(agentless, "box") if each[0] == "ssh-closed"])
    assert "sleep 4321" in inside(node, agentless, "box")
    agentless("resume", "box")
    until(lambda: not inside(node, agentless, "box"))
