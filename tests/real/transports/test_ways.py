"""The way to a node: aliases of the SSH configuration, proxy commands, jump hosts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest

from agentless.model.command import Command
from agentless.remote.transports._link import STARTS
from tests.real.transports.nodes import node_of, opened
from tests.real.transports.relay import pump
from tests.real.transports.sshd import WAIT, public, until


async def test_an_alias_of_the_ssh_configuration(shared_server, library, tmp_path):
    (tmp_path / ".ssh/conf.d").mkdir(parents=True)
    (tmp_path / ".ssh/config").write_text("Include conf.d/*\nHost *\n  Port 1\n  User nobody\n")
    (tmp_path / ".ssh/conf.d/gpus").write_text(
        f"""
        Host gpu?
          HostName 127.0.0.1
          Port={shared_server.port}
          User root
          IdentityFile "%d/keys/key"
          HostKeyAlias the-gpu
          UserKnownHostsFile ~/known
        """
    )
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/key").write_bytes(shared_server.key.read_bytes())
    (tmp_path / "known").write_text(f"the-gpu {public(shared_server.host_keys[0])}\n")
    async with opened(node_of(shared_server, library, host="gpu1", port=None).but(home=tmp_path)) as session:
        assert (await session.run(Command("echo there"))).stdout == b"there\n"


@pytest.fixture
def behind(start, library):
    """A jump host, and a node to be reached through it."""
    jump, target = start(), start()
    jump.known_hosts.write_text(jump.known_hosts.read_text() + target.known_hosts.read_text())
    target.authorized_keys.write_text(public(jump.key))
    node = node_of(jump, library, port=target.port, jump=f"127.0.0.1:{jump.port}")
    return jump, replace(node, tag=target.tag)


@pytest.mark.parametrize("how", ["address", "alias", "configuration"])
async def test_a_jump_host(behind, how):
    jump, node = behind
    named = {"address": node.config.jump, "alias": "bastion", "configuration": None}
    node.config = replace(node.config, jump=named[how])
    (jump.home / ".ssh/config").write_text(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n"
        + ("Host 127.0.0.1\n  ProxyJump bastion\n" if how == "configuration" else "")
    )
    async with opened(node) as session:
        assert (await session.run(Command("echo there"))).stdout == b"there\n"
        assert len(jump.connections()) == 1
    await until(lambda: not jump.connections())


async def test_nodes_behind_a_jump_host_share_it_and_ten_start_at_once(behind):
    jump, node = behind
    accepted, finished, most = 0, 0, 0
    ten = asyncio.Event()
    port = node.config.port

    async def relay(reader, writer):
        nonlocal accepted, most
        accepted += 1
        most = max(most, accepted - finished)
        if accepted == STARTS:
            ten.set()
        await ten.wait()
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, other_writer), pump(other_reader, writer))

    async def connect(session):
        nonlocal finished
        await session.connect()
        finished += 1

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    node.config = replace(node.config, port=server.sockets[0].getsockname()[1])
    known = jump.known_hosts.read_text()
    jump.known_hosts.write_text(known + known.replace(f":{port} ", f":{node.config.port} "))
    sessions = [node.session() for _ in range(25)]
    async with asyncio.timeout(WAIT):
        await asyncio.gather(*(connect(session) for session in sessions))
    assert (accepted, most) == (25, 10)
    assert len(jump.connections()) == 1
    for session in sessions[:-1]:
        await session.close()
    assert (await sessions[-1].run(Command("true"))).ok
    await sessions[-1].close()
    await until(lambda: not jump.connections())
    server.close()


@pytest.mark.parametrize(
    ("module", "loaded"),
    [
        ("agentless.remote.transports, agentless.remote.session", "[]"),
        ("agentless.remote.transports.local", "[]"),
        ("agentless.remote.transports.asyncssh", "['asyncssh']"),
        ("agentless.remote.transports.paramiko", "['paramiko']"),
    ],
)
def test_only_the_library_that_is_used_is_imported(module, loaded):
    program = f"import sys, {module}; print([name for name in ('asyncssh', 'paramiko') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == loaded
