"""A program on a node or in a container, from the side of the client: read and written at the same time."""

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
    """A running program. One thread may read while others write, resize and close.

    `gone` is the message if the controller goes away. `exit_code` is known once `read` has returned None, unless the
    stream was closed before.
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
        """The next output; None if the program has ended or the stream was closed. Raises the error that ended it."""
        found = self.read_stream()
        return None if found is None else found[1]

    def read_stream(self) -> tuple[int, bytes] | None:
        """The next output with its stream, 1 or 2. On a terminal all of it is 1."""
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
        """Write input; blocks while the program reads nothing. Input after its end is dropped."""
        for start in range(0, len(data), MOST):
            self._send(frame(DATA, data[start : start + MOST]))

    def write_eof(self) -> None:
        """Close its input. Without effect on a terminal, where a key does that."""
        self._send(frame(END))

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of its terminal."""
        self._send(frame(RESIZE, str(Size(columns, rows)).encode()))

    def close(self) -> None:
        """Disconnect, which ends the program. A thread that reads gets None."""
        self._closed = True
        with contextlib.suppress(OSError):  # it was disconnected already
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, data: bytes) -> None:
        # The reader gets the error.
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
