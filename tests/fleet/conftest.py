"""Two simulated nodes, and a client of the first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentless.client import Client as Controller
from agentless.demo.fleet import Fleet, NodePlan
from tests.fleet.client import Client, connect
from tests.fleet.desk import Desk


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with Fleet(tmp_path / "fleet", [NodePlan("n1", 4), NodePlan("n2", 1, foreign=True)]) as fleet:
        yield fleet


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[Client]:
    async with connect(fleet, "n1") as client:
        yield client


@pytest.fixture
def desk(tmp_path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Desk:
    config = tmp_path / "config" / "agentless"
    config.mkdir(parents=True)
    (config / "known_hosts").write_bytes(fleet.known_hosts.read_bytes())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Desk(tmp_path / "desk", fleet)


@pytest.fixture
def agentless(tmp_path, fleet, desk):
    """Type a command, which ends with this exit code; its stdout and stderr."""
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "typed"),
        "AGENTLESS_INVENTORY": str(desk.inventory),
    }

    def type_(*words, code=0):
        command = [sys.executable, "-m", "agentless", *words]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    yield type_
    Controller(tmp_path / "typed" / "agentless", desk.inventory).post("/v1/controller/stop")
