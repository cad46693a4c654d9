"""The program at the other end of a copy, as a file to read from or to write to."""

from __future__ import annotations

import threading
from typing import Protocol

from agentless.client.stream import ProgramStream
from agentless.errors import AgentlessError
from agentless.model.text import Excerpt


class Meter(Protocol):
    """Shows the progress of a copy."""

    def begin(self, name: str) -> None:
        """The next source is copied."""

    def reached(self, size: int) -> None:
        """This many bytes of its files are copied."""

    def end(self, moved: int) -> None:
        """The source is copied; `moved` bytes went over the link."""


class ByteCount:
    """Adds up pieces, for a Meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._sum = meter, 0

    def add(self, size: int) -> None:
        """Add a piece."""
        self._sum += size
        self._meter.reached(self._sum)


class TransferOutput:
    """The output of a transfer, as a file."""

    def __init__(self, program: ProgramStream) -> None:
        self.received = 0
        self._errors = Excerpt(0, 20_000)
        self._program = program
        self._rest = b""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; nothing at the end."""
        while not self._rest:
            chunk = self._program.read_stream()
            if chunk is None:
                return b""
            if chunk[0] == 2:
                self._errors.add(chunk[1])
            else:
                self.received += len(chunk[1])
                self._rest = chunk[1]
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    @property
    def words(self) -> str:
        """The last part of its standard error. File names in it may be no UTF-8."""
        return bytes(self._errors).decode("utf-8", "surrogateescape")

    def drain(self) -> None:
        """Read to the end."""
        while self.read(1 << 20):
            pass


class StreamEnded(Exception):
    """The other side has ended."""


class TransferInput:
    """The input of a transfer, as a file; a thread reads its output meanwhile."""

    def __init__(self, program: ProgramStream, counted: ByteCount) -> None:
        self.sent = 0
        self._program, self._counted = program, counted
        self._said = TransferOutput(program)
        self._failure: AgentlessError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def words(self) -> str:
        """Its standard error."""
        return self._said.words

    def write(self, data: bytes) -> int:
        """Send data; raises StreamEnded if the other side has ended."""
        if self._ended.is_set():
            raise StreamEnded
        self._program.write(data)
        self.sent += len(data)
        self._counted.add(len(data))
        return len(data)

    def wait(self) -> None:
        """Wait for the end of the other side."""
        self._thread.join()
        if self._failure:
            raise self._failure

    def _listen(self) -> None:
        try:
            self._said.drain()
        except AgentlessError as error:
            self._failure = error
        self._ended.set()
