"""A program that connects to a machine; see ProxyCommand in ssh_config(5)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import socket
from asyncio.subprocess import PIPE, Process

from agentless.model.text import Excerpt, last_words, printable

LAST = 4096
"""Bytes of its standard error that are kept."""
LINGER = 0.5
"""Seconds for the end of a program that has closed the connection."""
GREETING = b"SSH-"
"""How an SSH server begins; what comes before that is for people (RFC 4253, 4.2)."""
PREFACE = 64 * 1024
"""Bytes that may come before it."""
_GLANCE = 0.05


class ProxyError(Exception):
    """The program did not reach an SSH server; the message is what it did instead."""

    def __init__(self, proxy: Proxy, what: str) -> None:
        super().__init__(what)
        self.proxy = proxy


class Proxy:
    """A proxy program in a process group of its own, without a terminal.

    `connected` is whether an SSH server has greeted over it.
    """

    def __init__(self, command: str) -> None:
        self.connected = False
        self._command = command
        self._process: Process | None = None
        self._socket: socket.socket | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._said = Excerpt(0, LAST)

    @property
    def name(self) -> str:
        """The program, without its arguments, which may have secrets."""
        try:
            words = shlex.split(self._command)
        except ValueError:
            words = self._command.split()
        return printable(os.path.basename(words[0])) if words else "sh"

    async def start(self) -> socket.socket:
        """Start it; gives our end of it once a server greets. Raises OSError and ProxyError."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", f"exec {self._command}"),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=PIPE,
                start_new_session=True,
            )
        self._process, self._hearing = process, asyncio.create_task(self._hear(process.stderr))
        if not await self._greeted(self._socket):
            raise ProxyError(self, await _ending(process))
        self.connected = True
        return self._socket

    async def last_words(self) -> str:
        """The end of what it has printed, in one line, for a message."""
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

    async def _greeted(self, ours: socket.socket) -> bool:
        """Read what comes before the greeting, which is left in the socket for the SSH library. False: it ended."""
        ours.setblocking(False)
        loop, seen = asyncio.get_running_loop(), 0
        while seen <= PREFACE:
            ready = asyncio.Event()
            loop.add_reader(ours, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(ours)
            data = ours.recv(LAST, socket.MSG_PEEK)
            if not data:
                return False
            before, greeting, _ = data.partition(GREETING)
            if greeting and (not before or before.endswith(b"\n")):
                self._said.add(ours.recv(len(before)) if before else b"")
                return True
            # A part of the greeting at the end may still become one.
            begun = next((n for n in (3, 2, 1) if data.endswith(GREETING[:n])), 0)
            whole = len(data) - begun
            self._said.add(ours.recv(whole) if whole else b"")
            seen += whole
            if not whole:
                await asyncio.sleep(_GLANCE)
        raise ProxyError(self, "printed no greeting of an SSH server")

    async def _hear(self, complaints: asyncio.StreamReader | None) -> None:
        while complaints and (data := await complaints.read(LAST)):
            self._said.add(data)


async def _ending(process: Process) -> str:
    """How a program ended that has closed the connection."""
    waiting = asyncio.ensure_future(process.wait())
    done, _ = await asyncio.wait([waiting], timeout=LINGER)
    if not done:
        waiting.cancel()
        return "closed the connection"
    code = waiting.result()
    return f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
