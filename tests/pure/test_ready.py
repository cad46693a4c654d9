"""A command or controller that tests fork is the one that a person starts: same answer, same end."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agentless.client.client import Client
from tests import ready
from tests.fleet.client import gone


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "HOME": str(tmp_path), "AGENTLESS_INVENTORY": str(tmp_path / "nowhere.yaml")}


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "--help"),
        ("inventory", "check"),
        *(pytest.param(words, marks=pytest.mark.slow) for words in (("--version",), ("sbumit",))),
    ],
)
def test_it_answers_and_ends_as_the_program_does(environment, tmp_path, words):
    own = subprocess.run(
        ["agentless", *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    forked = ready.agentless(*words, env=environment, cwd=tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (own.returncode, own.stdout, own.stderr)


def test_what_goes_wrong_inside_shows_its_traceback(environment):
    done = ready.agentless("--version", env=environment, cwd="/nowhere")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.fixture
def inhabited(environment, tmp_path):
    """With an inventory, of a node that nobody reaches."""
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("version: 1\nnodes: {n1: {host: 127.0.0.1, port: 1}}\n")
    folders = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "DATA", "CACHE")}
    return {**environment, **folders, "AGENTLESS_INVENTORY": str(inventory)}


def program(*words, env, cwd="."):
    return subprocess.run(["agentless", *words], env=env, cwd=cwd, capture_output=True, text=True, check=False)


def as_of(pid):
    """What of a process a controller's work could depend on."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    kept = [status[name] for name in ("Umask", "Uid", "Gid", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Groups")]
    streams = [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)]
    env = {*Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")} - {b""}
    words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")[1:-1]
    group = os.getsid(pid) == os.getpgid(pid) == pid
    return kept, streams, env, words, group, os.readlink(f"/proc/{pid}/cwd"), Path(f"/proc/{pid}/limits").read_text()


async def test_so_does_the_controller_that_it_starts(inhabited, tmp_path):
    seen = []
    for run in (program, ready.agentless):
        nodes = run("nodes", "--json", env=inhabited, cwd=tmp_path)
        pid = json.loads(run("controller", "status", "--json", env=inhabited).stdout)["pid"]
        seen.append((nodes.returncode, json.loads(nodes.stdout)[0]["name"], *as_of(pid)))
        run("controller", "stop", env=inhabited)
        assert await gone(pid)
        assert not Client(tmp_path / "state" / "agentless", None).is_running()
    own, forked = seen
    assert own == forked


def test_a_controller_that_cannot_start_says_so_too(inhabited, tmp_path):
    tmp_path.joinpath("inventory.yaml").write_text("version: 1\nnodes: {}\n")
    own, forked = (run("nodes", env=inhabited) for run in (program, ready.agentless))
    assert (own.returncode, own.stderr) == (forked.returncode, forked.stderr)
    assert "nodes: is empty" in own.stderr
