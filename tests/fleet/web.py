"""A server of the dashboard in a browser, and browsers as far as it sees them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import aiohttp
from yarl import URL

from tests.fleet.client import PATIENCE

LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=\S+")


class Visitor:
    """A browser, as far as the server sees it."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session, self.own, self.page = session, f"http://127.0.0.1:{port}", ""

    async def open(self, link: str) -> aiohttp.ClientResponse:
        answer = await self.session.get(link)
        self.page = str(answer.url)
        return answer

    def connect(self, place: str = ""):
        url = URL(f"{self.page}ws{place}?width=90&height=20", encoded=True)
        return self.session.ws_connect(url, headers={"Origin": self.own})


class Served:
    """The server's process, with what it prints, and the processes of the apps that it has started."""

    def __init__(self, process: asyncio.subprocess.Process, apps: Path) -> None:
        self.process, self._apps = process, apps

    async def link(self) -> str:
        async with asyncio.timeout(PATIENCE):
            while line := (await self.process.stdout.readline()).decode():
                if found := LINK.search(line):
                    self.port = int(found[1])
                    return found[0]
        raise AssertionError("no link was printed")

    def apps(self) -> list[int]:
        return [int(path.name) for path in self._apps.iterdir()]

    def living(self) -> list[int]:
        """Those that run; one that is dead may wait for its parent to take note."""
        stats = [Path(f"/proc/{app}/stat") for app in self.apps()]
        return [int(stat.parent.name) for stat in stats if stat.exists() and ") Z " not in stat.read_text()]


async def shown(websocket: aiohttp.ClientWebSocketResponse, text: str) -> None:
    """Wait until the app, or the server in its place, has drawn this."""
    data = b""
    async with asyncio.timeout(PATIENCE):
        async for message in websocket:
            if message.type is aiohttp.WSMsgType.BINARY:
                data += message.data
            if text.encode() in data:
                return
    raise AssertionError(f"{text!r} was never drawn, but {data[-500:]!r}")


async def told(websocket: aiohttp.ClientWebSocketResponse) -> object:
    """The next message that the page gets."""
    async with asyncio.timeout(PATIENCE):
        while (message := await websocket.receive()).type is not aiohttp.WSMsgType.TEXT:
            pass
    return json.loads(message.data)


async def ended(websocket: aiohttp.ClientWebSocketResponse) -> None:
    async with asyncio.timeout(PATIENCE):
        async for _ in websocket:
            pass
