"""A visitor: an app process of their own, which lives as long as the connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

ENDING = 3.0
"""Seconds for an app to end when it is asked to; then it is killed."""
_STALLED = 10.0
"""Seconds for an app to take what was typed; then it is taken to hang."""
PATH = 512
"""Characters of a path: a page may ask for any."""
_CELLS = 1000
"""The most columns or lines: the app keeps each cell in memory, and a page may ask for any number."""


class Visit(AppService):
    """textual-serve's app process, but without a shell, with a certain end, and below our own path.

    `folder` is where the page is served; see `Authentication`. `place` is the path below it that was asked for.
    """

    def __init__(
        self,
        command: Sequence[str],
        websocket: web.WebSocketResponse,
        downloads: DownloadManager,
        *,
        folder: str,
        place: str,
    ) -> None:
        super().__init__(
            shlex.join(command),
            write_bytes=self._show,
            write_str=self._tell,
            close=self._close,
            download_manager=downloads,
        )
        self._words, self._websocket = tuple(command), websocket
        self._folder, self._place = folder, _path(place)

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """Start the command without a shell, in its own session: Ctrl-C in the terminal is for the server."""
        environment = {
            **self._build_environment(_bounded(width), _bounded(height)),
            "TEXTUAL_DRIVER": "agentless.web.driver:Driver",
            "AGENTLESS_PLACE": self._place,
        }
        self._process = process = await asyncio.create_subprocess_exec(
            *self._words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
        )
        self._stdin = process.stdin
        return process

    async def run(self) -> None:
        """Show the output of the app until it ends in any way, then close the connection."""
        try:
            await super().run()
        finally:
            await self._close()

    async def end(self) -> None:
        """Ask the app to end, and wait. After `ENDING`, or if this is cancelled, it is killed."""
        killing = asyncio.get_running_loop().call_later(ENDING, self._kill)
        try:
            await self.stop()
            if self._process:  # its output has ended, so it ends now
                await asyncio.wait_for(self._process.wait(), ENDING)
        except TimeoutError:
            pass
        finally:
            killing.cancel()
            if self._process and self._process.returncode is None:
                self._kill()

    async def take(self, message: str) -> None:
        """Pass on a message of the page, in the protocol of textual.js; unknown ones are ignored.

        Raises TimeoutError if the app does not take it.
        """
        async with asyncio.timeout(_STALLED):
            match _read(message):
                case ["stdin", str(typed)]:
                    await self.send_bytes(typed.encode(errors="replace"))
                case ["resize", {"width": int(width), "height": int(height)}]:
                    await self.set_terminal_size(_bounded(width), _bounded(height))
                case ["ping", str(sent)]:
                    await self._tell(json.dumps(["pong", sent]))
                case ["place", str(path)]:
                    await self.send_meta({"type": "place", "path": _path(path)})
                case ["focus"]:
                    await self.focus()
                case ["blur"]:
                    await self.blur()

    def _kill(self) -> None:
        """Kill the app and its process group."""
        with contextlib.suppress(ProcessLookupError):
            if self._process:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def on_meta(self, data: bytes) -> None:
        """Pass on what the app says; textual-serve knows nothing of places."""
        match _read(data):
            case {"type": "place", **place}:
                await self._tell(json.dumps(["place", place]))
            case _:
                await super().on_meta(data)

    async def _show(self, data: bytes) -> None:
        """Send output to the page. Without a page it is still read, or the app could not end."""
        with contextlib.suppress(ConnectionResetError):
            await self._websocket.send_bytes(data)

    async def _tell(self, text: str) -> None:
        """Send a message to the page. A download is below `folder`; textual.js would ask for it outside."""
        match _read(text):
            case ["deliver_file_start", key]:
                text = json.dumps(["deliver_file_start", f"..{self._folder}download/{key}"])
        with contextlib.suppress(ConnectionResetError):
            await self._websocket.send_str(text)

    async def _close(self) -> None:
        await self._websocket.close()


def _read(message: str | bytes) -> object:
    try:
        return json.loads(message)
    except (ValueError, RecursionError):
        return None


def _bounded(cells: int) -> int:
    return min(max(cells, 1), _CELLS)


def _path(words: str) -> str:
    """A path that can be in an environment; one that is too long or strange leads nowhere."""
    return words if len(words) <= PATH and words.isascii() and words.isprintable() else "/?"
