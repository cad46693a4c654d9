"""Requests with a body of at most so many bytes, for all routes that read it as a whole."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from agentless.model.units import format_size

MAX_BODY = 64 << 20
"""Bytes. A sweep of 10,000 tasks with long commands has some ten million."""


class TooLarge(HTTPException):
    """The body of a request is too large. FastAPI lets no other kind of error through from here."""

    def __init__(self) -> None:
        super().__init__(400, f"the request has more than {format_size(MAX_BODY)}; send less at a time")


class _Bounded(Request):
    async def body(self) -> bytes:
        """All of it."""
        if not hasattr(self, "_body"):
            read = bytearray()
            async for chunk in self.stream():
                read += chunk
                if len(read) > MAX_BODY:
                    raise TooLarge
            self._body = bytes(read)
        return self._body


class BoundedRoute(APIRoute):
    """A route whose body is bounded; what a route reads as a stream, it bounds itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of FastAPI, asked with the bounded request."""
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(_Bounded(request.scope, request.receive))

        return bounded
