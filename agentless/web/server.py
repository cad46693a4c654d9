"""The server: a loopback port, links on the terminal, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence

from aiohttp import web

from agentless import paths
from agentless.errors import AgentlessError
from agentless.signals import defaults_for_children
from agentless.web.authentication import Authentication
from agentless.web.site import Site

VISITORS = 8
HEARTBEAT = 15.0
_ADDRESS = "127.0.0.1"


def run(command: Sequence[str], port: int, *, visitors: int = VISITORS, heartbeat: float = HEARTBEAT) -> None:
    """Serve the Textual app that `command` starts until Ctrl-C, SIGTERM or the end of the terminal; port 0: a free one.

    The limits of a visit are arguments for tests.
    """
    with _listener(port) as listener:
        asyncio.run(_serve(command, listener, visitors, heartbeat))
    with contextlib.suppress(OSError):  # the terminal may have ended first
        print("\nWeb dashboard stopped; tasks keep running.", flush=True)


def _listener(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_ADDRESS, port))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AgentlessError(f"port {port} is in use; choose another one or omit --port") from None
        raise AgentlessError(f"cannot use port {port}: {error.strerror}; choose one above 1023") from None
    return listener


async def _serve(command: Sequence[str], listener: socket.socket, visitors: int, heartbeat: float) -> None:
    auth = Authentication()
    port = listener.getsockname()[1]
    site = Site(command, auth, visitors=visitors, heartbeat=heartbeat)
    # No log of requests: their paths are keys.
    runner = web.AppRunner(site.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listener).start()

    def link() -> str:
        return f"http://{_ADDRESS}:{port}/?token={auth.new_token(time.monotonic())}"

    over = _end_asked()
    here = f"{paths.user_name()}@{socket.gethostname()}"
    print(f"Dashboard: {link()}")
    print("The link works once, within 10 minutes. Press Enter for a new one.")
    print(f"From another machine, first run: ssh -L {port}:{_ADDRESS}:{port} {here}")
    print("Press Ctrl-C to stop.", flush=True)
    _at_each_line(lambda: print(f"New link: {link()}", flush=True))
    await over.wait()
    await site.close()
    await runner.cleanup()


def _end_asked() -> asyncio.Event:
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            asyncio.get_running_loop().add_signal_handler(number, over.set)
    defaults_for_children()
    return over


def _at_each_line(act: Callable[[], None]) -> None:
    """Act at each line on stdin, as long as there is a terminal."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            typed = os.read(0, 4096)
        except OSError:
            typed = b""
        if typed:
            act()
        else:
            loop.remove_reader(0)

    signal.signal(signal.SIGTTIN, signal.SIG_IGN)  # in the background a read fails, instead of stopping the server
    with contextlib.suppress(OSError, ValueError):  # a file, or nothing, in place of a terminal
        loop.add_reader(0, read)
