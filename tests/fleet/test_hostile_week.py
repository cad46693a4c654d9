"""A week with three hostile nodes among ten: nothing runs that nobody submitted, and the good nodes do not notice.

The hostile ones change at every step what their nvidia-smi, their docker, their login shell and their SSH server are;
they make containers with labels of other tasks, changed by one who knows every name in them, and meddle with those that
are there. One of them and one good node are in the inventory under two names. Judged by the engines of the nodes.

In `make test` some dozens of steps, chosen the same each time. With AGENTLESS_FAULTS=1, which is what `make faults`
sets, 2,000 others each time, with the seed and a summary at the end. Simulated nodes have one engine each: of "two
engines on a node" there is here a docker that knows nothing of its containers for a while. Two real ones are in
`tests/real/test_engines.py`.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agentless.demo.fleet import NodePlan
from agentless.errors import AgentlessError
from agentless.model.tasks.task_id import first_try
from tests import ready
from tests.fleet import hasty
from tests.fleet.person import Person
from tests.fleet.test_hostile import memory
from tests.fleet.truth import doubles, misheld, untrue
from tests.fleet.villain import Villain
from tests.fleet.world import MARK, Truth, World

LONG = bool(os.environ.get("AGENTLESS_FAULTS"))
STEPS = 2000 if LONG else 30
SEED = int.from_bytes(os.urandom(4)) if LONG else 1
GOOD = [f"good{n}" for n in range(1, 8)]
HOSTILE = ["evil1", "evil2", "evil3"]
NAMES = {"again": "evil3", "twin": "good7"}
"""Second names of two of them."""
KIND = [*GOOD, "twin"]
"""All names of the good ones."""
MEMORY = 200 << 20
"""Bytes, at most, of the controller."""
PATIENCE = 1.0
"""Seconds that a person waits for an answer before doing something else."""
SETTLED_WITHIN = 60.0
"""Seconds without any progress, once the hostile nodes are gone, after which what is not true is never."""
SLOWER = 2.0
"""So many times as long as without the hostile nodes a submit to a good one may take."""
SCRIPTS = {
    "done": "true",
    "speaks": "echo words; echo more >&2",
    "fails": "exit 3",
    "soon": "sleep 0.3; exit 4",
    "later": "sleep 1.5",
    "stays": "sleep 1000",
}
CHANGES = ["stop", "kill", "pause", "resume", "retry", "rm", "rm --force"]
QUESTIONS = [
    *("/v1/tasks", "/v1/nodes", "/v1/gpus", "/v1/queue", "/v1/doctor", "/v1/recovery", "/v1/shares", "/v1/usage"),
    *("/v1/volumes", "/v1/envs", "/v1/reservations"),
]
TYPED = [
    *("ps", "ps --all", "ps --json", "queue", "gpus", "gpus --json", "nodes", "nodes --json", "doctor", "usage"),
    *("events --last 30", "recover --json", "explain 1x", "explain evil1::0", "explain good1::0", "nodes show evil1"),
    *("doctor evil2", "show TASK", "explain TASK", "events TASK", "logs OWN"),
    *("show FOREIGN", "events FOREIGN", "explain FOREIGN", "retry FOREIGN", "stop FOREIGN", "kill FOREIGN"),
    *("rm FOREIGN", "volume list", "env list", "queue --shares"),
    *("submit evil1::0 --no-queue -- true", "submit evil3 again --no-queue -- true", "controller status"),
]  # fmt: skip
TYPED_MARK = "typed"
"""Stands for the mark of what a command has submitted, which has no label."""

counts: Counter[str] = Counter()


class Untrue(AssertionError):
    """What does not hold."""


@dataclass(frozen=True)
class Order:
    """A submit: its commands, each for so many tasks that are tried so often; `nodes` that will do, none: all."""

    commands: tuple[tuple[str, ...], ...]
    nodes: tuple[str, ...] = ()
    tasks: int = 1
    tries: int = 1


def unasked(containers: Sequence[Truth], orders: Mapping[str, Order], retried: Mapping[str, int]) -> Iterator[str]:
    """Containers that agentless has made and nobody has asked for; `retried` is how often a task was, by its id."""
    tries: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for container in containers:
        mark = container.labels.get(MARK, TYPED_MARK)
        order = orders.get(mark)
        if order is None or container.command not in order.commands:
            yield f"nobody asked for {container}: {container.command}"
        elif order.nodes and container.node not in order.nodes:
            yield f"{container} was asked for on {order.nodes}"
        else:
            tries[mark, container.command].add(container.task)
    for (mark, command), tasks in tries.items():
        most = orders[mark].tasks * orders[mark].tries + sum(
            retried.get(first, 0) for first in set(map(first_try, tasks))
        )
        if mark != TYPED_MARK and len(tasks) > most:
            yield f"#{mark}, {command}, was tried as {sorted(tasks)}, and {most} times was asked for"


def control_characters(text: str) -> str:
    """Those of a text that no output may have."""
    return "".join(sorted({c for c in text if not c.isprintable() and c not in "\n\t"}))


class Week:
    """The people, the villains, and what happened."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.random = Random(SEED)
        self.began = time.monotonic()
        self.trace: list[str] = []
        self.orders = {TYPED_MARK: Order((("true",),), tuple(HOSTILE))}
        self.retried: Counter[str] = Counter()
        self.took: dict[str, list[float]] = defaultdict(list)
        self.peak = 0
        plans = [NodePlan(name, 2) for name in (*GOOD, *HOSTILE)]
        self.world = stack.enter_context(World(root / "fleet", plans, {}))
        lines = self.world.fleet.inventory.read_text().splitlines()
        again = [
            f"  {name}:{line.partition(':')[2]}"
            for name, of in NAMES.items()
            for line in lines
            if line.startswith(f"  {of}:")
        ]
        inventories = {"ann": [*lines, *again]}
        if LONG:  # whose submits are compared to ann's
            inventories["bob"] = [line for line in lines if line.strip().partition(":")[0] not in HOSTILE]
        self.people = {}
        for name, text in inventories.items():
            inventory = root / f"{name}.yaml"
            inventory.write_text("\n".join(text) + "\n")
            self.people[name] = Person(name, root / name, inventory, self.world.fleet.known_hosts, 5.0)
            stack.callback(self.people[name].crash)
            self.people[name].start()
        self.ann = self.people["ann"]
        # Who has a GPU first keeps it: all are honest when they are seen first.
        self._until(lambda: [node["name"] for node in self.ann.nodes() if node["state"] != "online"][2:])
        self.villains = [Villain(self.world, name, root / "evil", self.random, self._loot, GOOD) for name in HOSTILE]
        for villain in self.villains:
            stack.callback(villain.retire)

    # ------------------------------------------------------------------ steps

    def step(self) -> None:
        """One of the hostile ones does something, and one of the people."""
        villain = self.random.choice(self.villains)
        self._count("hostile deeds", villain._node.name, villain.act())
        often = {self._submit: 8, self._change: 5, self._ask: 4, self._type: 3, self._crash: 0.5, self._measure: 2}
        (deed,) = self.random.choices([*often], [*often.values()])
        deed()
        self._collect()

    def _submit(self) -> None:
        mark = str(len(self.orders))
        kinds = self.random.choices([*SCRIPTS], k=self.random.choice((1, 1, 1, 3)))
        commands = tuple(("sh", "-c", SCRIPTS[kind], f"{mark}-{n}") for n, kind in enumerate(kinds))
        retries = self.random.choice((0, 0, 0, 1, 2))
        nodes = self.random.sample([*KIND, *HOSTILE, *GOOD, "again"], self.random.choice((0, 1, 1, 2)))
        nodes = list(dict.fromkeys(nodes))
        targets = [f"{node}::{self.random.randrange(2)}" if self.random.random() < 0.7 else node for node in nodes]
        queue = self.random.random() < 0.5 or not targets
        terms = {"wait_for": None if queue else 0, "retries": retries, "backoff": 0.2}
        spec = {"command": commands[0], "stop_grace": 0.3, "labels": {MARK: mark}, "terms": terms}
        if not targets:
            spec["needs"] = {"gpus": self.random.choice((0, 1, 1, 2))}
        body: dict[str, Any] = {"targets": targets, "spec": spec}
        if len(commands) > 1:
            body["sweep"] = [{"command": command, "parameters": {"n": command[-1]}} for command in commands]
        allowed = tuple(dict.fromkeys(NAMES.get(node, node) for node in nodes))
        self.orders[mark] = Order(commands, allowed, max(1, len(targets)), 1 + retries)
        self._count("submits", f"#{mark}", *targets, *kinds, f"{retries} retries")
        self.ann.order(mark, body).wait(PATIENCE)

    def _change(self) -> None:
        tasks = sorted(self.ann.accepted)
        if not tasks:
            return
        task, verb = self.random.choice(tasks[-6:]), self.random.choice(CHANGES)
        self._count("changes", verb, task)
        if verb == "retry":
            self.retried[first_try(task)] += 1
        if verb.startswith("rm"):
            request = self.ann.remove(task, force=verb.endswith("--force"))
        elif verb == "retry":
            request = self.ann.ask("post", f"/v1/tasks/{task}/retry")
        else:
            request = self.ann.change(verb, task)
        request.wait(PATIENCE)

    def _ask(self) -> None:
        path = self.random.choice(QUESTIONS)
        self._count("questions", path)
        self.ann.ask("get", path).wait(PATIENCE)

    def _type(self) -> None:
        line = self.random.choice((*TYPED, *["ps", "ps --all", "nodes", "show FOREIGN"] * 5))
        for word, ids in {"TASK": sorted(self.ann.accepted), "OWN": self._own(), "FOREIGN": self._foreign()}.items():
            if word in line:
                if not ids:
                    return
                line = line.replace(word, self.random.choice(ids[-10:]))
        self._count("commands typed", line)
        self.ann.start()
        done = ready.agentless(*line.split(), env=self.ann.environment, timeout=120)
        for text in (done.stdout, done.stderr):
            if "Traceback" in text:
                self._demand([f"{line} ended with {text}"])
            if odd := control_characters(text):
                self._demand([f"{line} printed {odd!a}: {text!a}"])

    def _crash(self) -> None:
        """Of both, so that neither is the warmer one."""
        self._count("crashes of the controllers")
        self._weigh()
        for person in self.people.values():
            person.crash()
            person.start()

    def _measure(self) -> None:
        """How long a submit takes, with the hostile nodes and without them: one after the other, in any order."""
        self._until(lambda: [r.words for person in self.people.values() for r in person.waits()])
        node = self.random.choice(GOOD[:-1])
        for person in self.people.values():
            self._until(lambda person=person: person.nodes() and [
                each for each in person.nodes() if each["name"] == node and each["state"] != "online"
            ])  # fmt: skip
        for name in self.random.sample([*self.people], len(self.people)):
            mark = str(len(self.orders))
            command = ("true", mark)
            self.orders[mark] = Order((command,), (node,))
            spec = {"command": command, "labels": {MARK: mark}, "terms": {"wait_for": 0}}
            began = time.monotonic()
            request = self.people[name].order(mark, {"targets": [node], "spec": spec})
            self._demand([] if request.wait(60) else [f"{name}: a submit to {node} got no answer"])
            took = time.monotonic() - began
            (start,) = request.answer or [{"exit_code": None, "message": request.error}]
            self._demand([] if start["exit_code"] == 0 else [f"{name}: {node} refused: {start['message']}"])
            self.took[name].append(took)
            self._count(f"submits of {name} timed", node, f"{took:.3f}")

    # ------------------------------------------------------------------ what must hold

    def check(self) -> None:
        """At any moment: nothing that nobody asked for, nothing double, and not too much memory."""
        containers = self._honest()
        problems = list(unasked(containers, self.orders, self.retried))
        problems += doubles([each for each in containers if each.node in GOOD])
        self._weigh()
        if self.peak > MEMORY:
            problems.append(f"the controller had {self.peak >> 20} MiB")
        self._demand(problems)

    def settle(self) -> None:
        """Without the hostile ones everything on the good nodes comes to its true end."""
        for villain in self.villains:
            villain.retire()
        self._until(lambda: [r.words for person in self.people.values() for r in person.waits()])
        self._collect()
        self._until(self._unsettled)
        self.check()

    def _unsettled(self) -> list[str]:
        problems, containers = list[str](), [each for each in self._honest() if each.node in GOOD]
        for name, person in self.people.items():
            mine = [each for each in containers if each.owner == name]
            try:
                tasks = person.tasks()
                known = {task["id"] for task in tasks}
                nodes = {node["name"]: node for node in person.nodes() if node["name"] in KIND}
                odd = [node for node in nodes.values() if node["state"] != "online"]
                # What has two names serves under one of them.
                odd = [node for node in odd if (len(nodes) < len(KIND) or node["name"] in GOOD[:-1])]
                gpus = [gpu for gpu in person.gpus() if nodes.get(gpu["node"], {}).get("state") == "online"]
            except (AgentlessError, TimeoutError) as error:
                problems.append(f"{name} was told: {error!r}")
                continue
            here = [task for task in tasks if task["mine"] and task["node"] in KIND]
            problems += [f"{task} was accepted and is unknown" for task in sorted(person.accepted - known)]
            problems += untrue(here, mine, (), defaultdict(list))
            problems += misheld(gpus, containers)
            problems += [f"{node['name']} is {node['state']}: {node['reason']}" for node in odd]
            waiting = [task for task in tasks if task["mine"] and task["state"] == "pending"]
            waiting = [task for task in waiting if not self._may_wait(task)]
            problems += [f"{task['id']} waits: {task['reason']}" for task in waiting]
            live = [task for task in here if not task["ended_at"] and task["state"] != "pending"]
            for task in live:
                problems.append(f"{task['id']} is {task['state']}")
                person.change("kill", task["id"]).wait(PATIENCE)
        return problems

    def _may_wait(self, task: Mapping[str, Any]) -> bool:
        """Whether it may be meant for a hostile node, or for the name under which a machine does not serve."""
        order = self.orders[task["labels"].get(MARK, TYPED_MARK)]
        return bool(order.nodes) and not set(order.nodes) <= set(GOOD[:-1])

    # ------------------------------------------------------------------ inside

    def _honest(self) -> list[Truth]:
        """The containers that agentless has made."""
        made = {each for villain in self.villains for each in villain.made}
        return [each for each in self.world.containers() if each.id not in made]

    def _loot(self) -> list[dict[str, str]]:
        return [each.labels for each in self.world.containers()]

    def _own(self) -> list[str]:
        """Tasks whose log is what their program has printed."""
        containers = self._honest()
        return [each.task for each in containers if each.node in GOOD and each.owner == "ann" and not each.gone]

    def _foreign(self) -> list[str]:
        return [task["id"] for task in self.ann.tasks() if task["foreign"] and task["node"] not in KIND]

    def _collect(self) -> None:
        for person in self.people.values():
            for words in person.collect():
                self._say(person.name, words)
            self._demand(person.unforeseen())
            self._demand([] if person.pid else [f"the controller of {person.name} has ended"])

    def _weigh(self) -> None:
        if self.ann.pid:
            self.peak = max(self.peak, memory(self.ann.pid))

    def _until(self, problems: Any) -> None:
        until, least = time.monotonic() + SETTLED_WITHIN, sys.maxsize
        while found := problems():
            if len(found) < least:
                until, least = time.monotonic() + SETTLED_WITHIN, len(found)
            self._demand(list(map(str, found)) if time.monotonic() > until else [])
            time.sleep(0.05)

    def _count(self, what: str, *words: str) -> None:
        counts[what] += 1
        self._say(what, *words)

    def _say(self, *words: str) -> None:
        self.trace.append(f"{time.monotonic() - self.began:8.3f}  {' '.join(words)}")

    def _demand(self, problems: Collection[str]) -> None:
        if problems:
            logs = [f"{name}: {line}" for name, who in self.people.items() for line in who.log.text.splitlines()[-15:]]
            now = f"seed {SEED}; what happened until {time.monotonic() - self.began:.3f}:"
            raise Untrue("\n".join([*problems, "", now, *self.trace[-120:], "", *logs]))


@pytest.mark.slow
def test_nothing_runs_that_nobody_submitted_whatever_hostile_nodes_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts.clear()
    monkeypatch.setenv(hasty.LOOK_WITHIN, "6")
    with ExitStack() as stack:
        week = Week(tmp_path, stack)
        for number in range(STEPS):
            week.step()
            if number % 10 == 9:
                week.check()
        week.settle()
    if LONG:
        with capsys.disabled():
            print("\n" + "\n".join([f"  seed {SEED}, {STEPS} steps", *summary(week)]))
        with_them, without = (p95(week.took[name]) for name in ("ann", "bob"))
        assert with_them <= SLOWER * without


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def summary(week: Week) -> Iterator[str]:
    yield from (f"{number:6} {what}" for what, number in counts.items())
    yield f"{sum(len(villain.made) for villain in week.villains):6} containers of the hostile nodes' own"
    yield f"{week.peak >> 20:6} MiB, the most that the controller had"
    for name, words in {"ann": "with", "bob": "without"}.items():
        took = [1000 * each for each in week.took[name]]
        yield f"{p95(took):6.0f} ms, the p95 of submit {words} the hostile nodes; median {statistics.median(took):.0f}"
