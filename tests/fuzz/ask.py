"""One request to an ASGI app, by somebody who soon has enough of waiting."""

from __future__ import annotations

import asyncio
import contextlib
import json
import traceback
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

ENOUGH = 0.3
"""Seconds after which the caller hangs up."""
ENDED_WITHIN = 20.0
"""Seconds within which whatever goes on for somebody who has hung up has to be over."""


@dataclass(frozen=True)
class Answer:
    """Its status, None without one; and what is wrong with it."""

    status: int | None
    problem: str = ""


async def ask(app: Any, request: Any, *, cancel: bool) -> Answer:
    """Ask; with `cancel` it may go on for as long as it was asked to, and is ended."""
    status, body, gone, sent = None, b"", asyncio.Event(), False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            given = request.body or b""
            return {"type": "http.request", "body": given.encode() if isinstance(given, str) else given}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        elif len(body) < 10_000:
            body += message.get("body", b"")

    url = urlsplit(request.url)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote(url.path),
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "headers": [(name.lower().encode("latin-1"), _bytes(value)) for name, value in request.headers.items()],
        "client": ("", 0),
        "server": ("controller", None),
        "state": {},
    }
    work = asyncio.create_task(app(scope, receive, send))
    await asyncio.wait({work}, timeout=ENOUGH)
    gone.set()
    if cancel:
        await asyncio.wait({work}, timeout=ENOUGH)
    else:
        await asyncio.wait({work}, timeout=ENDED_WITHIN)
    if not work.done():
        work.cancel()
        await asyncio.wait({work})
        return Answer(status, "" if cancel else f"goes on {ENDED_WITHIN:.0f} s after the caller has hung up")
    if not work.cancelled() and (error := work.exception()):
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Answer(
            status, f"{type(error).__name__}: {error} (in {place.filename.rpartition('/')[2]}:{place.lineno})"
        )
    return Answer(status, _judged(status, body))


def _judged(status: int | None, body: bytes) -> str:
    """An error on purpose has a sentence. That of a node, whose engine has failed, is 500 as well (exit code 1)."""
    if status is None:
        return "no answer"
    if status < 500:
        return ""
    with contextlib.suppress(ValueError):
        answer = json.loads(body)
        if set(answer) == {"error", "message", "exit_code"} and answer["error"] in ("RuntimeFailed", "CopyFailed"):
            return ""
    return f"{status}: {body[:200].decode(errors='replace')}"


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")
