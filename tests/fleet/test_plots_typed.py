"""`gpus --plot` and `usage --plot` as they are typed, on simulated nodes."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from agentless import Cluster
from agentless.demo.fleet import NodePlan
from tests import ready
from tests.fleet.inhabited import inhabited
from tests.keyboard import at_terminal


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A task has run on two of the four GPUs of n1."""
    with inhabited(tmp_path_factory.mktemp("plots"), [NodePlan("n1", 4), NodePlan("n2", 1)]) as world:
        Cluster().submit("sleep", "4", target="n1::0,1", owner="ann").wait()
        yield world


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = ready.agentless(*words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    return done


def test_look(world):
    print(run("gpus", "--plot", "--since", "10s").stdout)
    print(run("gpus", "--plot", "n1::0", "--since", "10s").stdout)
    print(run("usage", "--plot", "--since", "10min").stdout)
    print(run("gpus", "n1::0,2", "n2").stdout)
    assert 0
