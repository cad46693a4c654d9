"""`agentless dashboard --web`: who gets in, and that no app outlives its visitor or its server.

A small app stands in for the dashboard; the server, its processes and its connections are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from tests.fleet.client import PATIENCE, gone, proc

LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=\S+")
PATHS = ("", "ws", "static/js/textual.js", "static/", "page/page.css", "download/x", "nowhere")
FOREIGN = ("http://evil.example", "http://127.0.0.1:1", "http://localhost:{}", "https://127.0.0.1:{}", "null", None)


class Visitor:
    """A browser, as far as the server sees it."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session, self.own, self.page = session, f"http://127.0.0.1:{port}", ""

    async def open(self, link: str) -> aiohttp.ClientResponse:
        answer = await self.session.get(link)
        self.page = str(answer.url)
        return answer

    def connect(self, origin: str | None = None, **options: object):
        return self.session.ws_connect(
            f"{self.page}ws?width=90&height=20", headers={"Origin": origin or self.own}, **options
        )


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
        return [app for app in self.apps() if Path(f"/proc/{app}").exists()]


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
async def visitors(served) -> AsyncIterator[Callable[[], Visitor]]:
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


async def ended(websocket: aiohttp.ClientWebSocketResponse) -> None:
    async with asyncio.timeout(PATIENCE):
        async for _ in websocket:
            pass


async def test_a_link_leads_to_the_dashboard(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "90 by 20")


async def test_what_is_typed_reaches_the_app(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "k"])
        await shown(websocket, "pressed k")


async def test_the_app_takes_the_size_of_the_browser(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "90 by 20")
        await websocket.send_json(["resize", {"width": 100, "height": 30}])
        await shown(websocket, "100 by 30")


@pytest.mark.parametrize(
    "message", ["", "[", "7", '["stdin", 7]', '["resize", {"width": "x"}]', '["stdin", "\\ud800"]']
)
async def test_a_message_that_means_nothing_ends_nothing(visitor, message):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_str(message)
        await websocket.send_json(["stdin", "k"])
        await shown(websocket, "pressed k")


async def test_a_link_works_once(served, visitor, visitors):
    assert (await (await visitors()).open(served.first_link)).status == 403


async def test_another_link_is_printed_when_enter_is_pressed(served, visitor, visitors):
    served.process.stdin.write(b"\n")
    assert (await (await visitors()).open(await served.link())).status == 200


async def test_the_token_is_gone_from_the_address(served, visitor):
    token = served.first_link.partition("=")[2]
    assert token not in visitor.page


async def test_without_the_cookie_there_is_nothing_but_a_sentence(visitor, visitors):
    stranger = await visitors()
    answers = [await stranger.session.get(visitor.page + path) for path in PATHS]
    answers += [await stranger.session.get(visitor.own + path) for path in ("/", "/?token=", "/?token=x", "/static/")]
    answers += [await stranger.session.request(method, visitor.page) for method in ("HEAD", "POST", "OPTIONS")]
    said = {(answer.status, await answer.text()) for answer in answers if answer.method != "HEAD"}
    assert {answer.status for answer in answers} == {403}
    assert len(said) == 1
    assert "press Enter" in next(iter(said))[1]


async def test_a_connection_needs_the_cookie(visitor, visitors):
    stranger = await visitors()
    stranger.page = visitor.page
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await stranger.connect()


@pytest.mark.parametrize("origin", FOREIGN)
async def test_no_page_but_our_own_may_connect(visitor, served, origin):
    headers = {"Origin": origin.format(served.port)} if origin else {}
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await visitor.session.ws_connect(f"{visitor.page}ws", headers=headers)


async def test_a_foreign_name_that_leads_here_gets_nothing(visitor, served):
    names = ("evil.example", f"evil.example:{served.port}", "")
    answers = [await visitor.session.get(visitor.page, headers={"Host": name}) for name in names]
    assert [answer.status for answer in answers] == [403] * 3


async def test_a_foreign_name_cannot_use_up_a_link(served, visitors):
    visitor = await visitors()
    await visitor.session.get(served.first_link, headers={"Host": "evil.example"})
    assert (await visitor.open(served.first_link)).status == 200


async def test_behind_a_forwarded_port_it_works_alike(visitor):
    forwarded = {"Host": "localhost:9", "Origin": "http://localhost:9"}
    page = await (await visitor.session.get(visitor.page, headers=forwarded)).text()
    assert 'url="ws://localhost:9/' in page
    async with visitor.session.ws_connect(f"{visitor.page}ws", headers=forwarded) as websocket:
        await shown(websocket, "counted")


async def test_the_cookie_is_for_no_script_no_other_site_and_no_other_port(served, visitors):
    answer = await (await visitors()).session.get(served.first_link, allow_redirects=False)
    words = answer.headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", f"Path={answer.headers['Location']}"} <= set(words)
    assert len(answer.headers["Location"]) > 20


async def test_the_page_and_what_it_loads_come_from_this_server_only(visitor):
    answer = await visitor.session.get(visitor.page)
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert {word for word in policy.split() if "//" in word} == {visitor.own.replace("http", "ws") + ";"}
    assert re.findall(r'(?:src|href)="(\w+:|/)', await answer.text()) == ["data:"]


async def test_a_page_is_neither_kept_nor_framed_nor_told_of(visitor):
    headers = (await visitor.session.get(visitor.page)).headers
    found = [headers[name] for name in ("Cache-Control", "X-Frame-Options", "Referrer-Policy")]
    assert found == ["no-store", "DENY", "no-referrer"]


async def test_neither_token_nor_session_is_in_an_argv_or_an_environment(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        words = "".join(
            proc(pid, name) for pid in (served.process.pid, *served.apps()) for name in ("cmdline", "environ")
        )
    secrets = [cookie.value for cookie in visitor.session.cookie_jar] + [served.first_link.partition("=")[2]]
    assert len(secrets) == 2
    assert not any(secret in words for secret in secrets)


async def test_what_the_app_hands_out_is_saved(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "d"])
        async with asyncio.timeout(PATIENCE):
            while (message := await websocket.receive()).type is not aiohttp.WSMsgType.TEXT:
                pass
        kind, key = json.loads(message.data)
        answer = await visitor.session.get(f"{visitor.own}/download/{key}")
        assert (kind, await answer.text()) == ("deliver_file_start", "what a task has said\n")
        assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''task%201.log"


async def test_who_comes_when_all_places_are_taken_is_told_so(visitor):
    async with visitor.connect() as one, visitor.connect() as two:
        await shown(one, "counted")
        await shown(two, "counted")
        async with visitor.connect() as three:
            await shown(three, "2 dashboards are open, and no more may be")
            await ended(three)


async def test_the_place_of_one_who_has_left_is_free_again(visitor):
    async with visitor.connect() as one, visitor.connect() as two:
        await shown(one, "counted")
        await shown(two, "counted")
        await two.close()
        async with visitor.connect() as three:
            await shown(three, "counted")


async def test_each_visitor_has_an_app_of_their_own(served, visitor):
    async with visitor.connect() as one, visitor.connect() as two:
        await shown(one, "counted")
        await shown(two, "counted")
        assert len(served.apps()) == 2


async def test_the_app_ends_with_the_connection(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
    assert await gone(*served.apps())


@pytest.mark.parametrize("heartbeat", [0.5])
async def test_the_app_ends_when_the_browser_falls_silent(served, visitor):
    async with visitor.connect(autoping=False) as websocket:
        await shown(websocket, "counted")
        (app,) = served.apps()
        assert await gone(app)


async def test_an_app_that_hangs_is_killed(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "h"])
        await shown(websocket, "hangs")
    assert await gone(*served.apps())


async def test_the_connection_ends_with_the_app(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "x"])
        await ended(websocket)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
async def test_a_signal_ends_the_server_and_all_apps(served, visitor, number):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        served.process.send_signal(number)
        said = (await served.process.stdout.read()).decode()
        assert (await served.process.wait(), "tasks go on" in said) == (0, True)
        assert served.living() == []


async def test_an_app_is_asked_to_end_before_it_is_killed(served, visitor, tmp_path):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        served.process.terminate()
        await served.process.wait()
        assert [path.read_text() for path in tmp_path.iterdir()] == ["ended by itself"]


async def test_a_server_that_ends_kills_an_app_that_hangs(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "h"])
        await shown(websocket, "hangs")
        served.process.terminate()
        await served.process.wait()
        assert served.living() == []


async def test_an_app_whose_server_was_killed_ends_by_itself(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        served.process.kill()
        assert await gone(*served.apps())


async def test_even_an_app_that_hangs_ends_when_its_server_was_killed(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "h"])
        await shown(websocket, "hangs")
        served.process.kill()
        assert await gone(*served.apps())


def agentless(inventory: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-m", "agentless", "-i", str(inventory), "dashboard", *words),
        env={**os.environ, "XDG_STATE_HOME": f"{inventory}.state"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def inventory(tmp_path) -> Path:
    path = tmp_path / "inventory.yaml"
    path.write_text("version: 1\nnodes: {node1: {host: 127.0.0.1}}\n")
    return path


def test_ctrl_c_ends_the_command_with_a_sentence(inventory):
    command = agentless(inventory, "--web")
    assert LINK.search(command.stdout.readline())
    while "Ctrl-C" not in command.stdout.readline():
        pass
    command.send_signal(signal.SIGINT)
    assert "The dashboard in the browser has ended" in command.communicate()[0]
    assert command.returncode == 0


def test_a_port_that_is_in_use_is_said(inventory):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = agentless(inventory, "--web", "--port", str(port))
        said = command.communicate()[1]
    assert said == f"agentless: port {port} is in use; choose another one, or leave out --port\n"
    assert command.returncode == 1


def test_that_there_is_no_inventory_is_said_at_once(tmp_path):
    command = agentless(tmp_path / "nowhere", "--web")
    said = command.communicate()[1]
    assert (command.returncode, "does not exist" in said) == (2, True)


def test_a_port_is_for_a_browser(inventory):
    command = agentless(inventory, "--port", "8000")
    said = command.communicate()[1]
    assert (command.returncode, said) == (2, "agentless: --port is the port for a browser; add --web\n")
