"""HTTP by hand: targets of requests, heads and errors of answers, chunks. Each request has a connection of its own."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from typing import BinaryIO
from urllib.parse import quote, urlencode

from agentless.errors import AgentlessError, ControllerError
from agentless.model.text import lines_of


class RequestFailed(AgentlessError):
    """An error in an answer of the controller: its message and exit code; `error` is the name of its class."""

    def __init__(self, message: str, exit_code: int, error: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.error = error


LONGEST, MOST = 65536, 100
"""Bytes of a line in the head of an answer, and its lines."""


class Response:
    """An answer: its status, its headers (names in lower case), and its body as a file."""

    def __init__(self, connection: socket.socket) -> None:
        self.body = connection.makefile("rb")
        self.status = int(self.body.readline(LONGEST).split()[1])
        self.headers: dict[str, str] = {}
        while line := self.body.readline(LONGEST).strip():
            if len(line) >= LONGEST - 2 or len(self.headers) > MOST:
                raise ValueError("the answer has too long a head")
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.lower()] = value.strip()


LAST_CHUNK = b"0\r\n\r\n"
"""Ends a body in chunks."""


def chunk(data: bytes) -> bytes:
    """Data as a chunk of a body by HTTP/1.1; nothing for no data, since an empty chunk is the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def read_chunk(body: BinaryIO) -> bytes:
    """The next chunk of a body, b"" at its end; raises ValueError when it breaks off."""
    size = int(body.readline(), 16)
    data = body.read(size)
    body.readline()
    if len(data) < size:
        raise ValueError("connection lost")
    return data


def chunked_lines(body: BinaryIO) -> Iterator[bytes]:
    """The lines of a body in chunks, each as soon as it is complete; raises ValueError when it breaks off."""
    line = b""
    while data := read_chunk(body):
        *lines, line = (line + data).split(b"\n")
        yield from lines
    if line:
        yield line


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """Raises ControllerError for a missing or incomplete answer."""
    try:
        yield
    except (OSError, IndexError, ValueError):
        raise ControllerError(
            "the controller stopped during the request; what it started keeps running; check with: agentless ps"
        ) from None


def target(path: str, query: Mapping[str, object]) -> str:
    """The target of a request. Bytes of arguments that are no UTF-8 pass unchanged."""
    given = {key: _text(value) for key, value in query.items() if value is not None}
    words = urlencode(given, doseq=True, errors="surrogateescape")
    return quote(path, errors="surrogateescape") + (f"?{words}" if words else "")


def failure(body: bytes) -> RequestFailed:
    """The error in the body of an answer."""
    try:
        problem = json.loads(body)
        text = "\n".join(lines_of(problem["message"]))
        return RequestFailed(text, problem["exit_code"], problem["error"])
    except (ValueError, KeyError, TypeError):
        return RequestFailed("the controller failed; see controller.log in the state folder", 1)


def _text(value: object) -> str | list[str]:
    if isinstance(value, (list, tuple)):
        return [str(each) for each in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
