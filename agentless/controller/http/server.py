"""An HTTP server in the controller's event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp


class Server(uvicorn.Server):
    """Serves an app on sockets that are bound already, until it is asked to leave."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2, server_header=False
            )
        )

    def ask_to_leave(self) -> None:
        """End, once the answers under way are out."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the controller's: uvicorn would raise them again after its end."""
        yield
