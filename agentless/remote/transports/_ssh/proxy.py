"""A program that connects to a machine; see ProxyCommand in ssh_config(5)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from asyncio.subprocess import PIPE, Process

from agentless.model.text import Excerpt, last_words

LAST = 4096
"""Bytes of its standard error that are kept."""
LINGER = 0.5
"""Seconds for the end of a program that has closed the connection."""


class Proxy:
    """A proxy program in a process group of its own."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._process: Process | None = None
        self._socket: socket.socket | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._said = Excerpt(0, LAST)

    async def start(self) -> socket.socket:
        """Start it; gives our end of it. Raises OSError."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", f"exec {self._command}"),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=PIPE,
                start_new_session=True,
            )
        self._hearing = asyncio.create_task(self._hear(self._process.stderr))
        return self._socket

    async def last_words(self) -> str:
        """The end of its standard error in one line, for a message."""
        if self._hearing is not None:
            await asyncio.wait([self._hearing], timeout=LINGER)
        return last_words(bytes(self._said))

    async def close(self) -> None:
        """End it. Never raises."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            # Something that has left its group may hold on to its streams.
            await asyncio.wait([asyncio.ensure_future(self._process.wait())], timeout=LINGER)
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait([self._hearing])

    async def _hear(self, complaints: asyncio.StreamReader | None) -> None:
        while complaints and (data := await complaints.read(LAST)):
            self._said.add(data)
