"""Two simulated nodes, and a client of the first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

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
