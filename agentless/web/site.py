"""The web application: the page, its files, the connection to an app, and downloads from it.

textual-serve has the terminal for the page and the protocol of the app. Its own server has no authentication and no
limits, and its page loads a font from elsewhere, so the server and the page are ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import string
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import textual_serve
from aiohttp import WSMsgType, web
from textual_serve.download_manager import DownloadManager

from agentless.web.authentication import Authentication, is_loopback, is_own_page
from agentless.web.visit import ENDING, Visit

_COOKIE = "agentless"
_PAGE = Path(__file__).parent / "page"
_STATIC = Path(textual_serve.__file__).parent / "static"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_PAGE_POLICY = (
    _HEADERS["Content-Security-Policy"]
    + "; script-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self' ws://$host"
    + "; style-src 'self' 'unsafe-inline'"  # the terminal writes the colours of its cells as a style
)
_REFUSAL = (
    "Access denied. Open the link that agentless dashboard --web printed: it works once, within 10 minutes."
    " For a new link, press Enter in that terminal.\n"
)
_FULL = "{} dashboards are open, the maximum. Close one, then reload this page."

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """The web application and its open visits: at most `visitors`, each with a process.

    A browser that has not answered for one and a half times `heartbeat` seconds is gone.
    """

    def __init__(self, command: Sequence[str], auth: Authentication, *, visitors: int, heartbeat: float) -> None:
        self._command, self._auth = command, auth
        self._visitors, self._heartbeat = visitors, heartbeat
        self._places = asyncio.Semaphore(visitors)
        self._visits: set[Visit] = set()
        self._downloads = DownloadManager()

    def application(self) -> web.Application:
        """The routes behind the guard, below a folder whose name nobody can guess, see `Authentication`."""
        application = web.Application(middlewares=[self._guard])
        folder = self._auth.folder
        application.router.add_get(f"{folder}ws{{place:(/.*)?}}", self._visit)
        application.router.add_get(f"{folder}download/{{key}}", self._download)
        application.router.add_static(f"{folder}page", _PAGE)
        application.router.add_static(f"{folder}static", _STATIC)
        application.router.add_get(f"{folder}{{place:.*}}", self._page)  # the app says which there are
        application.on_response_prepare.append(_add_headers)
        return application

    async def close(self) -> None:
        """End all visits and their processes."""
        await asyncio.gather(*(visit.end() for visit in self._visits), return_exceptions=True)

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        if not is_loopback(host):
            return _refused()
        if request.method == "GET" and "token" in request.query:
            return self._enter(request.query["token"], request.rel_url.raw_path)
        if not self._auth.is_in(request.cookies.get(_COOKIE, "")):
            return _refused()
        if "Upgrade" in request.headers and not is_own_page(request.headers.get("Origin"), host):
            return _refused()
        return await handler(request)

    def _enter(self, token: str, path: str) -> web.Response:
        """Open a session for a token, at the place that was asked for.

        The redirect keeps the token out of the address bar and the history.
        """
        session = self._auth.exchange(token, time.monotonic())
        if session is None:
            return _refused()
        place = path.removeprefix(self._auth.folder).lstrip("/")
        response = web.Response(status=303, headers={"Location": f"{self._auth.folder}{place}"})
        response.set_cookie(_COOKIE, session, path=self._auth.folder, httponly=True, samesite="Strict")
        return response

    async def _page(self, request: web.Request) -> web.Response:
        host = request.headers["Host"]
        page = string.Template((_PAGE / "index.html").read_text())
        return web.Response(
            text=page.substitute(folder=self._auth.folder, websocket=f"ws://{host}{self._auth.folder}ws"),
            content_type="text/html",
            headers={"Content-Security-Policy": string.Template(_PAGE_POLICY).substitute(host=host)},
        )

    async def _visit(self, request: web.Request) -> web.WebSocketResponse:
        """Run an app for the time of the connection. One above the limit waits a little: a reload leaves first."""
        websocket = web.WebSocketResponse(heartbeat=self._heartbeat, timeout=1.0)
        try:
            await websocket.prepare(request)
        except ConnectionResetError:  # the browser has left already
            return websocket
        try:
            async with asyncio.timeout(ENDING):
                await self._places.acquire()
        except TimeoutError:
            await _close(websocket, _FULL.format(self._visitors))
            return websocket
        folder = self._auth.folder
        place = request.rel_url.raw_path.removeprefix(f"{folder}ws")  # as it is in the address bar
        visit = Visit(self._command, websocket, self._downloads, folder=folder, place=place)
        self._visits.add(visit)
        try:
            await _stay(visit, websocket, _cells(request, "width", 80), _cells(request, "height", 24))
        finally:
            self._visits.discard(visit)
            self._places.release()
        return websocket

    async def _download(self, request: web.Request) -> web.StreamResponse:
        """Send a file of the app, to be saved and never shown: its content may be anything."""
        key = request.match_info["key"]
        try:
            found = await self._downloads.get_download_metadata(key)
        except KeyError:
            raise web.HTTPNotFound from None
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.file_name, safe='')}",
            }
        )
        await response.prepare(request)
        async for chunk in self._downloads.download(key):
            await response.write(chunk)
        await response.write_eof()
        return response


async def _stay(visit: Visit, websocket: web.WebSocketResponse, width: int, height: int) -> None:
    try:
        await visit.start(width, height)
        async for message in websocket:
            if message.type is WSMsgType.TEXT:
                await visit.take(message.data)
    except TimeoutError:
        await _close(websocket, "The dashboard stopped responding. Reload this page.")
    except OSError as error:
        await _close(websocket, f"The dashboard could not start: {error.strerror}.")
    finally:
        await visit.end()


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = "agentless"


async def _close(websocket: web.WebSocketResponse, sentence: str) -> None:
    with contextlib.suppress(ConnectionResetError):
        await websocket.send_bytes(f"\x1b[2J\x1b[H{sentence}".encode())  # on an empty screen
        await websocket.close()


def _refused() -> web.Response:
    return web.Response(status=403, text=_REFUSAL)


def _cells(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else default
