"""What a fault plays in: nodes, people at a shell, the judge; and what is counted on the way to a row of the table."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from agentless.client import Client
from agentless.errors import AgentlessError
from tests.faults.judge import Judge, tasks
from tests.lab import Lab, Node
from tests.lab.processes import processes
from tests.real.cli import Cli, Done, finish, until

WITHIN = 75.0
"""Seconds in which everything has to be as it is: a full look at a node, which comes once a minute, and its answer."""
WAITING = ("sh", "-c", "echo out; until [ -e /go ]; do sleep .05; done; exit 7")
"""A task that ends when it is told to, see `go`."""
TASK_ID = re.compile(r"\b[0-9][0-9a-hjkmnp-tv-z]{10}\b")


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


class Scene:
    """Nodes and people; `quick` asks for few injections. Between `open` and `row` one fault happens in it."""

    def __init__(self, lab: Lab, *, quick: bool) -> None:
        self.lab = lab
        self.quick = quick
        self._people: dict[str, Cli] = {}
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

    def person(self, name: str = "alice", **extra: str) -> Cli:
        """Somebody with a controller of their own, which has reached both nodes."""
        if name not in self._people:
            cli = self._people[name] = Cli(self.lab, name, **extra)
            cli.client = Client(cli.state, None)  # one that starts no controller: it would be in another environment
        self.present.append(self._people[name])
        return self._people[name].settle()

    def times(self, quick: int, full: int) -> Iterator[int]:
        """The numbers of the injections; each is counted, and is over with a clean table."""
        for number in range(quick if self.quick else full):
            self.injected += 1
            yield number
            self.clear()

    # ---------------------------------------------------------------- requests

    def begin(self, who: Cli, *words: str) -> tuple[str, subprocess.Popen[str]]:
        """Begin to submit; gives the name of the task."""
        self._named += 1
        name = f"t{self._named}"
        return name, who.start("submit", "--name", name, *words)

    def end(self, begun: tuple[str, subprocess.Popen[str]]) -> Done:
        """Wait for a submit, and hold what it says against agentless from now on."""
        name, process = begun
        done = self.heard(finish(process))
        assert done.code != 2, done
        self.judge.accepted.update(TASK_ID.findall(done.out))
        if done.code == 3:
            self.judge.refused.add(name)
        else:
            self.judge.accepted.update(re.findall(rf"task ({TASK_ID.pattern}) may", done.err))
        return done

    def submit(self, who: Cli, *words: str) -> str:
        """Start a task that there is no reason not to start; gives its id."""
        done = self.end(self.begin(who, *words))
        assert done.code == 0, done
        return done.out.strip()

    def heard(self, done: Done) -> Done:
        """Remember what somebody was told."""
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
        self.judge.accepted.clear()
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
        double = self.judge.double()
        self.judge.close()
        return Row(fault, how, self.injected, self.saw, [*self.lost, *self.judge.lies()], double, self.slowest)

    def close(self) -> None:
        """Leave nothing."""
        for who in self._people.values():
            who.close()
        self._people.clear()
        self.lab.reset()

    def broke(self, error: AssertionError) -> None:
        """Something did not come about that had to: the rest of this fault is left out, and all begins anew."""
        place = next(frame for frame in traceback.extract_tb(error.__traceback__)[::-1] if "faults" in frame.filename)
        self.report(f"after injection {self.injected}, at `{place.line}`: {error}")
        self.close()

    def report(self, problem: str) -> None:
        """Something is not as it has to be."""
        self.lost.append(problem)
        print(f"  {problem}", file=sys.stderr, flush=True)


class HeldLock:
    """Another launch is under way: no launch on any node of the lab, which share `/`, gets on meanwhile."""

    def __enter__(self) -> Self:
        self._file = os.open("/", os.O_RDONLY)
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def take(self) -> None:
        """Wait for it, without turns as the launches do, so that it is had before theirs."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let one of them on."""
        fcntl.flock(self._file, fcntl.LOCK_UN)


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
