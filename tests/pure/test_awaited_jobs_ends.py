"""Tasks for which their cluster waits, over real stores, with a controller that may begin anew at any time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentless.controller.ownership import Ownership
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.prerequisites import Prerequisites
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import TaskViews
from agentless.controller.tasks.awaited_jobs import AwaitedJobs
from agentless.controller.tasks.dependencies import Dependencies
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Placement, Task
from agentless.model.tasks.task_event import Assigned, BlockedBy, Exited, JobQueued, Launched, Queued, Unplaced
from agentless.model.tasks.terms import Terms
from agentless.rules.scheduling.plan import Outlook
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import NOW, spec, task

ON = (Requirement("2first"),)
FAILED = "needs task 2first to complete, but it failed"


class World:
    """A controller without nodes, with a task that runs on a cluster, and one that has that wait for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open()
        first, after = replace(task("2first"), status=task("x", state="pending").status), spec(terms=Terms(requires=ON))
        self.ledger.add(first, Queued(), "")
        self.ledger.add(replace(task("2next"), spec=after, status=first.status), BlockedBy(ON), "")
        for event in (Assigned(Placement("hpc")), JobQueued("7:agentless-2first"), Launched("7:agentless-2first")):
            self.ledger.apply("2first", event, "")
        self.ledger.apply("2next", Assigned(Placement("hpc", after=("afterok:7",))), "")
        self.handed.tick()

    def open(self, *, start: bool = True) -> None:
        store, clock = TaskStore(self.folder / "state.json"), SimpleNamespace(now=lambda: NOW)
        none: Any = SimpleNamespace(
            stale=lambda _: None, outlook=lambda _: Outlook(), view=lambda _: (), awaited=lambda _: None
        )
        self.history = History(self.folder / "history.sqlite")
        self.tasks, bus = Tasks("me@here", store.controller, self.history), EventBus()
        prerequisites = Prerequisites(self.tasks, none, bus)
        own = Ownership(self.folder / "lock")
        stores = TaskStores(store, self.history, SecretStore(self.folder / "secrets"), own)
        views = TaskViews(self.tasks, none, none, none, clock)  # type: ignore[arg-type]
        self.ledger = Ledger(self.tasks, stores, views, bus, clock)  # type: ignore[arg-type]
        if start:
            self.handed = AwaitedJobs(self.ledger, prerequisites, bus, clock)  # type: ignore[arg-type]
            Dependencies(self.ledger, none, prerequisites, bus, clock)  # type: ignore[arg-type]
            self.handed.start()

    def again(self, *, start: bool = True) -> None:
        self.history.close()
        self.open(start=start)

    @property
    def next(self) -> Task:
        return self.tasks.live["2next"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.history.close()


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_it_is_stopped_when_what_it_waits_for_has_failed(world: World, queued: bool, restart: bool) -> None:
    if queued:
        world.ledger.apply("2next", JobQueued("8:agentless-2next"), "")
    if restart:
        world.again(start=False)  # killed between the one write and the other
    world.ledger.apply("2first", Exited(3), "")
    if restart:
        assert world.next.stop is None
        world.again()
    assert (world.next.stop, world.next.stop_reason) == ("stop", FAILED)


@pytest.mark.parametrize("restart", [False, True])
def test_it_goes_on_when_that_has_completed_and_also_when_that_was_removed_then(world: World, restart: bool) -> None:
    world.ledger.apply("2next", JobQueued("8:agentless-2next"), "")
    ended = world.ledger.apply("2first", Exited(0), "")
    world.ledger.forget(ended, "removed", "")
    if restart:
        world.again()
    world.handed.tick()
    assert (world.next.state, world.next.stop) == ("submitted", None)


@pytest.mark.parametrize(("code", "state"), [(None, "blocked"), (0, "pending")])
def test_one_that_its_cluster_has_refused_waits_here_for_what_is_left(
    world: World, code: int | None, state: str
) -> None:
    if code is not None:
        world.ledger.apply("2first", Exited(code), "")
    world.ledger.apply("2next", Unplaced("busy"), "")
    assert world.next.state == state
