"""What a fault plays in: nodes, people at a shell, the judge; and what is counted on the way to a row of the table."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agentless.client.client import Client
from agentless.client.connection import Connector
from agentless.errors import AgentlessError
from tests.faults.controller_log import ControllerLog
from tests.faults.judge import Judge, tasks
from tests.lab import Lab, Node
from tests.lab.processes import processes
from tests.real.cli import Cli, Done, finish, until

WITHIN = 75.0
"""Seconds in which everything has to be as it is: a full look at a node, which comes once a minute, and its answer."""
WAITING = ("sh", "-c", "echo out; until [ -e /go ]; do sleep .05; done; exit 7")
"""A task that ends when it is told to, see `go`."""
PATIENCE = 90.0
"""Seconds without a word after which a controller is taken to hang, as a command is in `tests/real/cli`."""
BLUNDERS = ("Traceback", "Internal", "the controller failed")
"""What no user may ever be told."""
TASK_ID = re.compile(r"\b[0-9][0-9a-hjkmnp-tv-z]{10}\b")

TOO_LATE = 10
"""How many times as often as planned a fault may come too late to count."""

Begun = tuple[str, subprocess.Popen[str]]
"""A submit under way, and the name of its task."""


@dataclass(frozen=True)
class Row:
    """A line of the table. `slowest` is how long it took at most, after a fault, until everything was as it is."""

    fault: str
    how: str
    injected: int
    saw: Counter[str]
    lost: list[str]
    double: list[str]
    slowest: float


class _Connector(Connector):
    """One that does not wait for ever."""

    def connect(self) -> socket.socket:
        connection = super().connect()
        connection.settimeout(PATIENCE)
        return connection


class _Client(Client):
    """One that does not wait for ever."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._controller = _Connector(self._state, self._inventory)


class Scene:
    """Nodes and people; `quick` asks for few injections. Between `open` and `row` one fault happens in it."""

    def __init__(self, lab: Lab, *, quick: bool) -> None:
        self.lab = lab
        self.quick = quick
        self._people: dict[str, Cli] = {}
        self._logs: dict[str, ControllerLog] = {}
        self._named = 0

    def open(self) -> None:
        """Begin to count and to judge; chance is the same for every fault."""
        self.chance = random.Random(1)
        self.judge = Judge(self.lab.nodes.values())
        self.injected = 0
        self.lost: list[str] = []
        self.saw: Counter[str] = Counter()
        self.slowest = 0.0
        self.present: list[Cli] = []
        self._took = math.inf

    def person(self, name: str = "alice", **extra: str) -> Cli:
        """Somebody with a controller of their own, which has reached both nodes."""
        if name not in self._people:
            cli = self._people[name] = Cli(self.lab, name, **extra)
            self._logs[name] = ControllerLog(cli.state)
            cli.client = _Client(cli.state, None)  # one that starts no controller: it would be in another environment
        self.present.append(self._people[name])
        return self._people[name].settle()

    def times(self, quick: int, full: int) -> Iterator[int]:
        """The numbers of the injections; each is counted, and is over with a clean table.

        One that has come too late, see `amid`, is not counted: there is another one in its place.
        """
        number, late, wanted = 0, 0, quick if self.quick else full
        while number < wanted:
            self.injected += 1
            self._late = False
            yield number
            self.clear()
            number += not self._late
            late += self._late
            self.injected -= self._late
            assert late < TOO_LATE * wanted, f"{late} times all was over before the fault came"

    def amid(self, begun: Begun, most: float) -> None:
        """Wait for a random moment of a submit, `most` seconds after its begin at the latest: then the fault comes.

        It comes too late when the submit is over before; the next ones come within the time that this one took.
        """
        now = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            begun[1].wait(self.chance.uniform(0.1, min(most, self._took)))
            self._late, self._took = True, time.monotonic() - now

    # ---------------------------------------------------------------- requests

    def begin(self, who: Cli, *words: str) -> Begun:
        """Begin to submit; gives the name of the task."""
        self._named += 1
        name = f"t{self._named}"
        return name, who.start("submit", "--no-queue", "--name", name, *words)

    def end(self, begun: Begun) -> Done:
        """Wait for a submit, and hold what it says against agentless from now on."""
        name, process = begun
        done = self.finish(process)
        assert done.code != 2, done
        tasks = {*TASK_ID.findall(done.out)}
        if done.code == 3:
            self.judge.refused.add(name)
        else:
            tasks.update(re.findall(rf"task ({TASK_ID.pattern}) may", done.err))
        self.judge.accepted |= tasks
        if done.code in (0, 4):
            self.judge.promised |= tasks
        return done

    def finish(self, process: subprocess.Popen[str]) -> Done:
        """Wait for a command; one that hangs is a symptom, and is ended."""
        try:
            return self.heard(finish(process))
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    def submit(self, who: Cli, *words: str) -> str:
        """Start a task that there is no reason not to start; gives its id."""
        done = self.end(self.begin(who, *words))
        assert done.code == 0, done
        return done.out.strip()

    def heard(self, done: Done) -> Done:
        """Remember what somebody was told."""
        self.expect(not any(word in done.err for word in BLUNDERS), f"somebody was told {done}")
        for line in done.err.splitlines():
            self.saw[_plain(line)] += 1
        return done

    # ------------------------------------------------------------------- after

    def check(self, what: object = "") -> None:
        """Hold what everybody is shown against the truth; `what` says in a report where it was."""
        began = time.monotonic()
        for who in self.present:
            for problem in self.judge.lost(who, WITHIN):
                self.report(f"{problem} (injection {self.injected} {what})")
        self.slowest = max(self.slowest, time.monotonic() - began)

    def expect(self, held: bool, otherwise: str) -> None:
        """Something that a user was promised."""
        if not held:
            self.report(f"{otherwise} (injection {self.injected})")

    def clear(self) -> None:
        """Remove all tasks, as their users would; then all GPUs have to be free."""
        for who in self.present:
            for task in tasks(who):
                try:
                    who.client.delete(f"/v1/tasks/{task['id']}", force=True)
                except AgentlessError as error:
                    if "no task" not in str(error):  # another one has removed it
                        self.report(f"{task['id']} cannot be removed: {error}")
        self.judge.release(*self.judge.accepted)
        for who in self.present:
            try:
                until(who.is_free)
            except AssertionError:
                held = [gpu for gpu in who.get("/v1/gpus") if gpu["state"] != "free"]
                self.report(f"after everything was removed this is not free: {held}")
        for node in self.lab.nodes.values():
            if left := node.sh("docker ps --all --quiet").stdout:
                self.report(f"containers are left on {node.name}: {left.split()}")
                node.sh(f"docker rm --force {left.replace(chr(10), ' ')}")

    def row(self, fault: str, how: str) -> Row:
        """The result of the fault that has been."""
        double: list[str] = []
        with self.surviving():
            double = self.judge.double()
        self.judge.close()
        for lie in self.judge.lies():
            self.report(lie)
        self.read_logs()
        return Row(fault, how, self.injected, self.saw, self.lost, double, self.slowest)

    def read_logs(self) -> None:
        """What a controller did not foresee is a problem, whatever its users have seen of it."""
        for name, log in self._logs.items():
            for entry in log.unforeseen():
                self.report(f"{name}'s controller has written down: {entry}")

    def close(self) -> None:
        """Leave nothing."""
        for who in self._people.values():
            who.close()
        self._people.clear()
        self.lab.reset()

    @contextlib.contextmanager
    def surviving(self) -> Iterator[None]:
        """What does not come about in this, or goes wrong in whatever way, is a problem; then all begins anew."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the faults that follow are to be seen, too
            self._broke(error)

    def _broke(self, error: Exception) -> None:
        place = next(frame for frame in traceback.extract_tb(error.__traceback__)[::-1] if "faults" in frame.filename)
        self.report(f"after injection {self.injected}, at `{place.line}`: {type(error).__name__}: {error}")
        self.read_logs()
        for name, who in self._people.items():
            self._try(f"end {name}'s controller", end_controller, who)
            self._try(f"remove {name}'s folders", who.close)
        self._people.clear()
        self._try("put the nodes right", self.lab.reset)

    def _try(self, what: str, work: Callable[..., object], *words: object) -> None:
        try:
            work(*words)
        except Exception as error:  # noqa: BLE001 - likewise
            self.report(f"it was not possible to {what}: {type(error).__name__}: {error}")

    def report(self, problem: str) -> None:
        """Something is not as it has to be."""
        self.lost.append(problem)
        print(f"  {problem}", file=sys.stderr, flush=True)


def go(node: Node, task: str) -> None:
    """Let a task that runs WAITING end."""
    node.sh(f"docker exec agentless-{task} touch /go")


def controller(who: Cli) -> int:
    """The process, found without a word to it."""
    (pid,) = until(lambda: _controllers(who))
    return pid


def kill_controller(who: Cli) -> None:
    """SIGKILL, and wait until nothing of it listens any more."""
    os.kill(controller(who), signal.SIGKILL)
    until(lambda: not who.client.is_running())


def end_controller(who: Cli) -> None:
    """The same for one that may be dying already."""
    for pid in _controllers(who):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not who.client.is_running())


def _controllers(who: Cli) -> list[int]:
    serving = f"agentless.controller {who.state} "
    return [process.pid for process in processes().values() if serving in process.command]


def shown(who: Cli, state: str) -> list[dict[str, Any]]:
    """The tasks in this state, without starting a controller."""
    return [task for task in who.client.get("/v1/tasks") if task["state"] == state]


def _plain(line: str) -> str:
    """A sentence without what differs each time."""
    line = TASK_ID.sub("TASK", line)
    line = re.sub(r"root@[\w.-]+", "OWNER", line)
    line = re.sub(r"/tmp/\S+?/state/agentless", "STATE", line)
    return re.sub(r"\b\d+ s\b", "N s", line)
