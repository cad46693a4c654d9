"""An answer that reports progress in lines of JSON, while the body of the request may still come in.

The lines are `say` with a `text`, `output` of a build, `progress` as in `model/images/transfer`, and as the last one
either `done` with the result, or `error`. A client that disconnects cancels the work, where that breaks nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import orjson
from fastapi import Response
from starlette.types import Receive, Scope, Send

from agentless.controller.envs.envs import Tell
from agentless.errors import AgentlessError
from agentless.remote.concurrency import cancel

_log = logging.getLogger(__name__)
Work = Callable[[Tell, AsyncIterator[bytes]], Awaitable[dict[str, Any]]]


class ProgressResponse(Response):
    """The progress of some work, which is given how to report it, and the body of an `upload`."""

    def __init__(self, work: Work, *, upload: bool = False) -> None:
        super().__init__(media_type="application/x-ndjson")
        self._work, self._upload = work, upload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Do the work, and send each line at once."""
        del scope
        lines: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        body = _Body(receive, ended=not self._upload)
        working = asyncio.create_task(self._run(lines, body.chunks()))
        leaving = asyncio.create_task(body.gone())
        leaving.add_done_callback(lambda _: working.cancel())
        try:
            headers = [(b"content-type", b"application/x-ndjson")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while (line := await lines.get()) is not None:
                await send({"type": "http.response.body", "body": orjson.dumps(line) + b"\n", "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await cancel(leaving, working)

    async def _run(self, lines: asyncio.Queue[Mapping[str, Any] | None], body: AsyncIterator[bytes]) -> None:
        try:
            lines.put_nowait({"kind": "done", **await self._work(lines.put_nowait, body)})
        except AgentlessError as error:
            lines.put_nowait({"kind": "error", **error.published()})
        except Exception as error:  # noqa: BLE001 - the client gets it, and the log has all of it
            _log.exception("unexpected error in a request")
            words = {
                "error": "ControllerError",
                "message": f"unexpected error in agentless: {error!r}; please report this",
            }
            lines.put_nowait({"kind": "error", **words, "exit_code": 1})
        finally:
            lines.put_nowait(None)


class _Body:
    """The body of a request, and whether its client is still connected."""

    def __init__(self, receive: Receive, *, ended: bool) -> None:
        self._receive = receive
        self._ended = asyncio.Event()
        self._left = asyncio.Event()
        if ended:
            self._ended.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Never ends if the client disconnects in the middle, which cancels everything."""
        more = not self._ended.is_set()
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                self._left.set()
                await asyncio.Event().wait()
            more = message.get("more_body", False)
            yield message.get("body", b"")
        self._ended.set()

    async def gone(self) -> None:
        """Return when the client has disconnected."""
        ended, left = asyncio.create_task(self._ended.wait()), asyncio.create_task(self._left.wait())
        try:
            await asyncio.wait({ended, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            left.cancel()
        while not self._left.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return
