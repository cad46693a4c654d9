"""Random graphs of tasks over real stores, with a controller that is killed at any write.

No task starts before what it requires has come, nobody waits for what can never come unless told to, and none is lost.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentless.controller.ownership import Ownership
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.prerequisites import Prerequisites
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import TaskViews
from agentless.controller.tasks.dependencies import Dependencies
from agentless.errors import Refused
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import FAILED, Blocked, Ended, Pending, Running, Task
from agentless.model.tasks.task_event import Assigned, Exited, GaveUp, Launched, Queued, StopAsked
from agentless.model.tasks.task_id import attempt_of, first_try
from agentless.model.tasks.terms import Terms
from agentless.rules.scheduling.plan import Outlook
from agentless.rules.tasks.retry import fresh_try
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import CID, NOW, placement, spec

GONE = "gone"


class World:
    """A controller without nodes, and what really happened."""

    def __init__(self, folder: Path, draw: Any) -> None:
        self.folder, self.draw = folder, draw
        self.history: History | None = None
        self.added: dict[str, str] = {}  # all first tries that were accepted, each with its batch
        self.removed: set[str] = set()
        self.ever: set[tuple[str, bool, str]] = set()  # which requirements were ever met
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
        self.tasks, bus = Tasks("me@here", store.controller, self.history), EventBus()
        nothing: Any = SimpleNamespace(awaited=lambda _: None)
        prerequisites = Prerequisites(self.tasks, nothing, bus)
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
        return GONE if each is None else each.state if isinstance(each.status, Ended) else None

    def verdict(self, each: Requirement) -> str:
        """Whether a requirement is met now, or can be; found out from all there is, unlike in the rules."""
        latest = self.latest()
        members = [t for t, batch in self.added.items() if batch == each.on] if each.batch else [each.on]
        ends = [self.end(member, latest) for member in members]
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
        """One task, or a batch of two."""
        draw, known = self.draw, sorted(self.latest())
        requires = []
        for _ in range(draw(st.integers(0, 2)) if known else 0):
            on, state = (
                draw(st.sampled_from(known)),
                draw(st.sampled_from(["completed", "completed", "failed", "ended"])),
            )
            whole, batch = draw(st.booleans()), self.added[on]
            size = sum(each == batch for each in self.added.values())
            requires.append(Requirement(batch, state, True, size) if whole else Requirement(on, state))
        wait = draw(st.sampled_from([None, None, "wait"])) if requires else None
        terms = Terms(requires=tuple(dict.fromkeys(requires)), if_impossible=wait, retries=draw(st.integers(0, 1)))
        terms = replace(terms, backoff=0.0)
        names = [f"t{number}{letter}" for letter in "ab"[: draw(st.integers(1, 2))]]
        tasks = [Task(name, spec(terms=terms), names[0], "me@here", NOW) for name in names]
        first = self.dependencies.first(tasks)
        begun = [(each, first.get(each.id) or Queued()) for each in tasks]
        if not any(isinstance(event, GaveUp) for _, event in begun):
            self.ledger.add_all(begun, "submitted")

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
            self.ledger.apply(task.id, Exited(self.draw(st.sampled_from([0, 0, 1]))), "seen")

    def stop(self) -> None:
        if task := self.chosen(Blocked | Pending):
            self.ledger.apply(task.id, StopAsked("stop"), "agentless stop")

    def retry(self) -> None:
        if (task := self.chosen(Ended)) and self.latest()[first_try(task.id)].id == task.id:
            again = fresh_try(task, NOW)
            with contextlib.suppress(Refused):
                event = self.dependencies.again(again, ran=task.placement is not None)
                self.ledger.add(again, event, "agentless retry")

    def remove(self) -> None:
        """All tries; if somebody waits for it, only by force, which is rare."""
        if (task := self.chosen(Ended)) and self.latest()[first_try(task.id)].id == task.id:
            if self.tasks.waiters.of_task(task) and self.draw(st.integers(0, 3)):
                return
            first = first_try(task.id)
            self.removed.add(first)
            for each in sorted((t for t in self.every() if first_try(t) == first), key=attempt_of):
                self.ledger.forget(self.every()[each], "removed", "agentless rm")

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
            for requirement in each.spec.terms.requires:
                if self.verdict(requirement) == "met":
                    self.ever.add((requirement.on, requirement.batch, requirement.state))

    def check(self) -> None:
        self.observe()
        latest = self.latest()
        assert set(self.added) == set(latest) | self.removed, "lost"
        for each in self.every().values():
            if isinstance(each.status, Pending | Running) or each.placement:
                for one in each.spec.terms.requires:
                    assert (one.on, one.batch, one.state) in self.ever, f"{each.id} started before {one}"
            if isinstance(each.status, Blocked):
                verdicts = [self.verdict(one) for one in each.status.on]
                assert "met" not in verdicts, f"{each.id} waits for what has come"
                if each.spec.terms.if_impossible is None:
                    assert "impossible" not in verdicts, f"{each.id} waits for what can never come"


def whatever_happens(data: st.DataObject, folder: Path, steps: int) -> None:
    world = World(folder, data.draw)
    acts = ["submit", "submit", "start", "start", "finish", "finish", "stop", "retry", "remove", "again"]
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
