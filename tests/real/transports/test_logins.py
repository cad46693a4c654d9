"""Who is let in, and whom we trust."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentless.errors import AuthFailed, HostKeyRejected
from tests.real.transports.nodes import node_of, opened, refusal
from tests.real.transports.sshd import Sshd, keygen, public


def home(folder: Path, known_hosts: str) -> Path:
    """The home of somebody without keys, who knows these hosts."""
    (folder / ".ssh").mkdir()
    (folder / ".ssh/known_hosts").write_text(known_hosts)
    return folder


def fingerprint(key: Path) -> str:
    listed = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True, check=True)
    return listed.stdout.split()[1]


async def test_a_wrong_key(shared_server, library, tmp_path):
    other = keygen(tmp_path / "other")
    node = node_of(shared_server, library, user="root", identity_file=str(other))
    error = await refusal(node.but(home=home(tmp_path, shared_server.known_hosts.read_text())))
    assert isinstance(error, AuthFailed)
    assert str(error) == (
        f"node1 (root@127.0.0.1 port {shared_server.port}) rejected the login: tried {other}; "
        f"run: ssh-copy-id -p {shared_server.port} root@127.0.0.1"
    )


async def test_no_key_at_all(shared_server, library, tmp_path):
    node = node_of(shared_server, library).but(home=home(tmp_path, shared_server.known_hosts.read_text()))
    error = await refusal(node)
    assert isinstance(error, AuthFailed)
    assert "no SSH key found; run: ssh-keygen -t ed25519 && ssh-copy-id -p" in str(error)


async def test_too_many_keys_are_a_refusal_too(start, library, tmp_path):
    server = start("MaxAuthTries 2")
    for kind in ("rsa", "ecdsa", "ed25519"):
        keygen(tmp_path / f".ssh/id_{kind}", kind)
    (tmp_path / ".ssh/known_hosts").write_text(server.known_hosts.read_text())
    assert isinstance(await refusal(node_of(server, library).but(home=tmp_path)), AuthFailed)


@pytest.fixture
def encrypted(start, tmp_path) -> tuple[Sshd, Path]:
    """A server that takes a key which has a passphrase, and that key."""
    server = start()
    key = keygen(tmp_path / "encrypted", passphrase="open sesame")
    server.authorized_keys.write_text(public(key))
    return server, key


async def test_an_encrypted_key_without_an_agent(encrypted, library):
    server, key = encrypted
    error = await refusal(node_of(server, library, identity_file=str(key)))
    assert isinstance(error, AuthFailed)
    assert f"{key} is encrypted, and no SSH agent has it; run: ssh-add {key}" in str(error)


@pytest.fixture
def agent(encrypted, tmp_path, monkeypatch):
    """An SSH agent that holds the key."""
    ask = tmp_path / "ask"
    ask.write_text("#!/bin/sh\necho open sesame\n")
    ask.chmod(0o700)
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        variables = {"SSH_AUTH_SOCK": str(socket), "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", encrypted[1]], env=os.environ | variables, check=True)
        yield socket
        process.kill()


@pytest.mark.parametrize("how", ["environment", "configuration"])
async def test_an_encrypted_key_that_the_agent_holds(encrypted, library, agent, how, monkeypatch):
    server, key = encrypted
    if how == "environment":
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    else:
        (server.home / ".ssh/config").write_text(f"Host *\n  IdentityAgent {agent}\n  IdentitiesOnly yes\n")
    async with opened(node_of(server, library, identity_file=str(key))):
        pass


async def test_an_unknown_host_key(shared_server, library, tmp_path):
    node = node_of(shared_server, library, identity_file=str(shared_server.key)).but(home=tmp_path)
    error = await refusal(node)
    assert isinstance(error, HostKeyRejected)
    assert str(error).startswith("node1: unknown host key of ")
    assert (error.host, error.key) == (shared_server.host_field, public(shared_server.host_keys[0]))
    assert (error.fingerprint, error.recorded) == (fingerprint(shared_server.host_keys[0]), ())


async def test_what_an_unknown_host_key_says_is_what_trusts_it(shared_server, library, tmp_path):
    node = node_of(shared_server, library, identity_file=str(shared_server.key))
    node = node.but(home=tmp_path, known_hosts=tmp_path / "ours")
    error = await refusal(node)
    assert isinstance(error, HostKeyRejected)
    node.files.known_hosts.write_text(f"{error.host} {error.key}\n")
    async with opened(node):
        pass


async def test_a_changed_host_key(shared_server, library, tmp_path):
    old = keygen(tmp_path / "old")
    node = node_of(shared_server, library, identity_file=str(shared_server.key))
    error = await refusal(node.but(home=home(tmp_path, f"{shared_server.host_field} {public(old)}\n")))
    assert isinstance(error, HostKeyRejected)
    assert (error.fingerprint, error.recorded) == (fingerprint(shared_server.host_keys[0]), (fingerprint(old),))
    assert "WARNING" in str(error)
    assert error.fingerprint in str(error)
    assert error.recorded[0] in str(error)
    assert f"ssh-keygen -R '{shared_server.host_field}' -f {tmp_path}/.ssh/known_hosts" in str(error)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_the_host_key_on_record_is_the_one_asked_for(start, library, kind):
    server = start(kinds=("rsa", "ecdsa", "ed25519"))
    key = next(key for key in server.host_keys if key.name.endswith(kind))
    server.known_hosts.write_text(f"{server.host_field} {public(key)}\n")
    async with opened(node_of(server, library)):
        pass


async def test_a_revoked_host_key(start, library):
    server = start()
    server.known_hosts.write_text(server.known_hosts.read_text() + f"@revoked * {public(server.host_keys[0])}\n")
    error = await refusal(node_of(server, library))
    assert isinstance(error, HostKeyRejected)
    assert error.revoked
