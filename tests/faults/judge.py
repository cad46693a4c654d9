"""The one judge of all faults: what is true it reads from the nodes' own Docker, never from agentless."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from agentless.errors import ControllerError
from tests.lab import Node
from tests.real.cli import WAIT, Cli, until

LIVE = frozenset({"pending", "assigning", "running", "paused", "lost"})
OFF_BY = 1.0
"""Seconds by which a time that agentless tells may differ from the engine's: both read one clock here."""


@dataclass
class Life:
    """What a node's Docker told of one container while it was there. `spans`: from when to when it held its GPUs."""

    task: str
    gpus: tuple[str, ...]
    name: str
    starts: int = 0
    exit_code: int | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)
    since: float | None = None

    def end(self, at: float) -> None:
        """It holds nothing any more."""
        if self.since is not None:
            self.spans.append((self.since, at))
            self.since = None


class Watch:
    """Follows `docker events` of a node from now to its end, past every death of its engine."""

    def __init__(self, node: Node) -> None:
        self.lives: dict[str, Life] = {}
        self._node = node
        self._marks: set[str] = set()
        self._heard: set[str] = set()
        self._last = time.time_ns()
        self._over = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def catch_up(self) -> None:
        """Wait until all that has happened so far has been heard: a container that nobody else makes says when."""
        mark = f"judge-{time.monotonic_ns()}"
        self._node.sh(f"docker create --name {mark} busybox && docker rm {mark}")
        until(lambda: mark in self._marks)

    def close(self) -> None:
        """Look away."""
        self._over.set()
        self._process.kill()
        self._thread.join(WAIT)

    def _start(self) -> subprocess.Popen[str]:
        argv = [
            "docker",
            "events",
            "--filter",
            "type=container",
            "--format",
            "{{json .}}",
            "--since",
            f"{self._last // 10**9}.{self._last % 10**9:09d}",
        ]
        return subprocess.Popen(
            argv, env=self._node.env(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def _follow(self) -> None:
        while True:
            for line in self._process.stdout:
                if line not in self._heard:  # `--since` begins with the last ones again
                    self._heard.add(line)
                    self._take(json.loads(line))
            gone = time.time()
            self._process.wait()
            if self._over.wait(0.05):
                return
            if (found := self._answer()) is not None:
                self._process = self._start()
                self._bury(found, gone)

    def _take(self, event: dict[str, Any]) -> None:
        at, what, labels = event["timeNano"] / 1e9, event["Action"], event["Actor"]["Attributes"]
        self._last = max(self._last, event["timeNano"])
        if labels["name"].startswith("judge-"):
            self._marks.add(labels["name"])
        if "agentless.task" not in labels:
            return
        life = self.lives.setdefault(event["Actor"]["ID"], _life(labels))
        if what in ("create", "start") and life.since is None:
            life.since = at
        if what == "start":
            life.starts += 1
        if what in ("die", "destroy"):
            life.end(at)
        if what == "die":
            life.exit_code = int(labels["exitCode"])

    def _answer(self) -> dict[str, dict[str, Any]] | None:
        try:
            return {life["Id"]: life for life in inspected(self._node)}
        except (EngineDown, ValueError, subprocess.TimeoutExpired):  # it may go away again at once
            return None

    def _bury(self, found: dict[str, dict[str, Any]], gone: float) -> None:
        """What ran when the engine died has ended with it, and nothing said so."""
        for container, life in self.lives.items():
            state = found[container]["State"] if container in found else None
            if state is None or state["Status"] in ("exited", "dead"):
                life.end(min(gone, seconds(state["FinishedAt"])) if state else gone)


class Judge:
    """Compares what people are shown with what is true. `double` looks at the whole time since the judge was made.

    `accepted` are the tasks that have to be known, `promised` those of them that have to run, or to have run: whoever
    submitted them was told an id with exit code 0 or 4. `refused` are the names of those that must not.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.accepted: set[str] = set()
        self.promised: set[str] = set()
        self.refused: set[str] = set()
        self._nodes = list(nodes)
        self._watches = [Watch(node) for node in self._nodes]

    def lost(self, person: Cli, within: float) -> list[str]:
        """What is not as it is, if it is not within so many seconds: a line for each task."""
        deadline = time.monotonic() + within
        while (found := self._differences(person)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def double(self) -> list[str]:
        """GPUs that two containers held at one moment, tasks that were started twice; and refused ones that ran."""
        for watch in self._watches:
            watch.catch_up()
        lives = [life for watch in self._watches for life in watch.lives.values()]
        return [*_overlaps(lives), *_starts(lives)]

    def lies(self) -> list[str]:
        """Tasks that somebody was told would not run, by name, of which there was a container all the same."""
        lives = [life for watch in self._watches for life in watch.lives.values()]
        return [
            f"{life.name} was refused and was started" for life in lives if life.name in self.refused and life.starts
        ]

    def release(self, *tasks: str) -> None:
        """They were removed by their users: nothing is owed of them any more."""
        self.accepted.difference_update(tasks)
        self.promised.difference_update(tasks)

    def close(self) -> None:
        """Look away."""
        for watch in self._watches:
            watch.close()

    def _differences(self, person: Cli) -> list[str]:
        shown = {task["id"]: task for task in tasks(person)}
        self.accepted.update(shown)
        lives: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for node in self._nodes:
            for life in inspected(node):
                lives[life["Config"]["Labels"]["agentless.task"]].append(life)
        found = [f"{task} was accepted and is not known any more" for task in self.accepted.difference(shown)]
        found += [f"{task} has a container and is not known" for task in set(lives).difference(shown)]
        found += [f"{task} has {len(those)} containers" for task, those in lives.items() if len(those) > 1]
        found += [f"{task} was accepted and never ran" for task in self.promised.difference(self._ran(lives))]
        for task in shown.values():
            found += _differs(task, next(iter(lives[task["id"]]), None), self._exit_code(task["container"]))
        return found

    def _ran(self, lives: Mapping[str, Iterable[dict[str, Any]]]) -> set[str]:
        """The tasks whose containers were started. Of an engine that was killed the event may never have come."""
        started = {life.task for watch in self._watches for life in watch.lives.copy().values() if life.starts}
        there = {task for task, those in lives.items() for life in those if seconds(life["State"]["StartedAt"]) > 0}
        return started | there

    def _exit_code(self, container: str | None) -> int | None:
        """As it was told when the container died, for one that is gone."""
        lives = [watch.lives[container] for watch in self._watches if container in watch.lives]
        return lives[0].exit_code if lives else None


def _differs(task: dict[str, Any], life: dict[str, Any] | None, ended_with: int | None) -> Iterator[str]:
    """What is said of a task against its container."""
    says = f"{task['id']} is {task['state']} ({task['exit_code']})"
    if life is None:
        if task["state"] in LIVE:
            yield f"{says} and has no container"
        elif task["exit_code"] not in (None, ended_with):
            yield f"{says} and its container ended with {ended_with}"
        return
    state = life["State"]
    truth = {"created": "assigning", "exited": "ended", "dead": "ended"}.get(state["Status"], state["Status"])
    said = task["state"] if task["state"] in LIVE else "ended"
    if said != truth:
        yield f"{says} and its container is {state['Status']} ({state['ExitCode']})"
    elif truth == "ended" and task["exit_code"] != state["ExitCode"]:
        yield f"{says} and its container ended with {state['ExitCode']}"
    if said == truth != "assigning":
        ends = [("started_at", "StartedAt"), *([("ended_at", "FinishedAt")] if truth == "ended" else [])]
        for ours, theirs in ends:
            if abs(seconds(task[ours]) - seconds(state[theirs])) > OFF_BY:
                yield f"{says}: {ours} is {task[ours]}, Docker's {theirs} {state[theirs]}"


def _overlaps(lives: list[Life]) -> Iterator[str]:
    held: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for life in lives:
        spans = life.spans if life.since is None else [*life.spans, (life.since, float("inf"))]
        for gpu in life.gpus:
            held[gpu] += [(begin, end, life.task) for begin, end in spans]
    for gpu, spans in held.items():
        for (_, end, first), (begin, _, second) in pairwise(sorted(spans)):
            if begin < end:
                yield f"{gpu} was held by {first} and {second} at once"


def _starts(lives: list[Life]) -> Iterator[str]:
    starts: dict[str, int] = defaultdict(int)
    for life in lives:
        starts[life.task] += life.starts
    yield from (f"{task} was started {count} times" for task, count in starts.items() if count > 1)


class EngineDown(Exception):
    """A node's Docker does not answer."""


def tasks(person: Cli) -> list[dict[str, Any]]:
    """All that somebody is shown, as soon as a controller lives long enough to say it; raises ControllerError."""
    deadline = time.monotonic() + WAIT
    while True:
        try:
            found: list[dict[str, Any]] = person.get("/v1/tasks", ended=True)
        except ControllerError:
            if time.monotonic() > deadline:
                raise
            continue
        return found


def inspected(node: Node) -> list[dict[str, Any]]:
    """`docker inspect` of all containers with a task, ended ones too; raises EngineDown."""
    ids = node.sh("docker ps --all --quiet --no-trunc --filter label=agentless.task")
    if ids.returncode:
        raise EngineDown(ids.stderr)
    if not ids.stdout:
        return []
    found: list[dict[str, Any]] = json.loads(node.sh(f"docker inspect {ids.stdout.replace(chr(10), ' ')}").stdout)
    return found


def seconds(text: str) -> float:
    """Unix seconds of an RFC 3339 time with any number of decimals."""
    whole, _, rest = text.rstrip("Z").partition("+")[0].partition(".")
    return datetime.fromisoformat(whole + "+00:00").timestamp() + float(f"0.{rest or 0}")


def _life(labels: dict[str, str]) -> Life:
    listed = [uuid for uuid in labels.get("agentless.gpus", "").split(",") if uuid]
    # A part of a GPU stands behind its GPU, which others may have parts of.
    gpus = tuple(uuid for uuid in listed if not any(other.startswith(f"{uuid}_") for other in listed))
    return Life(labels["agentless.task"], gpus, json.loads(labels["agentless.spec"])["spec"].get("name", ""))
