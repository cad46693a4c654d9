"""Random gangs over real stores, with nodes that fail and a controller that is killed at any write.

What starts, undoes and ends gangs is real, and so is what reads the reports of nodes; nodes are a dictionary each. Once
all nodes answer again, each gang runs whole or not at all, and nothing is left of a start that was undone.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentless.controller.gangs.ends import GangEnds
from agentless.controller.gangs.starts import Starts
from agentless.controller.nodes.reconciler import LOST_AFTER, Reconciler
from agentless.controller.ownership import Ownership
from agentless.controller.state.event_bus import ContainersSeen, EventBus
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import TaskViews
from agentless.errors import Held, NoAnswer, NodeBroken, NodeUnfit, Refused, RuntimeFailed
from agentless.model.containers.claim import labels_of
from agentless.model.containers.container import Container
from agentless.model.nodes.node_record import NodeRecord
from agentless.model.nodes.sighting import Sighting
from agentless.model.tasks.gang import Gang, Peer
from agentless.model.tasks.task import Ended, Pending, Running, Scheduled, Task, Waiting
from agentless.model.tasks.task_event import Assigned, Queued, StopAsked
from agentless.model.tasks.task_id import first_try
from agentless.model.tasks.terms import Terms
from agentless.rules.scheduling.plan import Outlook
from agentless.rules.tasks.gangs.gangs import by_gang, is_held_by_last_try, named_members
from agentless.rules.tasks.reconcile import LAUNCH_BOUND, is_forsaken
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import NOW, placement, spec

NODES = ("n1", "n2", "n3", "n4")
REFUSALS = (Held("held"), Refused("refused"), NodeBroken("broken"), NodeUnfit("unfit"), RuntimeFailed("cannot"))


class Killed(BaseException):
    """The controller does nothing more."""


class Node:
    """A node with one GPU, its containers by task, and what the controller knows of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: dict[str, Container] = {}
        self.late: list[tuple[float, Task, bool, str]] = []  # launches that have not begun, without answers
        self.mood = "well"
        self.containers: tuple[Container, ...] = ()
        self.offline_since: float | None = None
        self.observation = SimpleNamespace(error="cut off")

    @property
    def online(self) -> bool:
        return self.offline_since is None


class World:
    """A controller with its nodes, and what really happened."""

    def __init__(self, folder: Path, draw: Any) -> None:
        self.folder, self.draw, self.now, self.made = folder, draw, NOW, 0
        # Not drawn one by one: what is drawn inside a task ends that task when there is too much of it.
        self.chance = random.Random(draw(st.integers(0, 2**32)))
        self.nodes = {name: Node(name) for name in NODES}
        self.history: History | None = None
        self.added: set[str] = set()
        self.ends: dict[str, Ended] = {}
        self.created: set[str] = set()  # what was created since it was undone last
        self.begun: set[str] = set()  # what was started since
        self.wrong: list[str] = []
        self.generation = 0
        self.crash_in: int | None = None
        self.dead = False
        self.open()

    def open(self) -> None:
        """As after a restart."""
        if self.history:
            self.history.close()
        self.crash_in, self.dead = None, False
        self.generation += 1
        store, self.history = TaskStore(self.folder / "state.json"), History(self.folder / "history.sqlite")
        clock: Any = SimpleNamespace(now=lambda: self.now)
        none: Any = SimpleNamespace(stale=lambda _: None, outlook=lambda _: Outlook(), view=lambda _: ())
        self.tasks, self.bus = Tasks("me@here", store.controller, self.history), EventBus()
        owned = Ownership(self.folder / "lock")
        stores = TaskStores(store, self.history, SecretStore(self.folder / "secrets"), owned)
        self.ledger = Ledger(self.tasks, stores, TaskViews(self.tasks, none, none, none, clock), self.bus, clock)
        registry: Any = SimpleNamespace(links=self.nodes, every=self.nodes)
        self.reconciler = Reconciler(registry, self.ledger, self.bus, clock)
        nothing: Any = None
        hands: Any = Hands(self)
        self.starts = Starts(nothing, hands, self.reconciler, self.ledger, self.bus, clock)
        stops: Any = SimpleNamespace(resume=self.stops)
        self.gang_ends = GangEnds(self.ledger, stops, self.bus)
        for part, write in ((store, "save"), (self.history, "add"), (self.history, "remove")):
            setattr(part, write, self.deadly(getattr(part, write)))

    def deadly(self, write: Any) -> Any:
        """The write, before or after which the controller may be killed."""

        def done(*args: Any, **more: Any) -> None:
            self.step()
            write(*args, **more)
            self.step()

        return done

    def step(self) -> None:
        """A moment at which it may be killed."""
        if self.crash_in is not None:
            self.crash_in -= 1
            self.dead = self.dead or self.crash_in == 0
        if self.dead:
            raise Killed

    async def idle(self, turns: int = 10_000) -> None:
        """Let it work until it waits for nothing, or so many turns."""
        for _ in range(turns):
            await asyncio.sleep(0)  # first, so that what follows a finished task has its turn
            if self.dead or len(asyncio.all_tasks()) == 1:
                await asyncio.sleep(0)
                return
        assert turns < 10_000, "it never comes to rest"

    async def reopen(self) -> None:
        self.dead = True  # what it does from now on, it does not
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.open()

    # ------------------------------------------------------------------ what nodes do

    def launch(self, task: Task, *, held: bool = False, created: str = "") -> str:
        """What the launch script does under the lock of the node, and after it."""
        node = self.nodes[task.node or ""]
        mine = node.found.get(task.id)
        if created and (mine is None or mine.id != created):
            raise NoAnswer("the engine has no such container")
        if mine is None:
            if any(each.live or each.state == "created" for each in node.found.values()):
                raise Held("another has the GPU")
            if node.mood in ("refuses", "refuses to create"):
                raise self.chance.choice(REFUSALS)
            self.made += 1
            labels = labels_of(task, placement(f"{node.name}::0"), self.tasks.controller)
            name, began = task.container_name, self.now
            mine = Container(f"{self.made:064x}", name, "created", labels, created_at=began, signed=True)
            node.found[task.id] = mine
            self.created.add(task.id)
        if not held and mine.state == "created":
            if node.mood in ("refuses", "refuses to start"):
                del node.found[task.id]
                raise self.chance.choice(REFUSALS)
            self.now += 0.001
            node.found[task.id] = replace(mine, state="running", started_at=self.now)
            self.begun.add(task.id)
        return mine.id

    def end(self, node: Node, task_id: str, code: int) -> None:
        """Its process ends."""
        mine = node.found[task_id]
        if mine.state == "running":
            self.now += 0.001
            node.found[task_id] = replace(mine, state="exited", exit_code=code, finished_at=self.now)

    def stops(self) -> list[Any]:
        """The work left for stops, as `Stops.resume` has it."""
        asked = [task for task in self.tasks.live.values() if task.stop and isinstance(task.status, Running)]
        return [self.kill(task) for task in asked]

    async def kill(self, task: Task) -> None:
        node = self.nodes[task.node or ""]
        if self.dead or node.mood != "well":
            return
        if task.id in node.found:
            self.end(node, task.id, 143)
        self.report(node)

    def report(self, node: Node) -> None:
        if node.mood == "silent":
            return
        node.containers = tuple(node.found.values())
        self.bus.emit(ContainersSeen(node.name, Sighting(node.containers, asked_at=self.now), None, NodeRecord()))

    def arrive(self, node: Node, *, over: bool = False) -> None:
        """Launches that were late have their turn, but none after the time in which it has certainly ended."""
        for since, task, held, created in node.late:
            if self.now - since < LAUNCH_BOUND and not over:
                try:
                    self.launch(task, held=held, created=created)
                except (NoAnswer, Refused, RuntimeFailed):
                    continue
        node.late.clear()

    # ------------------------------------------------------------------ what is done

    def submit(self, number: int) -> None:
        draw = self.draw
        size = draw(st.integers(2, 4))
        terms = Terms(retries=draw(st.integers(0, 1)), backoff=0.0, preemptible=draw(st.booleans()))
        failure = draw(st.sampled_from(["stop", "stop", "continue"]))
        names = [f"t{number}{letter}" for letter in "abcd"[:size]]
        tasks = [
            Task(name, spec(terms=terms, gang=gang), names[0], "me@here", self.now)
            for name, gang in ((name, Gang(size, rank, on_member_failure=failure)) for rank, name in enumerate(names))
        ]
        self.ledger.add_all([(task, Queued()) for task in named_members(tasks)], "submitted")

    def place(self) -> None:
        """All gangs for which there are GPUs get them, as from the scheduler."""
        for task in list(self.tasks.live.values()):
            if isinstance(task.status, Scheduled):
                self.ledger.apply(task.id, Queued(), "its start time has come")
        for members in by_gang(self.tasks.live.values()).values():
            taken = {task.node for task in self.tasks.live.values() if task.placement}
            free = [name for name in NODES if name not in taken and self.nodes[name].online]
            gang = members[0].spec.gang
            whole = gang is not None and len(members) == gang.size and len(free) >= gang.size
            if not whole or not all(isinstance(task.status, Pending) for task in members):
                continue
            if any(is_held_by_last_try(task, self.tasks.live) for task in members):
                continue
            at = self.chance.sample(free, len(free))
            places = {task.id: placement(f"{node}::0") for task, node in zip(members, at, strict=False)}
            self.tasks.launching.update(places)
            try:
                self.ledger.apply_all({task: (Assigned(place), "its turn") for task, place in places.items()})
            finally:
                self.tasks.launching.difference_update(places)
            for each in places:
                self.starts.begin(each, lambda _: False)

    def mood(self) -> None:
        node = self.nodes[self.draw(st.sampled_from(NODES))]
        moods = ["well", "refuses", "refuses to create", "refuses to start", "silent", "loses answers", "late"]
        node.mood = self.draw(st.sampled_from(moods))
        node.offline_since = (node.offline_since or self.now) if node.mood == "silent" else None

    def finish(self) -> None:
        found = sorted((node.name, task) for node in self.nodes.values() for task in node.found)
        if found:
            name, task = self.draw(st.sampled_from(found))
            self.end(self.nodes[name], task, self.draw(st.sampled_from([0, 0, 1])))

    def stop(self) -> None:
        """All of a gang, as `agentless stop` does, or preemption."""
        gangs = by_gang(self.tasks.live.values())
        if gangs:
            members = gangs[self.draw(st.sampled_from(sorted(gangs)))]
            asked, runs = StopAsked("preempt", reason="for x"), (isinstance(task.status, Running) for task in members)
            if all(runs) and not any(task.stop for task in members) and self.draw(st.booleans()):
                self.ledger.apply_all({task.id: (asked, "preempted") for task in members})
            else:
                for task in members:
                    if task.id in self.tasks.live:
                        self.ledger.apply(task.id, StopAsked("stop"), "agentless stop")

    def pass_time(self) -> None:
        self.now += self.draw(st.sampled_from([1.0, 70.0, LAUNCH_BOUND + 1]))
        self.reconciler.lose_silent()

    def look(self) -> None:
        """All nodes report, and periodic jobs have their turn."""
        for node in self.nodes.values():
            if node.mood != "silent" and self.draw(st.booleans()):
                self.arrive(node)
            self.report(node)
        self.periodic()

    def periodic(self) -> None:
        self.gang_ends.tick()
        for node in self.nodes.values():
            for task, container in list(node.found.items()):
                if node.mood == "well" and task not in self.tasks.live and is_forsaken(container, self.now):
                    del node.found[task]
        for work in self.stops():
            asyncio.create_task(work)  # noqa: RUF006 - idle() waits for it

    # ------------------------------------------------------------------ what must hold

    def every(self) -> dict[str, Task]:
        assert self.history
        return {each.id: each for each in self.history.newest(1000)} | self.tasks.live

    def observe(self) -> None:
        assert not self.wrong, self.wrong
        every = self.every()
        self.added |= {first_try(task) for task in every}
        assert self.added == {first_try(task) for task in every}, "lost"
        for task in every.values():
            if isinstance(task.status, Ended):
                assert self.ends.setdefault(task.id, task.status) == task.status, f"{task.id} ended twice"
            else:
                assert task.id not in self.ends, f"{task.id} lives again"
        held = [task.node for task in self.tasks.live.values() if task.placement]
        assert len(held) == len(set(held)), "a GPU in two hands"

    async def settle(self) -> None:
        """All nodes answer, and time passes."""
        for node in self.nodes.values():
            self.arrive(node, over=True)
            node.mood, node.offline_since = "well", None
        for _ in range(8):
            await self.idle()
            self.now += LAUNCH_BOUND + 1
            for node in self.nodes.values():
                self.report(node)
            self.periodic()
            self.observe()
        await self.idle()

    def check(self) -> None:
        self.observe()
        for members in by_gang(self.every().values()).values():
            states = [task.state for task in members]
            waits = [isinstance(task.status, Waiting) for task in members]
            assert "assigning" not in states, states
            assert "lost" not in states, states
            assert all(waits) or not any(waits), f"{members[0].id}: a part of it waits: {states}"
            gang = members[0].spec.gang
            assert gang is None or len(members) == gang.size
            fails = [task for task in members if task.state not in ("running", "completed")]
            if "running" in states and fails:
                assert gang
                assert gang.on_member_failure == "continue", f"half a gang runs: {states}"
        for node in self.nodes.values():
            for task_id, container in node.found.items():
                task = self.tasks.live.get(task_id)
                assert container.state == "exited" or (task and task.container == container.id), f"left: {task_id}"


class Hands:
    """What a gang asks of its nodes, which fail as they like."""

    def __init__(self, world: World) -> None:
        self.world, self.generation = world, world.generation

    async def ready(self, _: Any) -> None:
        await self.pause()

    async def look(self, task: Task) -> None:
        await self.pause()
        if self.world.nodes[task.node or ""].mood == "silent":
            raise NoAnswer("silent")

    def meet(self, members: list[Task], _: Any) -> list[Gang]:
        peers = tuple(Peer(task.node or "", "10.0.0.1") for task in members)
        return [replace(task.spec.gang, peers=peers, port=29500) for task in members if task.spec.gang]

    async def hold(self, task: Task) -> str:
        return await self.launch(task, held=True)

    async def start(self, task: Task, created: str = "") -> str:
        world, gang = self.world, task.spec.gang
        mates = set(gang.of_try(task.id)) if gang else set()
        if not mates <= world.created and not mates & world.begun:
            world.wrong.append(f"{task.id} is started before {sorted(mates - world.created)} is created")
        return await self.launch(task, created=created)

    async def undo(self, task: Task, *, force: bool) -> None:
        await self.pause()
        world, node = self.world, self.world.nodes[task.node or ""]
        mine = node.found.get(task.id)
        if node.mood == "silent" or (mine and mine.state != "created" and not force):
            raise NoAnswer("not undone")
        node.found.pop(task.id, None)
        world.created.discard(task.id)
        world.begun.discard(task.id)
        if node.mood == "loses answers":
            raise NoAnswer("the answer was lost")

    def is_unfit_everywhere(self, _: Task) -> bool:
        return False

    async def launch(self, task: Task, *, held: bool = False, created: str = "") -> str:
        await self.pause()
        world, node = self.world, self.world.nodes[task.node or ""]
        if node.mood == "silent":
            raise NoAnswer("silent")
        if node.mood == "late":
            node.late.append((world.now, task, held, created))
            raise NoAnswer("late")
        container = world.launch(task, held=held, created=created)
        if node.mood == "loses answers" and world.chance.random() < 0.5:
            raise NoAnswer("the answer was lost")
        await self.pause()
        return container

    async def pause(self) -> None:
        """Others have their turn; a controller that was killed asks nothing more."""
        for _ in range(self.world.chance.randint(0, 2)):
            await asyncio.sleep(0)
        if self.world.dead or self.generation != self.world.generation:
            raise Killed


ACTS = ("submit", "place", "place", "mood", "mood", "finish", "stop", "pass_time", "look", "look", "again")


async def whatever_happens(draw: Any, folder: Path, steps: int) -> None:
    world = World(folder, draw)
    try:
        for number in range(steps):
            act = draw(st.sampled_from(ACTS if world.added else ("submit",)))
            world.crash_in = draw(st.sampled_from([None, None, None, 1, 2, 3, 5, 8]))
            try:
                if act == "submit":
                    world.submit(number)
                elif act != "again":
                    getattr(world, act)()
                await world.idle(draw(st.sampled_from([0, 1, 3, 6, 9999])))
            except Killed:
                world.dead = True
            if world.dead or act == "again":
                await world.reopen()
            world.crash_in = None
            world.observe()
        await world.settle()
        world.place()  # the queue is not stuck: what can run does
        await world.settle()
        world.check()
    finally:
        await world.reopen()  # else what is under way would ask a closed store
        if world.history:
            world.history.close()


def run(data: st.DataObject, steps: int) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        asyncio.run(whatever_happens(data.draw, Path(folder), steps))


async def silence(folder: Path) -> None:
    drawn = iter((1, 2, 0, False, "stop"))
    world = World(folder, lambda _: next(drawn))
    world.submit(0)
    world.place()
    for node in world.nodes.values():
        node.mood, node.offline_since = "silent", world.now
    await world.idle()
    world.now += LOST_AFTER + 1
    world.reconciler.lose_silent()
    assert {task.state for task in world.tasks.live.values()} == {"lost"}
    await world.settle()
    world.check()
    assert {task.state for task in world.tasks.live.values()} == {"running"}


def test_a_gang_whose_nodes_fall_silent_before_it_starts_runs_when_they_answer(tmp_path: Path) -> None:
    asyncio.run(silence(tmp_path))


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # what chance decides does not shrink
bounds = {"deadline": None, "phases": PHASES, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=20, **bounds)  # type: ignore[arg-type]
@given(st.data())
def test_gangs_hold_over_crashes(data: st.DataObject) -> None:
    run(data, 14)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=2000, **bounds)  # type: ignore[arg-type]
@given(st.data())
def test_gangs_hold_over_many_crashes(data: st.DataObject) -> None:
    run(data, 14)
