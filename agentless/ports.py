"""The edges of the house as Protocols: what the controller needs, whoever provides it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from agentless.model.command import Command, Result, Section
from agentless.model.files.task_files import Prepared
from agentless.model.nodes.gpu import GpuSample, GpuTopology, Xid
from agentless.model.nodes.node import EngineFacts
from agentless.model.nodes.sessions import Sessions
from agentless.model.tasks.container import Container
from agentless.model.tasks.launch import Launch
from agentless.model.tasks.log_query import LogQuery, Place
from agentless.model.tasks.task import Placement, Task
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

    @property
    def alive(self) -> bool:
        """Whether it is connected, as far as is known."""

    @property
    def sessions(self) -> Sessions | None:
        """What is in use of what the node allows, None where nothing limits it."""

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


class Reading(Protocol):
    """Reads what a script prints on its stream 1 or 2: gives the task's own output on its two streams."""

    def __call__(self, fd: int, data: bytes, /) -> Iterable[tuple[int, bytes]]:
        """What comes next."""

    @property
    def place(self) -> Place | None:
        """How far it has come by the engine's times; None where only bytes can be counted."""


class Runtime(Protocol):
    """A way to run tasks on a node: what it is asked is a command, what it answers is parsed. No I/O.

    `container` is what `parse_launch` gave, or the name that the task's container has. `at_once` is how many launches
    are one script.
    """

    at_once: int

    def launch(
        self,
        task: Task,
        placement: Placement,
        secrets: Mapping[str, str],
        prepared: Prepared | None = None,
        engine: EngineFacts | None = None,
    ) -> Command:
        """Under the node's lock: see that nobody holds its GPUs, and start it. The same task is never started twice.

        `prepared` has the files of a task that has some, `engine` is what the node has last said of its engine.
        """

    def launches(self, wanted: Sequence[Launch]) -> Command:
        """Likewise several, `at_once` at most, that have the same secrets."""

    def answers(self, count: int, result: Result) -> list[Result]:
        """The answers to so many launches in one script, each as if it had been alone."""

    def answered(self, count: int, out: bytes) -> dict[int, Result]:
        """Those that are whole already in what the script has said so far, by their places."""

    def parse_launch(self, task: Task, result: Result) -> str:
        """What has been started. Raises Refused or RuntimeFailed when nothing of it is there, or NoAnswer."""

    def containers(self, task: str) -> Command:
        """Ask for what there is of one task."""

    def parse_containers(self, result: Result, clock: float) -> tuple[Container, ...]:
        """What an answer names; `clock` is by how many seconds the node's clock is ahead of ours."""

    def logs(self, container: str, query: LogQuery) -> Command:
        """Its log, as a stream that `reading` understands."""

    def reading(self, query: LogQuery) -> Reading:
        """What makes the task's output of that stream."""

    def log_sizes(self, container: str) -> Command:
        """The bytes of its two streams, each number on its stream."""

    def log_ends(self, container: str, out: int, err: int) -> Command:
        """The last `out` bytes of its standard output and the last `err` bytes of its standard error."""

    def signal(self, container: str, signal: str) -> Command:
        """Send its first process a signal, by its name without SIG."""

    def pause(self, container: str) -> Command:
        """Freeze."""

    def resume(self, container: str) -> Command:
        """Thaw."""

    def remove(self, container: str, *, force: bool = False) -> Command:
        """Remove it, by force also while it lives."""

    def check(self, result: Result) -> None:
        """Raise RuntimeFailed with the complaint unless the command worked."""

    def complaint(self, words: str) -> str:
        """What is complained of, as a sentence with the fix."""


class Clock(Protocol):
    """Time as an argument."""

    def now(self) -> float:
        """Unix seconds."""
