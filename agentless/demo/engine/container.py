"""A simulated container: a local process, and its `docker inspect`."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from agentless.demo import training
from agentless.demo.clock import NodeClock
from agentless.demo.engine.log import Log
from agentless.demo.processes.pipes import Reader
from agentless.demo.processes.processes import PIPE, Child, Children
from agentless.demo.processes.terminal import PseudoTerminal

_PROGRAMS = frozenset({"train.py", "eval.py", "evaluate.py", "merge.py", "prepare.py", "small.py"})
"""Programs that images have, as in the examples of the documentation."""
_NEVER = "0001-01-01T00:00:00Z"


@dataclass(frozen=True)
class Config:
    """The options of `docker run` that have an effect here."""

    name: str
    image: str
    command: Sequence[str]
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    gpus: Sequence[str] = ()
    devices: Sequence[str] = ()


@dataclass
class Run:
    """From a start to an end, by the machine's monotonic clock in seconds; `ended` and `exit_code` None: it runs."""

    began: float
    ended: float | None = None
    exit_code: int | None = None


class SimulatedContainer:
    """A container in its folder. `state` is one of Docker's, times are by the node's clock.

    `runs` is what was, whatever that clock showed: for those who check what others made of the times.
    """

    def __init__(self, config: Config, folder: Path, clock: NodeClock) -> None:
        self.id = secrets.token_hex(32)
        self.config = config
        self.folder = folder / self.id
        self.log = Log(clock)
        self.runs: list[Run] = []
        self.state: Literal["created", "running", "paused", "exited"] = "created"
        self.exit_code = 0
        self.error = ""
        self.oom_killed = False
        self.created = clock.now()
        self.started = 0
        self.finished = 0
        self._clock = clock
        self._child: Child  # from `start` on
        self._others: list[Child] = []
        # Not the machine's: what a task writes to where it stands shall go when the container goes.
        self._cwd = self.folder.joinpath("files", config.workdir.lstrip("/"))
        self._readers: list[Reader] = []

    @property
    def live(self) -> bool:
        """Whether its process runs or is frozen."""
        return self.state in ("running", "paused")

    def start(self, children: Children, env: Mapping[str, str], ended: Callable[[SimulatedContainer], None]) -> None:
        """Start its process in its folder, also again; `ended` is called when it is gone. Raises OSError."""
        os.makedirs(self._cwd, exist_ok=True)
        self._write_program()

        def exited(status: int) -> None:
            # A crash may have ended it before, and somebody have started it again.
            if self.live and self._child is child:
                self._finish(status if status >= 0 else 128 - status)
                ended(self)

        child = self._child = children.start(self.config.command, env, self._cwd, exited)
        self._readers = [
            Reader(child.stdout, lambda data: self.log.feed(1, data)),
            Reader(child.stderr, lambda data: self.log.feed(2, data)),
        ]
        self.log.reopen()
        self.state, self.started = "running", self._clock.now()
        self.exit_code, self.error, self.oom_killed = 0, "", False
        self.runs.append(Run(time.monotonic()))

    def execute(
        self, children: Children, env: Mapping[str, str], argv: Sequence[str], terminal: PseudoTerminal | None
    ) -> tuple[Child, asyncio.Future[int]]:
        """Start another program in it, and its exit code to be. With the container it ends, and all it has started."""
        code = asyncio.get_running_loop().create_future()

        def exited(status: int) -> None:
            if not code.done():
                code.set_result(status if status >= 0 else 128 - status)

        words, streams = (terminal.words(argv), terminal.theirs) if terminal else (argv, PIPE)
        child = children.start(words, env, self._cwd, exited, streams, streams)
        self._others.append(child)
        return child, code

    def signal(self, number: signal.Signals) -> None:
        """Signal its first process; as in a container, what that does not handle does nothing. KILL ends them all."""
        if number == signal.SIGKILL:
            self._child.signal_group(number)
        elif _handles(self._child.pid, number):
            os.kill(self._child.pid, number)

    def freeze(self) -> None:
        """Stop all processes of its group; those that left the group go on."""
        for child in (self._child, *self._others):
            child.signal_group(signal.SIGSTOP)
        self.state = "paused"

    def thaw(self) -> None:
        """Resume all processes of its group."""
        for child in (self._child, *self._others):
            child.signal_group(signal.SIGCONT)
        self.state = "running"

    def crash(self, exit_code: int) -> None:
        """End without an event, as if the machine or the engine went down."""
        self._finish(exit_code)

    def inspect(self) -> dict[str, object]:
        """The part of `docker inspect` that agentless may ask for."""
        return {
            "Id": self.id,
            "Name": f"/{self.config.name}",
            "Created": rfc3339(self.created),
            "State": {
                "Status": self.state,
                "Running": self.live,
                "Paused": self.state == "paused",
                "Restarting": False,
                "OOMKilled": self.oom_killed,
                "Dead": False,
                "Pid": self._child.pid if self.live else 0,
                "ExitCode": self.exit_code,
                "Error": self.error,
                "StartedAt": rfc3339(self.started),
                "FinishedAt": rfc3339(self.finished),
            },
            "HostConfig": {"NanoCpus": 0, "Memory": 0},
            "Config": {"Image": self.config.image, "Labels": dict(self.config.labels)},
        }

    def _write_program(self) -> None:
        """Have the program that a command like `python train.py` is about."""
        match self.config.command:
            case ["python" | "python3", name, *_] if name in _PROGRAMS and not self._cwd.joinpath(name).exists():
                self._cwd.joinpath(name).symlink_to(training.__file__)

    def _finish(self, exit_code: int) -> None:
        for child in (self._child, *self._others):
            child.end()
        self._others.clear()
        for reader in self._readers:
            reader.drain()
        self.log.close()
        self.state, self.exit_code, self.finished = "exited", exit_code, self._clock.now()
        self.runs[-1].ended, self.runs[-1].exit_code = time.monotonic(), exit_code


def rfc3339(nanoseconds: int) -> str:
    """Unix nanoseconds as Docker prints them, 0 as never."""
    if not nanoseconds:
        return _NEVER
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process catches a signal, see proc(5)."""
    try:
        status = Path("/proc", str(pid), "status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)
