"""A port of this machine that leads to a port of a task, for a program that does something else meanwhile."""

from __future__ import annotations

import atexit
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from agentless.client.client import Client
from agentless.errors import Refused
from agentless.model.tasks.port import Port, check_ports

if TYPE_CHECKING:
    from agentless.client.ssh.forward import Forward, Listener

_TRIES = 5
"""Free ports that are tried: another program may take one before we do."""


class ForwardedPort:
    """A forwarded port: `port` of this machine leads to port `there` of the task until it is closed.

    It listens on loopback only. Each connection reaches the task anew, so it goes on when the task is retried or the
    controller restarts. Use it in a `with` block, or call `close`.
    """

    def __init__(self, port: Port, url: str, close: Callable[[], None]) -> None:
        self.port, self.there, self.url = port.local, port.port, url
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
    from agentless.client.ssh.forward import HOST, Forward  # noqa: PLC0415 - whoever forwards nothing needs no asyncio

    def tell_in_time(words: str) -> None:
        if threading.main_thread().is_alive():  # else the program ends
            tell(words)

    listener = _listener(task, there, here)
    close = _served(Forward(*client.state_and_inventory, task, tell_in_time), listener)
    return ForwardedPort(listener.port, f"http://{HOST}:{listener.port.local}", close)


def _listener(task: str, there: int, here: int | None) -> Listener:
    from agentless.client.ssh.forward import listen  # noqa: PLC0415 - likewise

    check_ports([Port(there, there if here is None else here)])
    words = f"agentless forward {task}"
    if here is not None:
        return listen([Port(there, here)], words)[0]
    local = there
    for _ in range(_TRIES):
        with contextlib.suppress(Refused):
            return listen([Port(there, local)], words)[0]
        local = _free_port()
    return listen([Port(there, local)], words)[0]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _served(forward: Forward, listener: Listener) -> Callable[[], None]:
    """Serve a listener in a thread; gives what ends that, which also happens when the program ends."""
    import asyncio  # noqa: PLC0415 - likewise

    loop = asyncio.new_event_loop()
    closing, closed = asyncio.Event(), threading.Event()

    async def serve() -> None:
        serving = asyncio.create_task(forward.run([listener]))
        await closing.wait()
        serving.cancel()
        await asyncio.wait([serving])
        closed.set()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    def close() -> None:
        atexit.unregister(close)
        with contextlib.suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(closing.set)
        closed.wait()

    atexit.register(close)
    threading.Thread(target=run, name=f"forward {listener.port}", daemon=True).start()
    return close
