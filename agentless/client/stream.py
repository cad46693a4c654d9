"""A program on a node or in a container, from this side: it is read and written at the same time."""

from __future__ import annotations

import contextlib
import json
import socket
from collections import deque
from threading import Lock
from typing import BinaryIO, Self

from agentless.client.http import chunk, failure, read_chunk
from agentless.errors import ControllerError
from agentless.formats.frames import DATA, END, MOST, RESIZE, FrameDecoder, frame
from agentless.model.terminal import Size


class ProgramStream:
    """The program that `Client.terminal` has begun. One thread may read while others write, resize and close.

    `gone` is what to say when the controller goes away.
    `exit_code` is its own, once `read` has given None; it stays None when the terminal was closed before.
    """

    def __init__(self, connection: socket.socket, answer: BinaryIO, gone: str) -> None:
        self.exit_code: int | None = None
        self._gone = gone
        self._connection = connection
        self._answer = answer
        self._frames = FrameDecoder()
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._writing = Lock()
        self._closed = False

    def read(self) -> bytes | None:
        """What it prints next; None when it has ended, or was closed. Raises what broke it off."""
        found = self.read_stream()
        return None if found is None else found[1]

    def read_stream(self) -> tuple[int, bytes] | None:
        """Likewise, with the stream (1 or 2), which are apart without a terminal only."""
        while self.exit_code is None and not self._closed:
            if not self._arrived:
                self._receive()
                continue
            kind, data = self._arrived.popleft()
            if kind != END:
                return kind, data
            end = json.loads(data)
            if "error" in end:
                raise failure(data)
            self.exit_code = int(end["exit_code"])
        return None

    def write(self, data: bytes) -> None:
        """Type; waits while the program takes nothing. Dropped once it has ended."""
        for start in range(0, len(data), MOST):
            self._send(frame(DATA, data[start : start + MOST]))

    def write_eof(self) -> None:
        """End its input. A terminal has no such end: there it is a key."""
        self._send(frame(END))

    def resize(self, columns: int, rows: int) -> None:
        """Give its terminal another size."""
        self._send(frame(RESIZE, str(Size(columns, rows)).encode()))

    def close(self) -> None:
        """Hang up: what still runs there is ended. A thread that reads gets None."""
        self._closed = True
        with contextlib.suppress(OSError):  # the other side was faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, data: bytes) -> None:
        # That it does not arrive any more is for the reader to hear.
        with self._writing, contextlib.suppress(OSError):
            self._connection.sendall(chunk(data))

    def _receive(self) -> None:
        """The next chunk."""
        try:
            data = read_chunk(self._answer)
        except (OSError, ValueError):  # nothing, or half of it
            data = b""
        if data:
            self._arrived.extend(self._frames.feed(data))
        elif not self._closed:
            raise ControllerError(self._gone)
