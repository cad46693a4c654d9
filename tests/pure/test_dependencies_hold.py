"""Random graphs of tasks over real stores, with a controller that is killed at any write.

Some are gangs, some leave artifacts, and some require one failure of several.

No task starts before what it requires has come, nobody waits for what can never come unless told to, and none is lost.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentless.controller.ownership import Ownership
from agentless.controller.state.event_bus import EventBus, OutputsSettled
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.prerequisites import Prerequisites
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import TaskViews
from agentless.controller.tasks.dependencies import Dependencies
from agentless.errors import Refused
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import FAILED, Blocked, Ended, Pending, Running, Task
from agentless.model.tasks.task_event import Assigned, Exited, GaveUp, Launched, Queued, StopAsked, TaskEvent
from agentless.model.tasks.task_id import attempt_of, first_try
from agentless.model.tasks.terms import Terms
from agentless.rules.scheduling.plan import Outlook
from agentless.rules.tasks.dependencies import groups
from agentless.rules.tasks.retry import fresh_try
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import CID, NOW, placement, spec

GONE = "gone"
STATES = ["completed", "completed", "failed", "ended"]


class World:
    """A controller without nodes, and what really happened."""

    def __init__(self, folder: Path, draw: Any) -> None:
        self.folder, self.draw = folder, draw
        self.history: History | None = None
        self.added: dict[str, str] = {}  # all first tries that were accepted, each with its batch
        self.removed: set[str] = set()
        self.ever: set[tuple[Requirement, ...]] = set()  # which requirements were ever met together
        self.gangs: dict[str, list[str]] = {}  # members by the first one
        self.leaving: set[str] = set()  # first tries that leave artifacts
        self.arriving: set[str] = set()
        self.retried = False
        self.crash_in: int | None = None
        self.open()

    def open(self) -> None:
        """As after a restart."""
        if self.history:
            self.history.close()
        self.crash_in = None
        store = TaskStore(self.folder / "state.json")
        self.history = History(self.folder / "history.sqlite")
        clock: Any = SimpleNamespace(now=lambda: NOW)
        none: Any = SimpleNamespace(stale=lambda _: None, outlook=lambda _: Outlook(), view=lambda _: ())
        self.tasks, self.bus = Tasks("me@here", store.controller, self.history), EventBus()
        bus, arrivals = self.bus, SimpleNamespace(awaited=lambda task: "files" if self.arrives(task) else None)
        prerequisites = Prerequisites(self.tasks, arrivals, bus)
        stores = TaskStores(store, self.history, SecretStore(self.folder / "secrets"), Ownership(self.folder / "lock"))
        self.ledger = Ledger(self.tasks, stores, TaskViews(self.tasks, none, none, none, clock), bus, clock)
        lookup: Any = SimpleNamespace(find=self.find)
        self.dependencies = Dependencies(self.ledger, lookup, prerequisites, bus, clock)
        prerequisites.touched |= dict.fromkeys(self.tasks.waiters)
        for part, write in ((store, "save"), (self.history, "add"), (self.history, "remove")):
            setattr(part, write, self.deadly(getattr(part, write)))

    def deadly(self, write: Any) -> Any:
        """The write, before or after which the controller may be killed."""

        def done(*args: Any, **more: Any) -> None:
            if self.crash_in is not None:
                self.crash_in -= 1
                if self.crash_in == 0:
                    raise KeyboardInterrupt
            write(*args, **more)
            if self.crash_in is not None:
                self.crash_in -= 1
                if self.crash_in == 0:
                    raise KeyboardInterrupt

        return done

    # ------------------------------------------------------------------ what there is

    def every(self) -> dict[str, Task]:
        assert self.history
        return {each.id: each for each in self.history.newest(1000)} | self.tasks.live

    def latest(self) -> dict[str, Task]:
        found: dict[str, Task] = {}
        for each in sorted(self.every().values(), key=lambda task: task.attempt):
            found[first_try(each.id)] = each
        return found

    def find(self, reference: str) -> Task:
        return self.latest()[first_try(reference)]

    def end(self, first: str, latest: dict[str, Task]) -> str | None:
        each = latest.get(first)
        if each is None:
            return GONE
        return each.state if isinstance(each.status, Ended) and not self.arrives(each.id) else None

    def arrives(self, task: str) -> bool:
        return task in self.arriving and task not in self.tasks.live

    def verdict(self, group: Sequence[Requirement]) -> str:
        """Whether requirements are met together now, or can be; found out from all there is, unlike in the rules."""
        latest, each, ends = self.latest(), group[0], list[str | None]()
        for one in group:
            of_batch = [t for t, batch in self.added.items() if batch == one.on]
            members = of_batch if one.batch else self.gangs.get(one.on, [one.on])
            ends += [self.end(member, latest) for member in members]
        if each.state == "completed":
            if any(end not in (None, "completed") for end in ends):
                return "impossible"
            return "open" if None in ends else "met"
        if None in ends:
            return "open"
        if each.state == "ended":
            return "met"
        return "met" if any(end in FAILED for end in ends) else "impossible"

    # ------------------------------------------------------------------ what is done

    def submit(self, number: int) -> None:
        """One task, a batch of two, or a gang of two."""
        draw, requires = self.draw, self.required()
        wait = draw(st.sampled_from([None, None, "wait"])) if requires else None
        names = [f"t{number}{letter}" for letter in "ab"[: draw(st.integers(1, 2))]]
        is_gang = len(names) > 1 and draw(st.booleans())
        retries = 0 if is_gang else draw(st.integers(0, 1))
        terms = Terms(requires=requires, if_impossible=wait, retries=retries, backoff=0.0)
        gangs = [Gang(2, rank, tuple(names)) if is_gang else None for rank in range(len(names))]
        tasks = [
            Task(name, replace(spec(terms=terms), gang=gang), names[0], "me@here", NOW)
            for name, gang in zip(names, gangs, strict=True)
        ]
        self.gangs |= {names[0]: names} if is_gang else {}
        self.leaving |= {names[0]} if draw(st.booleans()) else set()
        first = self.dependencies.first(tasks)
        begun = [(each, first.get(each.id) or Queued()) for each in tasks]
        if not any(isinstance(event, GaveUp) for _, event in begun):
            self.ledger.add_all(begun, "submitted")

    def required(self) -> tuple[Requirement, ...]:
        """Up to two tasks or batches, or one failure of up to three tasks."""
        draw, known = self.draw, sorted(key for key, task in self.latest().items() if task.lead == key)
        several = draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []
        if len(several) > 1 and draw(st.booleans()):
            return tuple(Requirement(on, "failed", one_of=1) for on in several)
        requires = []
        for on in several[:2]:
            state, whole, batch = draw(st.sampled_from(STATES)), draw(st.booleans()), self.added[on]
            size = sum(each == batch for each in self.added.values())
            requires.append(Requirement(batch, state, True, size) if whole else Requirement(on, state))
        return tuple(dict.fromkeys(requires))

    def chosen(self, kind: Any) -> Task | None:
        found = sorted(each.id for each in self.every().values() if isinstance(each.status, kind))
        return self.every()[self.draw(st.sampled_from(found))] if found else None

    def start(self) -> None:
        if task := self.chosen(Pending):
            self.ledger.apply(task.id, Assigned(placement()), "its turn")
            self.ledger.apply(task.id, Launched(CID), "docker run")

    def finish(self) -> None:
        if task := self.chosen(Running):
            if self.draw(st.integers(0, 3)) == 0:
                self.ledger.apply(task.id, StopAsked("stop"), "agentless stop")
            if first_try(task.id) in self.leaving:
                self.arriving.add(task.id)
            self.ledger.apply(task.id, Exited(self.draw(st.sampled_from([0, 0, 1]))), "seen")

    def arrive(self) -> None:
        """Artifacts of an ended task are here, or will never be."""
        if found := sorted(each for each in self.arriving if self.arrives(each) and each in self.every()):
            task = self.every()[self.draw(st.sampled_from(found))]
            self.arriving.discard(task.id)
            self.bus.emit(OutputsSettled(task))

    def stop(self) -> None:
        if task := self.chosen(Blocked | Pending):
            self.ledger.apply(task.id, StopAsked("stop"), "agentless stop")

    def retry(self) -> None:
        """All members of a gang, when all have ended."""
        again, self.retried = list[tuple[Task, TaskEvent]](), True
        with contextlib.suppress(Refused):
            for task in self.over():
                new = fresh_try(task, NOW)
                again.append((new, self.dependencies.again(new, ran=task.placement is not None)))
            self.ledger.add_all(again, "agentless retry")

    def remove(self) -> None:
        """All tries; if somebody waits for it, only by force, which is rare."""
        over = self.over()
        if any(self.tasks.waiters.of_task(task) for task in over) and self.draw(st.integers(0, 3)):
            return
        for first in (first_try(task.id) for task in over):
            self.removed.add(first)
            for each in sorted((t for t in self.every() if first_try(t) == first), key=attempt_of):
                self.arriving.discard(each)
                self.ledger.forget(self.every()[each], "removed", "agentless rm")

    def over(self) -> list[Task]:
        """The last tries of a task that has ended, or of a gang of which all members have."""
        task, latest = self.chosen(Ended), self.latest()
        if task is None or latest[first_try(task.id)].id != task.id:
            return []
        members = [first_try(each) for each in task.spec.gang.members] if task.spec.gang else [first_try(task.id)]
        found = [latest[each] for each in members if each in latest]
        return found if all(isinstance(each.status, Ended) for each in found) else []

    def settle(self) -> None:
        """What waits for a moment has it; then all must be as it should."""
        while self.dependencies.work():
            pass
        for task in list(self.tasks.live.values()):
            if task.state == "scheduled":
                self.ledger.apply(task.id, Queued(), "its start time has come")

    # ------------------------------------------------------------------ what must hold

    def observe(self) -> None:
        every = self.every()
        for each in every.values():
            self.added.setdefault(first_try(each.id), each.batch)
        for each in every.values():
            for group in groups(each.spec.terms.requires):
                self.ever |= {tuple(part) for part in [group, *parts(group)] if self.verdict(part) == "met"}

    def check(self) -> None:
        self.observe()
        latest = self.latest()
        assert set(self.added) == set(latest) | self.removed, "lost"
        for each in self.every().values():
            if isinstance(each.status, Pending | Running) or each.placement:
                for group in groups(each.spec.terms.requires):
                    assert self.was_met(group), f"{each.id} started before {group}"
            elif isinstance(each.status, Ended) and not (each.stop or self.retried or each.attempt > 1):
                whole = groups(each.spec.terms.requires)
                assert len(whole) != 1 or tuple(whole[0]) not in self.ever, f"{each.id} given up though {whole} came"
            if isinstance(each.status, Blocked):
                verdicts = [self.verdict(group) for group in groups(each.status.on)]
                assert "met" not in verdicts, f"{each.id} waits for what has come"
                if each.spec.terms.if_impossible is None:
                    assert "impossible" not in verdicts, f"{each.id} waits for what can never come"

    def was_met(self, group: Sequence[Requirement]) -> bool:
        """Whether all that is required together has come: of several tasks, one after the other."""
        if len(group) == 1 or tuple(group) in self.ever:
            return tuple(group) in self.ever
        ended, failed = (
            [(replace(each, state=state, one_of=0),) in self.ever for each in group] for state in ("ended", "failed")
        )
        return all(ended) and any(failed)


def parts(group: Sequence[Requirement]) -> list[list[Requirement]]:
    """Each of several tasks alone, as it ends and as it fails."""
    states = ("ended", "failed") if len(group) > 1 else ()
    return [[replace(each, state=state, one_of=0)] for each in group for state in states]


def whatever_happens(data: st.DataObject, folder: Path, steps: int) -> None:
    world = World(folder, data.draw)
    acts = ["submit", "submit", "start", "start", "finish", "finish", "finish", "arrive", "arrive"]
    acts += ["stop", "retry", "remove", "again"]
    try:
        for number in range(steps):
            act = data.draw(st.sampled_from(acts if world.added else ["submit"]))
            world.crash_in = data.draw(st.sampled_from([None, None, 1, 2, 3, 4, 5]))
            try:
                if act == "submit":
                    world.submit(number)
                elif act != "again":
                    getattr(world, act)()
                if data.draw(st.booleans()):
                    world.settle()
            except KeyboardInterrupt:
                act = "again"
            world.crash_in = None
            world.observe()
            if act == "again":
                world.open()
            world.settle()
            world.check()
    finally:
        world.history.close()  # type: ignore[union-attr]


bounds = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=15, **bounds)  # type: ignore[arg-type]
@given(st.data())
def test_dependencies_hold_over_crashes(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        whatever_happens(data, Path(folder), 12)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=300, **bounds)  # type: ignore[arg-type]
@given(st.data())
def test_dependencies_hold_over_many_crashes(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        whatever_happens(data, Path(folder), 30)


def begun(world: World, name: str, *requires: Requirement, batch: str = "", **terms: Any) -> None:
    """A task, which runs unless it waits."""
    task = Task(name, spec(terms=Terms(requires=requires, **terms)), batch or name, "me@here", NOW)
    event = world.dependencies.first([task]).get(name)
    world.ledger.add(task, event or Queued(), "submitted")
    if not event:
        world.ledger.apply(name, Assigned(placement()), "its turn")
        world.ledger.apply(name, Launched(CID), "docker run")


def test_what_was_met_stays_met_when_that_task_is_removed(tmp_path: Path) -> None:
    world = World(tmp_path, None)
    begun(world, "a")
    begun(world, "c")
    begun(world, "b", Requirement("a"), Requirement("c"))
    world.ledger.apply("a", Exited(0), "seen")
    assert world.tasks.live["b"].status == Blocked((Requirement("c"),))
    world.ledger.forget(world.every()["a"], "removed", "agentless rm")
    world.open()
    world.settle()
    world.ledger.apply("c", Exited(0), "seen")
    assert world.tasks.live["b"].state == "pending"


def test_a_failed_task_of_a_batch_is_missed_when_it_was_removed(tmp_path: Path) -> None:
    world, whole = World(tmp_path, None), Requirement("x1", batch=True, members=2)
    begun(world, "x1")
    begun(world, "x2", batch="x1")
    begun(world, "b", whole, if_impossible="wait")
    world.ledger.apply("x1", Exited(0), "seen")
    world.ledger.apply("x2", Exited(1), "seen")
    world.ledger.forget(world.every()["x2"], "removed", "agentless rm --force")
    for _ in range(2):
        world.settle()
        assert world.tasks.live["b"].state == "blocked"
        world.open()
    reason = world.tasks.live["b"].status
    assert isinstance(reason, Blocked)
    assert reason.reason == "needs all tasks of batch x1 to complete, but one was removed"


@pytest.mark.slow
def test_a_long_chain_is_given_up_to_its_end(tmp_path: Path) -> None:
    """Longer than Python's recursion limit would allow."""
    world = World(tmp_path, None)
    begun(world, "t0")
    for number in range(1, 300):
        begun(world, f"t{number}", Requirement(f"t{number - 1}"))
    world.ledger.apply("t0", Exited(1), "seen")
    world.settle()
    assert not world.tasks.live
    assert world.every()["t299"].status.reason == "needs task t298 to complete, but it was cancelled"  # type: ignore[union-attr]


def test_an_end_concerns_only_those_that_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, None)
    firsts = [(Task(f"a{n}", spec(), "a0", "me@here", NOW), Queued()) for n in range(300)]
    world.ledger.add_all(firsts, "submitted")
    on = [Requirement(f"a{n}") for n in range(300)]
    waiting = [Task(f"b{n}", spec(terms=Terms(requires=(each,))), "b0", "me@here", NOW) for n, each in enumerate(on)]
    world.ledger.add_all([(each, world.dependencies.first([each])[each.id]) for each in waiting], "submitted")
    looked: list[str] = []
    follow = world.dependencies._follow
    monkeypatch.setattr(world.dependencies, "_follow", lambda task, on: (looked.append(task), follow(task, on))[1])
    world.ledger.apply("a7", StopAsked("stop"), "agentless stop")
    world.settle()
    assert set(looked) == {"b7"}


def test_a_batch_is_waited_for_until_its_artifacts_are_here_also_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path, lambda _: "x1")
    begun(world, "x1")
    begun(world, "b", Requirement("x1", batch=True, members=1))
    world.arriving.add("x1")
    world.ledger.apply("x1", Exited(0), "seen")
    world.open()
    world.settle()
    assert world.tasks.live["b"].state == "blocked"
    world.arrive()
    world.settle()
    assert world.tasks.live["b"].state == "pending"
