"""Keys of hardware (ed25519-sk): an agent that has one signs; the key file alone is of no use to us."""

from __future__ import annotations

import base64

import pytest

from agentless.errors import AuthFailed
from tests.real.transports.nodes import node_of, opened, refusal
from tests.real.transports.security_key import KIND, SecurityKey


@pytest.fixture
def touched(tmp_path, monkeypatch):
    """A security key whose agent is the user's."""
    key = SecurityKey(tmp_path / "agent")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(key.path))
    yield key
    key.close()


@pytest.fixture
def server(start, touched):
    """A server that lets in only this key."""
    server = start()
    server.authorized_keys.write_text(f"{KIND.decode()} {base64.b64encode(touched.blob).decode()}\n")
    server.key.unlink()
    server.key.with_name("id_ed25519.pub").unlink()
    return server


async def test_a_security_key_in_the_agent(server, library, touched):
    async with opened(node_of(server, library)):
        assert touched.touches == 1


@pytest.mark.parametrize("file", ["public", "private"])
async def test_it_is_named_by_its_file(server, library, touched, file):
    name = server.home / ".ssh/id_ed25519_sk"
    if file == "public":
        name.with_name("id_ed25519_sk.pub").write_text(server.authorized_keys.read_text())
    else:
        name.write_text(touched.file)
    (server.home / ".ssh/config").write_text("Host *\n  IdentitiesOnly yes\n")
    async with opened(node_of(server, library, identity_file=str(name))):
        assert touched.touches == 1


async def test_its_file_without_an_agent_is_a_sentence(server, library, touched, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK")
    name = server.home / ".ssh/id_ed25519_sk"
    name.write_text(touched.file)
    error = await refusal(node_of(server, library, identity_file=str(name)))
    assert isinstance(error, AuthFailed)
    assert f"{name} is a security key, and no SSH agent has it; run: ssh-add {name}" in str(error)
