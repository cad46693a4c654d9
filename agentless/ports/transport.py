"""Ways to reach a node."""

from __future__ import annotations

from typing import Protocol

from agentless.model.nodes.sessions import Sessions
from agentless.model.terminal import Size


class Duplex(Protocol):
    """A running program with its three streams."""

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


class Shell(Duplex, Protocol):
    """A running POSIX `sh` on a node. It ends when its stdin ends, or with the connection."""

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

    @property
    def alive(self) -> bool:
        """Whether it is connected, as far as is known."""

    @property
    def sessions(self) -> Sessions | None:
        """What is in use of what the node allows, None where nothing limits it."""

    @property
    def address(self) -> str:
        """Which of several addresses has answered, as `USER@HOST`; empty where there is one, or none has."""

    async def connect(self) -> None:
        """Reach the node, or raise Unreachable, AuthFailed or HostKeyRejected with a sentence. Idempotent."""

    async def shell(self, *, own: bool = False, wait: bool = True) -> Shell:
        """Start a `sh` on the connected node; raises Unreachable, or NoSession when the node takes no more of them.

        Some are kept for the controller's `own` needs; with `wait` a free one is waited for, for a while.
        """

    async def terminal(self, script: str, size: Size) -> Terminal:
        """Start a `sh` that runs this script on a pseudo-terminal; raises as `shell`."""

    async def close(self) -> None:
        """End the connection. Never raises."""
