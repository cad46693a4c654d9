"""A node with several addresses, of which another one leads to it in each network (`address:`)."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from agentless.errors import AuthFailed, HostKeyRejected, Unreachable
from agentless.model.command import Command
from tests.ports import reserve
from tests.real.transports.nodes import node_of, opened, refusal
from tests.real.transports.sshd import WAIT, public, until
from tests.real.transports.test_servers import silent_server


@pytest.fixture
def nowhere():
    """A port at which nothing listens."""
    with reserve() as holder:
        yield holder.getsockname()[1]


def known(server, port):
    """The user knows its host key, by the name of its first address."""
    server.known_hosts.write_text(f"[127.0.0.1]:{port} {public(server.host_keys[0])}\n")


async def test_the_address_that_answers_is_used(start, library, nowhere):
    server = start()
    known(server, nowhere)
    node = node_of(server, library, port=nowhere, addresses=("no-such.invalid", f"127.0.0.1:{server.port}"))
    async with opened(node) as session:
        assert (await session.run(Command("echo there"))).stdout == b"there\n"
        assert len(server.connections()) == 1


async def test_a_silent_address_holds_up_no_other_and_is_left(start, library):
    server = start()
    async with silent_server() as (port, callers), asyncio.timeout(WAIT):
        known(server, port)
        node = node_of(server, library, port=port, addresses=(f"127.0.0.1:{server.port}",))
        async with opened(node) as session:
            server.break_connections()
            await until(lambda: not session.connected)
            await session.connect()
            assert len(callers) == 1  # the one that led there is tried first


async def test_another_machine_at_an_address_is_not_taken_for_it(start, library):
    server, stranger = start(), start()
    stranger.authorized_keys.write_text(public(server.key))
    known(server, stranger.port)
    node = node_of(server, library, port=stranger.port, addresses=(f"127.0.0.1:{server.port}",))
    async with opened(node):
        await until(lambda: (len(server.connections()), len(stranger.connections())) == (1, 0))
    server.stop()
    error = await refusal(node)
    assert isinstance(error, HostKeyRejected)
    assert "WARNING" in str(error)


async def test_an_unknown_key_is_trusted_by_the_name_of_the_first_address(start, library, nowhere, tmp_path):
    server = start()
    server.known_hosts.unlink()
    node = node_of(server, library, port=nowhere, addresses=(f"127.0.0.1:{server.port}",))
    error = await refusal(node)
    assert isinstance(error, HostKeyRejected)
    assert error.host == f"[127.0.0.1]:{nowhere}"
    node.files.known_hosts.write_text(f"{error.host} {error.key}\n")
    async with opened(node):
        pass


async def test_the_error_is_that_of_the_machine_itself_or_of_all(start, library, nowhere):
    server = start()
    known(server, nowhere)
    server.authorized_keys.write_text("")
    node = node_of(server, library, port=nowhere, addresses=(f"127.0.0.1:{server.port}",))
    assert isinstance(await refusal(node), AuthFailed)
    server.stop()
    error = await refusal(node)
    assert type(error) is Unreachable
    assert str(error) == (
        f"node1 answers at none of its addresses: node1 (root@127.0.0.1 port {nowhere}) cannot be reached: Connection "
        f"refused; node1 (root@127.0.0.1 port {server.port}) cannot be reached: Connection refused; check that it is "
        "up, and its host: and address: in the inventory"
    )


async def test_a_key_recorded_without_a_port_is_that_of_the_machine_on_any_port(start, library, nowhere):
    """As OpenSSH has it: what `ssh node1` has recorded holds for `ssh -p 2222 node1`, and for its other addresses."""
    server = start()
    server.known_hosts.write_text(f"127.0.0.1 {public(server.host_keys[0])}\n")
    by_hand = await asyncio.to_thread(
        subprocess.run,
        [
            *("ssh", "-F", "none", "-p", str(server.port), "-i", server.key, "-o", "BatchMode=yes"),
            *("-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={server.known_hosts}"),
            *("-o", "GlobalKnownHostsFile=none", "root@127.0.0.1", "true"),
        ],
        capture_output=True,
        check=False,
        timeout=WAIT,
    )
    assert by_hand.returncode == 0, by_hand
    node = node_of(server, library, port=nowhere, addresses=(f"127.0.0.1:{server.port}",))
    async with opened(node) as session:
        assert session.connected
