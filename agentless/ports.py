"""The edges of the house as Protocols: what the controller needs, whoever provides it."""

from __future__ import annotations

from typing import Protocol

from agentless.model.command import Result, Section
from agentless.model.gpu import GpuSample, GpuTopology, Xid
from agentless.model.terminal import Size


class Shell(Protocol):
    """A running POSIX `sh` on a node with its three streams. It ends when its stdin ends, or with the connection."""

    async def read(self) -> tuple[int, bytes] | None:
        """The next bytes and the stream they came on (1 or 2), as they arrive; None when both streams have ended.

        Raises Unreachable when the connection broke instead.
        """

    async def write(self, data: bytes) -> None:
        """Put bytes on its stdin; waits while the node does not take them. Once it has ended they are dropped."""

    async def write_eof(self) -> None:
        """End its stdin."""

    async def wait(self) -> int:
        """Its exit code, 128 + signal for a signal, 255 when the server gave none."""

    async def close(self) -> None:
        """Let go of it: its stdin ends and nothing more is read. Never raises."""


class Terminal(Shell, Protocol):
    """A `sh` on a pseudo-terminal of its own: all it prints comes on stream 1, and with its end it is hung up."""

    async def resize(self, size: Size) -> None:
        """Give the terminal another size; what is in front there gets SIGWINCH. Once it has ended nothing happens."""


class Transport(Protocol):
    """A way to reach one node. All that is ever started on a node is `sh`.

    What it is to do goes through its stdin, but on a terminal, where that is somebody's keyboard.
    """

    async def connect(self) -> None:
        """Reach the node, or raise Unreachable, AuthFailed or HostKeyRejected with a sentence. Idempotent."""

    async def shell(self) -> Shell:
        """Start a `sh` on the connected node; raises Unreachable, or Refused when the node takes no more of them."""

    async def terminal(self, script: str, size: Size) -> Terminal:
        """Start a `sh` that runs this script on a pseudo-terminal; raises as `shell`."""

    async def close(self) -> None:
        """End the connection. Never raises."""


class Probe(Protocol):
    """A GPU vendor: the part of a script that asks its driver, and what the answer means."""

    def sections(self, *, topology: bool = False) -> tuple[Section, ...]:
        """The sections to run on the node; their names begin with the vendor's.

        With `topology` they also ask how the GPUs are joined and what the kernel log says of them, which is too much
        for every sample.
        """

    def parse(self, sections: dict[str, Result]) -> GpuSample:
        """The sample in the answer. Pure; anything unreadable becomes None or `error`, never an exception."""

    def parse_topology(self, sections: dict[str, Result]) -> GpuTopology | None:
        """How the GPUs are joined, by the answer. Pure; None where it was not asked for or cannot be read."""

    def parse_xids(self, sections: dict[str, Result]) -> tuple[Xid, ...] | None:
        """The errors in the kernel log, from old to new. Pure; None where it was not asked for or cannot be read."""


class Clock(Protocol):
    """Time as an argument."""

    def now(self) -> float:
        """Unix seconds."""
