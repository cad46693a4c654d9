"""A node whose programs, SSH server and containers are what somebody hostile makes of them, at each step anew."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

from agentless.demo.engine.container import Config
from agentless.demo.engine.engine import DEFAULT_IMAGE, Complaint
from agentless.model.containers.claim import CONTROLLER, GPUS, OWNER, SPEC, TASK, VOLUME
from agentless.model.containers.signature import COVERED, SIGNATURE
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task_id import first_try, is_task_id, new_task_id, next_try
from agentless.model.tasks.terms import Terms
from tests.fleet.test_hostile import KINDS
from tests.fleet.test_hostile_words import EVIL
from tests.fleet.world import World

Labels = dict[str, str]

_REAL = {"sh": "/bin/sh"}
_GOOD = 'exec "$REAL" "$@"'
_ESCAPES = "printf 'Error\\033[31m\\033]0;title\\007\\n[bold]FORGED: all is well\\r\\302\\2332J\\n'"
_OTHERWISE = f"*) {_GOOD} ;; esac"
# Besides the kinds of `test_hostile.py`, which say too much: those that lie, refuse or dawdle. OTHERS are the UUIDs of
# the GPUs of a good node.
_MOODS: dict[str, list[str]] = {
    "nvidia-smi": [
        'set -- "$@" OTHERS; other=; for other; do :; done; "$REAL" "$1" "$2" | sed "s/GPU-[0-9a-f-]*/$other/g"',
        "echo 'GPU-?, -1, NaN, 1e999'; exit 0",
        f"{_ESCAPES}; {_ESCAPES} >&2; exit 9",
        f'{_ESCAPES}; "$REAL" "$@"',
        "exec sleep 1000",
        "exit 0",
        "head -c 3000 /dev/urandom",
    ],
    "docker": [
        f"case $1 in ps|inspect) head -c 4000 /dev/urandom ;; {_OTHERWISE}",
        f"case $1 in inspect) echo '{{\"id\":[[[[' ;; info) echo '{{' ;; {_OTHERWISE}",
        # Its containers are another engine's for a while.
        f"case $1 in ps) ;; inspect) echo 'Error: No such object' >&2; exit 1 ;; {_OTHERWISE}",
        f'case $1 in inspect) "$REAL" "$@" | sed \'s/"Status":"running"/"Status":"exited"/\' ;; {_OTHERWISE}',
        f'case $1 in inspect) "$REAL" "$@" | sed \'s/"ExitCode":[0-9]*/"ExitCode":-7/\' ;; {_OTHERWISE}',
        f'case $1 in inspect) "$REAL" "$@" | sed \'s/"Error":"/&\\\\u001b[31m/\' ;; {_OTHERWISE}',
        f"case $1 in inspect) \"$REAL\" \"$@\" | sed 's/:[0-9][0-9]Z/:99Z/g; s/202[0-9]-/9999-/g' ;; {_OTHERWISE}",
        f"case $1 in run|create|start|stop|kill|rm) {_ESCAPES} >&2; exit 125 ;; {_OTHERWISE}",
        f"case $1 in run) {_ESCAPES}; exit 0 ;; {_OTHERWISE}",
        # It does what it is told, and denies it.
        f'case $1 in run|stop|kill|rm) "$REAL" "$@" >/dev/null; {_ESCAPES} >&2; exit 1 ;; {_OTHERWISE}',
        f"case $1 in events) {_ESCAPES}; exec sleep 1000 ;; {_OTHERWISE}",
        f"case $1 in logs) {_ESCAPES} >&2; exec yes ;; {_OTHERWISE}",
        f"sleep 2; {_GOOD}",
        f"{_ESCAPES} >&2; exit 1",
    ],
    "sh": [f'{_ESCAPES}; {_ESCAPES} >&2; exec /bin/sh "$@"', "exit 1", "exec sleep 1000", _GOOD],
}  # fmt: skip
for _program, _body, _ in KINDS.values():
    _MOODS[_program].append(_body)
_GREETINGS = ("silence", "noise", "a banner", "endless lines")
_NAMES = (*COVERED, SIGNATURE, VOLUME)
_VALUES = (
    *("", " ", EVIL, "x" * 300_000, "-1", "1e999", "NaN", "[]", "{" * 3000, "null", "true", "é", "../../etc", "n1::0"),
    *("0,1,2", "99999999999999999999", "1:" + "0" * 64, '{"spec":{}}'),
)
_ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3, 10**30, 1e300, "", EVIL, "NULL", [], ["true"], [""], [EVIL], {}, {"A": EVIL}),
    *({EVIL: EVIL}, [["a"]], ["SECRET"], "/", "x" * 5000),
    *([{"source": "/", "target": "/host"}], [{"source": "/etc/passwd", "target": ".", "snapshot": "0" * 64}]),
    *([{"path": "/etc/passwd", "local": "/tmp/{id}/../../evil"}], [{"name": "v", "target": "/v"}]),
)
_FAILS = ["sh", "-c", "exit 1"]
_COMMANDS = (["sleep", "600"], _FAILS, ["true"], ["touch", "forged"], ["sh", "-c", "sleep 1; exit 3"])
_MEDDLING = ("rm", "kill", "stop", "pause", "unpause", "rename", "restart", "start")
MOST = 25
"""Containers that it has made and that are there."""


class Villain:
    """The node `name` of a world. `loot` gives the labels of all containers that ever were, `good` are other nodes.

    `made` are the ids of the containers that it has made itself: no others there are anybody's but agentless's.
    """

    def __init__(
        self, world: World, name: str, root: Path, random: Random, loot: Callable[[], Sequence[Labels]], good: list[str]
    ) -> None:
        self.made: list[str] = []
        self._world, self._node, self._random, self._loot = world, world.nodes[name], random, loot
        self._good = good
        self._uuids = [uuid for each in good for uuid in world.nodes[each].gpus.uuids]
        self._folder = root / name
        self._folder.mkdir(parents=True)
        self._real = self._node.env["PATH"].partition(":")[0]
        self._server: asyncio.Server | None = None
        self._guests: set[asyncio.StreamWriter] = set()
        for program in _MOODS:
            self._put(program, _GOOD)
        self._node.env["PATH"] = f"{self._folder}:{self._node.env['PATH']}"

    def act(self) -> str:
        """Do something hostile, or repent for a while; gives it in words."""
        deeds = (self._change, self._change, self._greet, self._drop, *[self._forge] * 5, *[self._meddle] * 3)
        return self.repent() if self._random.random() < 0.35 else self._random.choice(deeds)()

    def repent(self) -> str:
        """Be as other nodes are."""
        for program in _MOODS:
            self._put(program, _GOOD)
        self._world.do(self._welcome)
        return "repents"

    def retire(self) -> None:
        """Answer nobody any more."""
        self._world.do(self._welcome)
        self._world.do(self._node.cut)

    # ------------------------------------------------------------------ programs

    def _change(self) -> str:
        program = self._random.choice(list(_MOODS))
        number = self._random.randrange(len(_MOODS[program]))
        self._put(program, _MOODS[program][number].replace("OTHERS", " ".join(self._random.sample(self._uuids, 1))))
        if program == "sh":
            self._drop()
        return f"has {program} number {number}"

    def _put(self, program: str, body: str) -> None:
        real = _REAL.get(program, f"{self._real}/{program}")
        fresh = self._folder / f".{program}"
        fresh.write_text(f"#!/bin/sh\nREAL={real}\n{body}\n")
        fresh.chmod(0o755)
        os.replace(fresh, self._folder / program)

    # ------------------------------------------------------------------ its server

    def _drop(self) -> str:
        self._world.do(self._node._sshd.drop)
        return "drops its connections"

    def _greet(self) -> str:
        """Something else than an SSH server answers there, or nothing at all."""
        greeting = self._random.choice((*_GREETINGS, "nobody"))
        self._world.do(self._pose, greeting)
        return f"answers with {greeting}"

    async def _pose(self, greeting: str) -> None:
        self._leave()
        self._node.cut()
        if greeting != "nobody":
            serve = lambda reader, writer: self._babble(greeting, reader, writer)  # noqa: E731 - it has to know which
            self._server = await asyncio.start_server(serve, "127.0.0.1", self._node.port)

    async def _welcome(self) -> None:
        if self._server:
            self._leave()
        await self._node.restore()

    def _leave(self) -> None:
        if self._server:
            self._server.close()
            self._server = None
        for guest in self._guests:
            guest.transport.abort()

    async def _babble(self, greeting: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._guests.add(writer)
        try:
            with suppress(OSError):
                if greeting == "a banner":
                    writer.write(b"SSH-2.0-\x1b[31mevil\x07\x9b2J\r\n" + os.urandom(2000))
                while greeting in ("noise", "endless lines"):
                    writer.write(os.urandom(4096) if greeting == "noise" else b"\x1b]0;evil\x07 welcome\r\n" * 100)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                while await reader.read(65536):
                    pass
        finally:
            self._guests.discard(writer)
            writer.transport.abort()

    # ------------------------------------------------------------------ containers

    def _forge(self) -> str:
        """A container with labels that somebody else's has, more or less; created, running or ended."""
        loot = self._loot()
        name, command, gpus = "", self._random.choice((_FAILS, _FAILS, ["sleep", "600"])), list[str]()
        if loot and self._random.random() < 0.5:
            labels = wanted_elsewhere(self._random, loot, self._good)
        else:
            labels = forged(self._random, loot, self._uuids, [*self._good, self._node.name])
            name = self._random.choice(("", "", f"somebodys-{len(self.made)}"))
            command = self._random.choice(_COMMANDS)
            gpus = self._random.choice(([], self._node.gpus.uuids[:1]))
        name = name or f"agentless-{labels.get(TASK, 'none')}"
        config = Config(name, DEFAULT_IMAGE, list(command), labels, gpus=gpus)
        self._world.do(self._create, config, start=self._random.random() < 0.8)
        return f"has a forged {labels.get(TASK, '')[:20]!a}"

    async def _create(self, config: Config, *, start: bool) -> None:
        engine = self._node.engine
        there = [engine.containers[each] for each in self.made if each in engine.containers]
        for container in there[: max(0, len(there) - MOST)]:
            await engine.remove(container, force=True)
        with suppress(Complaint, OSError):  # a name that no container can have, or that one has
            container = engine.create(config)
            self.made.append(container.id)
            if start:
                engine.start(container)

    def _meddle(self) -> str:
        """What somebody does by hand, to containers of agentless as well."""
        there = [each for each in self._world.containers() if each.node == self._node.name and not each.gone]
        if not there:
            return "has nothing to meddle with"
        container, verb = self._random.choice(there[-MOST:]), self._random.choice(_MEDDLING)
        loot = self._random.choice(self._loot())
        name = self._random.choice((f"agentless-{loot.get(TASK, '')}", f"somebody-{time.monotonic_ns()}"))
        with suppress(Complaint, OSError):
            self._world.by_hand(verb, container, name)
        return f"does {verb} by hand"


def wanted_elsewhere(random: Random, loot: Sequence[Labels], nodes: Sequence[str]) -> Labels:
    """Labels of a task that a controller which believed them would try again on one of these nodes."""
    labels = dict(random.choice(loot))
    task = labels.get(TASK, "")
    fresh = new_task_id(time.time())
    labels[TASK] = random.choice((fresh, fresh, next_try(task) if is_task_id(task) else fresh))
    owner = random.choice((labels.get(OWNER, ""), EVIL))
    return labels | {OWNER: owner, GPUS: "", SPEC: _another_spec(random, labels.get(SPEC, ""), nodes, odd=0)}


def forged(random: Random, loot: Sequence[Labels], uuids: Sequence[str], nodes: Sequence[str]) -> Labels:
    """The labels of some container, changed in some places; `nodes` are those that a forged spec may want."""
    labels = dict(random.choice(loot)) if loot else {TASK: new_task_id(time.time()), OWNER: "eve"}
    task = labels.get(TASK, "")
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        other = random.choice(loot) if loot else labels
        match random.randrange(8):
            case 0:
                labels[random.choice(_NAMES)] = random.choice(_VALUES)
            case 1:
                labels.pop(random.choice(_NAMES), None)
            case 2 if is_task_id(task):
                labels[TASK] = random.choice((
                    *(next_try(task), next_try(next_try(task)), f"{first_try(task)}-9999", f"{task[:28]}0"),
                    *(first_try(task), new_task_id(time.time())),
                ))  # fmt: skip
            case 3:
                labels[GPUS] = ",".join(random.sample(uuids, random.choice((1, 1, 2, len(uuids)))))
            case 4:
                name = random.choice((*_NAMES, SIGNATURE, TASK, CONTROLLER))
                labels[name] = other.get(name, "")
            case _:
                labels[SPEC] = _another_spec(random, labels.get(SPEC, ""), nodes, odd=random.randrange(3))
    return labels


def _another_spec(random: Random, text: str, nodes: Sequence[str], odd: int) -> str:
    """The spec of a task on another node, to be tried again there, with so many `odd` values besides."""
    try:
        whole = json.loads(text)
        spec = whole["spec"]
        needs, terms = spec.setdefault("needs", {}), spec.setdefault("terms", {})
        needs["nodes"] = [random.choice(nodes)]
        terms |= {"retries": 3, "backoff": 0.0}
        spec["command"] = random.choice(_COMMANDS)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return random.choice(_VALUES)
    for _ in range(odd):
        place: tuple[Mapping[str, Any], Sequence[str]] = random.choice((
            (spec, [field.name for field in fields(TaskSpec)]),
            (needs, [field.name for field in fields(Needs)]),
            (terms, [field.name for field in fields(Terms)]),
            (whole, list(whole)),
        ))  # fmt: skip
        place[0][random.choice(place[1])] = random.choice(_ODD)
        if not (spec is whole.get("spec") and needs is spec.get("needs") and terms is spec.get("terms")):
            break
    return json.dumps(whole)
