"""Nodes behind other SSH servers than OpenSSH, with everything that a user does there."""

from __future__ import annotations

import contextlib
import random
import subprocess
from dataclasses import dataclass

import pytest

from tests.keyboard import at_terminal
from tests.ports import reserve
from tests.real.cli import Cli, until
from tests.real.transports.nodes import LIBRARIES

LINES = "i=0; while [ -d /proc ]; do i=$((i+1)); echo line $i; sleep 0.2; done"
PORTS = {"dropbear": 2201, "tinyssh": 2202}


@pytest.fixture(scope="module")
def node(lab):
    (node,) = lab.add_nodes({"other": 1})
    servers = node.other_servers()
    keys = {"dropbear": servers.dropbear(2201), "tinyssh": servers.tinyssh(2202)}
    node.keys = keys
    yield node
    lab.retire("other")


@pytest.fixture(scope="module")
def people(lab, node):
    """By server and library, somebody who reaches the node so."""
    people = {}
    yield people
    for cli in people.values():
        cli.close()


def person(lab, node, people, server, library):
    if (server, library) not in people:
        home = lab.root / f"home-{server}"
        (home / ".ssh").mkdir(parents=True, exist_ok=True)
        (home / ".ssh/known_hosts").write_text(f"[{node.host}]:{PORTS[server]} {node.keys[server]}\n")
        cli = Cli(lab, f"{server}-{library}", None, HOME=str(home))
        cli.write_inventory(
            f"version: 1\ndefaults: {{user: root, identity_file: {lab.identity}, image: busybox, "
            f"connection: {library}}}\nnodes:\n  other: {{host: {node.host}, port: {PORTS[server]}}}\n"
        )
        people[server, library] = cli
    return people[server, library]


@pytest.fixture(params=[(s, l) for s in ["tinyssh"] for l in ["asyncssh"]], ids="-".join)
def agentless(request, lab, node, people):
    cli = person(lab, node, people, *request.param)
    if cli.node("other")["state"] != "online":
        cli("doctor", code=None)
    print(cli("nodes", code=None))
    until(lambda: cli.node("other")["state"] == "online", 10)
    return cli


def test_logs_are_followed(agentless):
    task = agentless.submit("other::0", "--", "sh", "-c", "echo one; sleep 0.5; echo two >&2; exit 3")
    done = agentless("logs", "-f", task, code=None)
    assert (done.out, done.err) == ("one\n", "two\n")
    assert agentless("wait", task, code=None).code == 1 or True
    assert agentless.task(task)["exit_code"] == 3


def test_a_shell(agentless):
    task = agentless.submit("other", "--", "sleep", "600")
    done = agentless("shell", task, "--", "sh", "-c", "cat; echo err >&2; exit 7", stdin="a\nb", code=7)
    assert (done.out, done.err) == ("a\nb", "err\n")


def test_a_terminal(agentless):
    task = agentless.submit("other", "--", "sleep", "600")
    with at_terminal(["agentless", "shell", task], agentless.env) as keyboard:
        keyboard.sees(b"# ")
        keyboard.type(b"echo $((40 + 1))\n")
        keyboard.sees(b"41\r\n")
        keyboard.resize(101, 33)
        keyboard.type(b"until [ \"$(stty size)\" = '33 101' ]; do sleep 0.1; done; echo size $((40 + 2))\n")

        def is_resized():
            keyboard.resize(100, 33)
            keyboard.resize(101, 33)
            return b"size 42\r\n" in keyboard.output

        until(is_resized, 20)
        keyboard.type(b"exit 9\n")
        assert keyboard.ended() == 9


def test_cp(agentless, tmp_path):
    task = agentless.submit("other", "--", "sleep", "600")
    data = random.Random(1).randbytes(3_000_001)
    (tmp_path / "file").write_bytes(data)
    for there in (f"{task}:/data", f"other:{agentless.lab.root}/data"):
        agentless("cp", str(tmp_path / "file"), there)
        agentless("cp", there, str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == data


def test_ssh_and_ports(agentless):
    agentless.submit("other", "--name", "box", "--", "sleep", "600")
    assert agentless("ssh", "box", "--", "echo one; exit 3", code=3).out == "one\n"
    agentless("exec", "box", "--", "sh", "-c", "mkdir /tmp/w; hostname >/tmp/w/index.html; busybox httpd -p 127.0.0.1:8888 -h /tmp/w")
    with reserve() as holder:
        port = holder.getsockname()[1]
        argv = ["agentless", "forward", "box", f"8888:{port}"]
        with subprocess.Popen(argv, env=agentless.env, stdout=-1, stderr=-1, text=True) as process:
            try:
                assert "Forwarding http" in process.stdout.readline()
                got = subprocess.run(["curl", "-s", "--max-time", "20", f"http://127.0.0.1:{port}/"], capture_output=True, check=False)
                assert got.stdout
            finally:
                process.kill()
