"""A port of this machine that leads to a port of a task, for a program that does something else meanwhile."""

from __future__ import annotations

import atexit
import contextlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self

from agentless.client.client import Client
from agentless.errors import Refused, UsageError

if TYPE_CHECKING:
    import asyncio

_TRIES = 5
"""Free ports that are tried: another program may take one before we do."""


class ForwardedPort:
    """A forwarded port: `port` of this machine leads to port `there` of the task until it is closed.

    It listens on loopback only. Each connection reaches the task anew, so it goes on when the task is retried or the
    controller restarts. Use it in a `with` block, or call `close`.
    """

    def __init__(self, port: int, there: int, url: str, close: Callable[[], None]) -> None:
        self.port, self.there, self.url = port, there, url
        self._close = close

    def __repr__(self) -> str:
        return f"ForwardedPort({self.url!r}, there={self.there})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it with all its connections. A second time does nothing."""
        self._close()


def forward_port(client: Client, task: str, there: int, here: int | None, tell: Callable[[str], None]) -> ForwardedPort:
    """Forward a port in a thread. `here` None: the same number if it is free, else any free port.

    `tell` is called in that thread with why a connection failed. Raises UsageError for what is no port, and Refused if
    the port is taken.
    """
    for port in (there, here):
        if port is not None and not 0 < port < 65536:
            raise UsageError(f"{port} is no port; use a number from 1 to 65535")
    if here is not None:
        return _listening(client, task, there, here, tell)
    with contextlib.suppress(Refused):
        return _listening(client, task, there, there, tell)
    for _ in range(_TRIES - 1):
        with contextlib.suppress(Refused):
            return _listening(client, task, there, _free_port(), tell)
    return _listening(client, task, there, _free_port(), tell)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _listening(client: Client, task: str, there: int, here: int, tell: Callable[[str], None]) -> ForwardedPort:
    import asyncio  # noqa: PLC0415 - whoever forwards no port needs none of it

    from agentless.client.ssh.forward import HOST, Forward, Ports  # noqa: PLC0415

    def tell_in_time(words: str) -> None:
        if threading.main_thread().is_alive():  # else the program ends
            tell(words)

    ready: Future[asyncio.AbstractEventLoop] = Future()
    forward = Forward(*client.state_and_inventory, task, tell_in_time)

    async def forward_until_closed() -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(asyncio.CancelledError):
            await forward.run([Ports(there, here)], lambda: ready.set_result(loop))

    def run() -> None:
        try:
            asyncio.run(forward_until_closed())
        except BaseException as error:  # noqa: BLE001 - the other thread raises it
            if not ready.done():
                ready.set_exception(error)

    thread = threading.Thread(target=run, name=f"agentless forward {there}", daemon=True)
    thread.start()
    loop = ready.result()

    def close() -> None:
        atexit.unregister(close)
        with contextlib.suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(lambda: [each.cancel() for each in asyncio.all_tasks(loop)])
        thread.join()

    atexit.register(close)
    return ForwardedPort(here, there, f"http://{HOST}:{here}", close)
