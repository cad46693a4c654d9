"""Two simulated nodes, and a client of the first; a server of the dashboard in a browser, and its visitors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from agentless.client.client import Client as Controller
from agentless.demo.fleet import Fleet, NodePlan
from tests import ready
from tests.fleet.client import Client, connect, gone
from tests.fleet.desk import Desk
from tests.fleet.web import Served, Visitor


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
def environment(tmp_path: Path, desk: Desk) -> dict[str, str]:
    """That of whoever types."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "typed"), "AGENTLESS_INVENTORY": str(desk.inventory)}


@pytest.fixture
def agentless(tmp_path, fleet, desk, environment):
    """Type a command, which ends with this exit code; its stdout and stderr."""

    def type_(*words, code=0):
        done = ready.agentless(*words, env=environment, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    yield type_
    Controller(tmp_path / "typed" / "agentless", desk.inventory).post("/v1/controller/stop")


@pytest.fixture
def heartbeat() -> float:
    """Seconds; the visitors of these tests answer only while they listen."""
    return 60


@pytest.fixture
async def served(tmp_path, heartbeat) -> AsyncIterator[Served]:
    """A server for at most two visitors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fleet.web_server", str(tmp_path), "2", str(heartbeat)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    served = Served(process, tmp_path)
    try:
        yield served
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
        for app in served.apps():
            assert await gone(app)


@pytest.fixture
async def visitors(served) -> AsyncIterator[Callable[[], Awaitable[Visitor]]]:
    """Makes visitors, who have nothing in common."""
    async with contextlib.AsyncExitStack() as stack:
        served.first_link = await served.link()

        async def visitor() -> Visitor:
            jar = aiohttp.CookieJar(unsafe=True)  # "unsafe" is to keep cookies of an address that has no name
            session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
            return Visitor(session, served.port)

        yield visitor


@pytest.fixture
async def visitor(served, visitors) -> Visitor:
    """One who has come in by the first link."""
    visitor = await visitors()
    answer = await visitor.open(served.first_link)
    assert answer.status == 200
    return visitor
