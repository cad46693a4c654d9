"""The TCP port for Prometheus: open if the inventory says so; serves only `/metrics`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from agentless.controller.http.server import Server
from agentless.inventory.inventory import Inventory
from agentless.model.address import Address


def only_metrics(scrape: Callable[[], Awaitable[Response]]) -> ASGIApp:
    """An app that answers `GET /metrics` and has nothing else."""

    async def metrics(_: Request) -> Response:
        return await scrape()

    return Starlette(routes=[Route("/metrics", metrics)])


class MetricsPort:
    """Serves an app on the address that is wanted. `trouble` is why it cannot, in words."""

    def __init__(self, app: ASGIApp) -> None:
        self.trouble: str | None = None
        self._app = app
        self._wanted: Address | None = None
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def on_inventory(self, inventory: Inventory) -> None:
        """Serve on its address from now on."""
        await self._follow(inventory.metrics)

    async def close(self) -> None:
        """Serve nowhere."""
        await self._follow(None)

    async def _follow(self, wanted: Address | None) -> None:
        if wanted != self._wanted:
            self._wanted, self.trouble = wanted, None
            await self._let_go()
            self.tick()

    def tick(self) -> None:
        """Try to have the port, unless it is had or nobody wants one."""
        if self._wanted is None or self._serving is not None:
            return
        family = socket.AF_INET6 if ":" in self._wanted.host else socket.AF_INET
        try:
            listener = socket.create_server((self._wanted.host, self._wanted.port), family=family)
        except OSError as error:
            self.trouble = (
                f"cannot serve metrics on {self._wanted}: {error.strerror}; free the address, or change it under "
                "metrics: in the inventory"
            )
            return
        self.trouble = None
        self._server = Server(self._app)
        self._serving = asyncio.create_task(
            self._server.serve(sockets=[listener]), name=(f"serving metrics on {self._wanted}")
        )

    async def _let_go(self) -> None:
        server, serving = self._server, self._serving
        self._server = self._serving = None
        if server and serving:
            server.ask_to_leave()
            await asyncio.gather(serving, return_exceptions=True)
