"""Two people, simulated nodes, and everything that can break, in any order: nothing is lost and nothing given twice.

In `make test` some dozens of steps, the same ones each time. With AGENTLESS_FAULTS=1, which is what `make faults` sets,
thousands of other ones each time, and a summary at the end.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from agentless.demo.engine.engine import Complaint
from agentless.demo.fleet import NodePlan
from agentless.demo.node import Moment
from agentless.errors import AgentlessError
from tests.fleet.person import Person, Request
from tests.fleet.steps import AHEAD, COMMANDS, NODES, PEOPLE, STEPS, Step
from tests.fleet.truth import doubles, idle, misheld, unkept, unready, unseen, untold, untrue
from tests.fleet.world import MARK, Truth, World

LONG = bool(os.environ.get("AGENTLESS_FAULTS"))
PATIENCE = 2.0
"""Seconds that a person waits for an answer before doing something else."""
FREED_WITHIN = 6.0
"""Seconds that a GPU which nobody will use is waited for; see REAP_AFTER in `hasty.py`."""
SETTLED_WITHIN = 15.0
"""Seconds after the last fault in which everything has to be true again."""
EVERYTHING = 3
"""With this seed every kind of step comes in the short run, most of them several times."""

counts: Counter[str] = Counter()


class Untrue(BaseException):
    """What does not hold. Past Hypothesis: much depends on the moment, so that it would see it once and never again."""


class Truthful(RuleBasedStateMachine):
    """Every step is something that people or fate may do; the invariant and `settle` say what must hold."""

    @initialize()
    def begin(self) -> None:
        self.stack = ExitStack()
        self.trace: list[str] = []
        self.began = time.monotonic()
        root = Path(tempfile.mkdtemp(prefix="agentless-truth-"))
        self.stack.callback(shutil.rmtree, root, ignore_errors=True)
        self.world = self.stack.enter_context(World(root / "fleet", [NodePlan(*plan) for plan in NODES.items()], AHEAD))
        fleet = self.world.fleet
        self.people = {
            name: Person(name, root / name, fleet.inventory, fleet.known_hosts, looks) for name, looks in PEOPLE.items()
        }
        for person in self.people.values():
            self.stack.callback(person.crash)
            person.start()
        self.submits = 0

    @rule(step=STEPS)
    def step(self, step: Step) -> None:
        for request in self._do(step):
            request.wait(PATIENCE)

    def amid(self, asked: Step, moment: float, fate: Step) -> list[Request]:
        """Something is asked for, and before the answer is there fate strikes."""
        requests = self._do(asked)
        requests[:1] and requests[0].wait(moment)
        self._count("times amid a request", f"after {moment:.3f} s")
        self._do(fate)
        return requests

    # ------------------------------------------------------------------ people

    def submit(self, person: str, targets: Sequence[str], command: str, *, queue: bool) -> list[Request]:
        self.submits += 1
        self._count("queued submits" if queue else "submits", person, f"#{self.submits}", *targets, command)
        secrets = {"CODE": "6"} if command == "secret" else {}
        return [self.people[person].submit(str(self.submits), targets, COMMANDS[command], secrets, queue=queue)]

    def race(self, targets: Sequence[str]) -> list[Request]:
        return [request for person in self.people for request in self.submit(person, targets, "stays", queue=False)]

    def change(self, person: str, verb: str, pick: int) -> list[Request]:
        tasks = sorted(set[str]().union(*(person.accepted for person in self.people.values())))
        if not tasks:
            return []
        task = tasks[-1 - pick % len(tasks)]  # one of the newest
        self._count("other requests", person, verb, task)
        if verb.startswith("rm"):
            return [self.people[person].remove(task, force=verb.endswith("--force"))]
        return [self.people[person].change(verb, task)]

    # -------------------------------------------------------------------- fate

    def crash(self, person: str) -> None:
        self._count("crashes of a controller", person)
        self.people[person].crash()

    def forget(self, person: str) -> None:
        self._count("states lost", person)
        self.people[person].crash()
        for request in self.people[person].waits():
            request.wait(PATIENCE)
        self._collect()
        self.people[person].forget()

    def strike(self, person: str, node: str) -> None:
        self._count("inventories cut down", person, node)
        self.people[person].strike(node)

    def swap(self, person: str, node: str, other: str) -> None:
        """Not while a launch is under way: it would be made over there."""
        who = self.people[person]
        launching = [task for task in who.tasks() if task["state"] in ("assigning", "lost") and not task["container"]]
        if node != other and not launching and not who.waits():
            self._count("addresses mixed up", person, node, "at", other)
            who.swap(node, other)

    def forsake(self, person: str, node: str) -> None:
        """A launch dies between create and start, and its controller with it: another one has to free the GPU."""
        self._count("launches forsaken", person, node)
        self.world.do(self.world.nodes[node].lose_answer, "create", "after")
        (request,) = self.submit(person, [f"{node}::0"], "stays", queue=False)
        mark = str(self.submits)
        while not (created := self.world.unstarted(mark)) and not request.wait(0.01):
            pass
        if created:
            self.people[person].crash()
            for other in self.people.values():
                if other.name != person:
                    other.start()
            until = time.monotonic() + FREED_WITHIN
            while self.world.unstarted(mark) and time.monotonic() < until:
                time.sleep(0.05)
            self._count("GPUs freed of them" if not self.world.unstarted(mark) else "GPUs not freed of them")

    def lose_answer(self, node: str, verb: str, moment: Moment) -> None:
        self._count("lost answers", node, verb, moment)
        self.world.do(self.world.nodes[node].lose_answer, verb, moment)

    def cut(self, node: str) -> None:
        self._count("links cut", node)
        self.world.do(self.world.nodes[node].cut)

    def reboot(self, node: str) -> None:
        self._count("reboots", node)
        self.world.do(self.world.nodes[node].reboot)

    def stop_engine(self, node: str, *, live_restore: bool) -> None:
        self._count("engines stopped", node, "alone" if live_restore else "with its containers")
        self.world.do(self.world.nodes[node].stop_engine, live_restore=live_restore)
        # No engine is back sooner: one that restarts between a full look and the listening after it is not noticed.
        time.sleep(0.5)

    def mend(self, node: str) -> None:
        self._say("mended", node)
        for cure in ("keep_answers", "start_engine", "restore"):
            self.world.do(getattr(self.world.nodes[node], cure))
        for person in self.people.values():
            person.list_all()

    def by_hand(self, verb: str, pick: int) -> None:
        """What somebody on the node does with `docker`, behind our back; it need not be possible."""
        there = [container for container in self.world.containers() if not container.gone]
        if there := [container for container in there if container.live == (verb != "start")]:
            container = there[-1 - pick % len(there)]  # one of the newest
            with suppress(Complaint):
                self.world.by_hand(verb, container, f"somebody-{len(self.trace)}")
                self._count("changes by hand", verb, container.task)

    def jump(self, node: str, hours: int) -> None:
        self._count("clock jumps", node, f"{hours:+} h")
        self.world.set_clock(node, hours * 3600.0)

    # ------------------------------------------------------------- what must hold

    @invariant()
    def nothing_twice(self) -> None:
        counts["steps"] += 1
        self._collect()
        self._demand(list(doubles(self.world.containers())))

    def settle(self) -> None:
        """Mend everything; after a while everything has to be true."""
        self._count("times settled")
        for node in NODES:
            self.mend(node)
        for request in [request for person in self.people.values() for request in person.waits()]:
            self._demand([] if request.wait(60) else [f"{request.words} got no answer"])
        self._collect()
        began = time.monotonic()
        while problems := self._problems():
            self._demand(problems if time.monotonic() - began > SETTLED_WITHIN else [])
            time.sleep(0.05)
        took = time.monotonic() - began
        self._say(f"settled after {took:.2f} s")
        counts["ms for the slowest settling"] = max(counts["ms for the slowest settling"], round(took * 1000))

    def teardown(self) -> None:
        if not hasattr(self, "stack"):
            return
        with self.stack:
            # While a failure is on its way out there is nothing more to learn.
            if sys.exc_info()[0] is None:
                self.settle()
                self._demand([line for person in self.people.values() for line in _untold(person)])
                self._collect()

    # ------------------------------------------------------------------ inside

    def _do(self, step: Step) -> list[Request]:
        name, arguments = step
        return getattr(self, name)(**arguments) or []

    def _collect(self) -> None:
        for person in self.people.values():
            for words in person.collect():
                self._say(person.name, words)
            self._demand(person.unforeseen())

    def _problems(self) -> list[str]:
        problems, containers = list[str](), self.world.containers()
        for person in self.people.values():
            try:
                problems += self._problems_of(person, containers)
            except (AgentlessError, TimeoutError) as error:
                problems.append(f"{person.name} was told: {error!r}")
        return problems

    def _problems_of(self, person: Person, containers: Sequence[Truth]) -> list[str]:
        mine = [container for container in containers if container.owner == person.name]
        there = {container.task for container in mine if not container.gone}
        person.recover()
        tasks = person.tasks()
        problems = list(untrue(tasks, mine, person.owed(there), self.world.jumps))
        problems += unseen(tasks, [container for container in containers if container.owner != person.name])
        problems += misheld(person.gpus(), containers)
        problems += unready(person.nodes())
        problems += unkept(person.promised, containers)
        problems += idle(tasks, person.gpus())
        for container in mine:
            if container.runs and (container.labels[MARK], container.node) in person.refused:
                problems.append(f"{container.task} was refused and ran")
        if person.has_lost_its_state:
            problems.append(f"{person.name} has not got everything back")
        if not problems:
            person.come_to_terms(there)
        return problems

    def _count(self, what: str, *words: str) -> None:
        counts[what] += 1
        self._say(what, *words)

    def _say(self, *words: str) -> None:
        self.trace.append(f"{time.monotonic() - self.began:8.3f}  {' '.join(words)}")

    def _demand(self, problems: Sequence[str]) -> None:
        if problems:
            now = f"what happened until {time.monotonic() - self.began:.3f}:"
            logs = [f"{name}: {line}" for name, who in self.people.items() for line in who.log.text.splitlines()[-15:]]
            truth = [str(container) for container in self.world.containers()[-15:]]
            raise Untrue("\n".join([*problems, "", now, *self.trace[-150:], "", *truth, "", *logs]))


def _untold(person: Person) -> Iterator[str]:
    for task in person.tasks():
        if task["mine"] and task["ended_at"]:
            yield from untold(task, person.events(task["id"]))


def test_nothing_is_lost_and_nothing_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    counts.clear()
    run_state_machine_as_test(
        Truthful if LONG else seed(EVERYTHING)(Truthful),
        settings=settings(
            max_examples=40 if LONG else 4,
            stateful_step_count=100 if LONG else 26,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    if LONG:
        with capsys.disabled():
            print("\n" + "\n".join(f"{number:6} {what}" for what, number in counts.items()))
