"""Who enters a VPS over the controller of somebody else: OpenSSH's own keys, two controllers, one node."""

from __future__ import annotations

import json
import socket
import subprocess

import pytest

from agentless.client.http import RequestFailed
from tests.real.cli import Cli, until
from tests.real.test_ssh import Ssh


@pytest.fixture
def guest(lab):
    """Somebody else, who reaches the same nodes."""
    other = Cli(lab, "other").settle()
    yield other
    other.close()


@pytest.fixture
def ssh(guest, tmp_path):
    """The guest's ssh."""
    return Ssh(guest, tmp_path)


@pytest.fixture(autouse=True)
def _gone(agentless):
    yield
    for each in agentless.get("/v1/vps"):
        agentless("vps", "rm", each["name"], "--force", "--yes")


@pytest.fixture
def key(tmp_path):
    """Makes a key of the guest's; the file of the public one ends in .pub."""

    def make(name, *words):
        file = tmp_path / name
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", name, "-f", str(file), *words], check=True)
        return str(file)

    return make


def seen(guest, name):
    """Wait until the guest's controller has seen the VPS; gives its id."""
    return until(lambda: next((each["id"] for each in guest.get("/v1/tasks") if each["name"] == name), None))


def port_of(cli, host):
    """What is answered to `agentless forward` when somebody connects."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(cli.state / "ssh.sock"))
        connection.sendall(json.dumps({"host": host, "port": 8888}).encode() + b"\n")
        return connection.recv(4096).decode()


def test_who_has_a_listed_key_enters_and_others_learn_whose_it_is(agentless, guest, ssh, key):
    alice, bob, eve = key("alice", "-t", "ed25519"), key("bob", "-t", "ecdsa"), key("eve", "-t", "ed25519")
    with open(bob + ".pub") as file:
        words = ("--public-key-file", alice + ".pub", "--public-key-string", file.read())
    agentless("vps", "create", "dev", "node1", *words)
    task = seen(guest, "dev")
    for file in (alice, bob):
        assert ssh("-i", file, "dev.agentless", "hostname").stdout == b"dev\n"
    assert ssh("-i", eve, "-i", alice, f"{task}.agentless", "hostname").stdout == b"dev\n"
    for words in (("-i", eve), ("-o", "IdentityFile=none")):
        refused = ssh(*words, "dev.agentless", "hostname", code=255)
        owner = agentless.task("dev")["owner"]
        assert f"VPS dev of {owner} admits only listed keys" in refused.stderr.decode()
        assert b"--public-key-file" in refused.stderr
        assert refused.stdout == b""
    assert "ssh -N -L" in port_of(guest, "dev")
    assert Ssh(agentless, ssh.folder)("dev.agentless", "hostname").stdout == b"dev\n"
    for words in (("show", task), ("vps", "show", "dev")):
        shown = (guest if words[0] == "show" else agentless)(*words).out
        for file in (alice, bob):
            listed = subprocess.run(["ssh-keygen", "-lf", file + ".pub"], capture_output=True, text=True, check=True)
            assert listed.stdout.strip() in shown


def test_without_a_list_nobody_else_enters_and_no_ssh_keeps_the_owner_out_too(agentless, guest, ssh, key):
    alice = key("alice", "-t", "ed25519")
    agentless("vps", "create", "mine", "node1")
    agentless("vps", "create", "shut", "node1", "--no-ssh")
    agentless.submit("node1", "--name", "plain", "--", "sleep", "600")
    assert seen(guest, "mine")
    assert seen(guest, "plain")
    assert b"VPS mine of " in (refused := ssh("-i", alice, "mine.agentless", "true", code=255).stderr)
    assert b"--public-key-file" in refused
    assert ssh("plain.agentless", "echo in").stdout == b"in\n"
    assert "--no-ssh" in port_of(agentless, "shut")
    for cli in (agentless, guest):
        words = Ssh(cli, ssh.folder)("shut.agentless", "true", code=255).stderr
        assert b"no ssh and no forwarded ports (--no-ssh)" in words
        assert b"agentless shell" in words
        assert cli("exec", "shut", "--", "hostname").out == "shut\n"


@pytest.mark.slow
def test_it_is_found_by_a_controller_that_the_guests_ssh_has_started(agentless, guest, ssh, key):
    alice = key("alice", "-t", "ed25519")
    agentless("vps", "create", "dev", "node1", "--public-key-file", alice + ".pub")
    guest("controller", "stop")
    assert ssh("-i", alice, "dev.agentless", "hostname").stdout == b"dev\n"


def test_a_request_with_what_is_no_key_is_a_sentence(agentless):
    spec = {"command": [], "name": "dev", "public_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}
    with pytest.raises(RequestFailed, match="this is a private key"):
        agentless.client.post("/v1/vps", {"targets": ["node1"], "spec": spec})
    assert agentless.get("/v1/vps") == []


@pytest.mark.slow
def test_restart_and_restore_keep_the_keys(agentless, guest, ssh, key):
    alice = key("alice", "-t", "ed25519")
    agentless("vps", "create", "dev", "node1", "--public-key-file", alice + ".pub")
    agentless("vps", "restart", "dev", "--grace", "1")
    until(lambda: guest.task("dev")["state"] == "running")
    assert ssh("-i", alice, "dev.agentless", "hostname").stdout == b"dev\n"
    agentless("vps", "snapshot", "dev")
    agentless("vps", "restore", "dev", "1", "--yes")
    restored = agentless.get("/v1/vps/dev")["id"]
    until(lambda: any(each["id"] == restored and each["state"] == "running" for each in guest.get("/v1/tasks")))
    assert ssh("-i", alice, f"{restored}.agentless", "hostname").stdout == b"dev\n"
    assert "alice" in agentless("vps", "show", "dev").out


def test_python_lists_keys_as_the_command_line_does(agentless, key):
    alice = key("alice", "-t", "ed25519") + ".pub"
    agentless.python(
        "from agentless import Cluster\n"
        f"file = {alice!r}\n"
        "Cluster().vps.create('dev', target='node1', public_key_file=file, public_key_string=open(file).read())"
    )
    with open(alice) as file:
        spec = agentless.get(f"/v1/tasks/{agentless.get('/v1/vps/dev')['id']}/spec")
        assert spec["public_keys"] == [file.read().strip()]
