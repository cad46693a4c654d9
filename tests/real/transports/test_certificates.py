"""OpenSSH certificates: of users, from a file and from an agent, and of hosts."""

from __future__ import annotations

import subprocess

import pytest

from agentless.errors import AuthFailed, HostKeyRejected
from tests.real.transports.nodes import node_of, opened, refusal
from tests.real.transports.sshd import keygen, public


def sign(authority, key, *words):
    """A certificate for the key, beside it."""
    subprocess.run(["ssh-keygen", "-q", "-s", authority, "-I", "test", *words, f"{key}.pub"], check=True)
    return key.with_name(f"{key.name}-cert.pub")


@pytest.fixture
def authority(tmp_path):
    return keygen(tmp_path / "ca")


@pytest.fixture
def server(start, authority):
    """One that lets in whom the authority certifies, and no plain key."""
    server = start(f"TrustedUserCAKeys {authority}.pub")
    server.authorized_keys.write_text("")
    return server


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """The socket of an SSH agent; `ssh-add` speaks to it."""
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        yield
        process.kill()


def add(key):
    subprocess.run(["ssh-add", "-q", key], check=True)


async def test_a_certificate_beside_the_key(server, authority, library):
    sign(authority, server.key, "-n", "root")
    async with opened(node_of(server, library, user="root")):
        pass


async def test_a_certificate_elsewhere(server, authority, library, tmp_path):
    sign(authority, server.key, "-n", "root").rename(tmp_path / "mine.pub")
    (server.home / ".ssh/config").write_text(f"Host *\n  CertificateFile {tmp_path}/mine.pub\n")
    async with opened(node_of(server, library, user="root", identity_file=str(server.key))):
        pass


@pytest.mark.parametrize("config", ["", "IdentitiesOnly yes", "IdentitiesOnly yes\n  IdentityFile {key}"])
async def test_a_certificate_in_the_agent(server, authority, library, agent, config, tmp_path):
    certificate = sign(authority, server.key, "-n", "root")
    add(server.key)
    server.key.unlink()
    if not config:
        certificate.unlink()
        server.key.with_name("id_ed25519.pub").unlink()
    (server.home / ".ssh/config").write_text(f"Host *\n  {config.format(key=server.key)}\n")
    async with opened(node_of(server, library, user="root")):
        pass


async def test_a_plain_key_counts_beside_a_certificate_that_has_expired(server, authority, library):
    sign(authority, server.key, "-n", "root", "-V", "20200101:20200102")
    server.authorized_keys.write_text(public(server.key))
    async with opened(node_of(server, library, user="root")):
        pass


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (["-n", "root", "-V", "20200101:20200103"], ", which expired on 2020-01-03"),
        pytest.param(["-n", "somebody,else"], " for somebody, else", marks=pytest.mark.slow),
        pytest.param([], " for every user", marks=pytest.mark.slow),
    ],
)
async def test_a_certificate_that_is_not_accepted(server, authority, library, words, about):
    certificate = sign(authority, server.key, *words)
    error = await refusal(node_of(server, library, user="root"))
    assert isinstance(error, AuthFailed)
    assert str(error).endswith(
        f"tried {server.key} with certificate {certificate}{about}; "
        "renew the certificate, or check that the server trusts its authority for root"
    )


@pytest.fixture
def host(start, authority, tmp_path):
    """A server whose host key the authority certifies; its user knows only the authority."""

    def host(*words, authority=authority):
        server = start(f"HostCertificate {tmp_path}/sshd0/host_ed25519-cert.pub")
        server.stop()
        sign(authority, server.host_keys[0], "-h", *words)
        server.start()
        server.known_hosts.write_text(f"@cert-authority * {public(tmp_path / 'ca')}\n")
        return server

    return host


async def test_a_host_with_a_certificate(host):
    async with opened(node_of(host("-n", "127.0.0.1"), "asyncssh")):
        pass


@pytest.mark.slow
async def test_paramiko_checks_no_host_certificate_and_says_so(host):
    error = await refusal(node_of(host("-n", "127.0.0.1"), "paramiko"))
    assert isinstance(error, HostKeyRejected)
    assert str(error).endswith(
        "to trust it, run: agentless nodes trust node1; or use connection: asyncssh, which checks host certificates"
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-n", "127.0.0.1", "-V", "20200101:20200102"], "Certificate expired"),
        pytest.param(["-n", "somewhere"], "Certificate principal mismatch", marks=pytest.mark.slow),
    ],
)
async def test_a_host_whose_certificate_is_not_for_it(host, words, why):
    error = str(await refusal(node_of(host(*words), "asyncssh")))
    assert f") presents an invalid host certificate: {why} for host 127.0.0.1; have it renewed" in error


async def test_a_host_that_another_authority_certifies_shows_its_plain_key(host, tmp_path):
    server = host(authority=keygen(tmp_path / "other"))
    error = await refusal(node_of(server, "asyncssh"))
    assert isinstance(error, HostKeyRejected)
    assert (error.key, error.recorded) == (public(server.host_keys[0]), ())
    with server.known_hosts.open("a") as known:
        known.write(f"{error.host} {error.key}\n")
    async with opened(node_of(server, "asyncssh")):
        pass
