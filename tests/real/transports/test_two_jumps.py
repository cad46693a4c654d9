"""A node behind two machines, in every way in which a user can say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentless.model.command import Command
from tests.real.transports.nodes import node_of, opened, refusal
from tests.real.transports.sshd import public, until

QUICK = "both in the configuration"


@pytest.fixture
def servers(start):
    """Two jump hosts and a node, of one user who may enter all of them."""
    first, second, target = start(), start(), start()
    first.known_hosts.write_text("".join(each.known_hosts.read_text() for each in (first, second, target)))
    for each in (second, target):
        each.authorized_keys.write_text(public(first.key))
    return first, second, target


WAYS = {
    "a list in the inventory": ("127.0.0.1:{first},127.0.0.1:{second}", ""),
    "a list of aliases": ("one,two", ""),
    "a list in the configuration": (None, "Host 127.0.0.1\n  ProxyJump one,two\n"),
    "the jump host's own configuration": ("two", "Host two\n  ProxyJump one\n"),
    "both in the configuration": (None, "Host 127.0.0.1\n  ProxyJump two\nHost two\n  ProxyJump one\n"),
    "a program to the first": ("two", "Host two\n  ProxyCommand ssh -F %d/.ssh/config -W %h:%p one\n"),
}


@pytest.mark.parametrize(
    "way", [QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in WAYS if each != QUICK)]
)
async def test_a_node_behind_two_jump_hosts(servers, library, way):
    first, second, target = servers
    jump, config = WAYS[way]
    ports = {"first": first.port, "second": second.port}
    own = f"  User root\n  IdentityFile {first.key}\n  UserKnownHostsFile {first.known_hosts}\n"
    (first.home / ".ssh/config").write_text(
        "".join(
            f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n{own}"
            for name, port in (("one", first.port), ("two", second.port))
        )
        + config
    )
    node = node_of(
        first, library, port=target.port, jump=jump.format(**ports) if jump else None, identity_file=str(first.key)
    )
    async with opened(replace(node, tag=target.tag)) as session:
        assert (await session.run(Command("echo there"))).stdout == b"there\n"
        assert [len(each.connections()) for each in servers] == [1, 1, 1]
    await until(lambda: not any(each.connections() for each in servers))


async def test_the_jump_host_that_fails_is_named(servers, library):
    first, second, target = servers
    node = node_of(first, library, port=target.port, jump=f"127.0.0.1:{first.port},127.0.0.1:{second.port}")
    second.authorized_keys.write_text("")
    assert f"jump host 127.0.0.1 (root@127.0.0.1 port {second.port}) rejected the login" in str(await refusal(node))
    second.stop()
    error = str(await refusal(node))
    assert f"port {second.port}) cannot be reached from its jump host: Connect" in error
    assert error.endswith("; check that it is up and that host and port are right as seen from there")
    first.stop()
    assert f"jump host 127.0.0.1 (root@127.0.0.1 port {first.port}) cannot be reached: Conn" in str(await refusal(node))


async def test_a_jump_host_that_forwards_nothing_is_told(start, library):
    first, target = start("AllowTcpForwarding no"), start()
    first.known_hosts.write_text(first.known_hosts.read_text() + target.known_hosts.read_text())
    error = str(await refusal(node_of(first, library, port=target.port, jump=f"127.0.0.1:{first.port}")))
    assert f"port {target.port}) cannot be reached: its jump host forwards no connections (" in error
    assert error.endswith("); set AllowTcpForwarding yes in the sshd_config of the jump host, or use another one")
