"""Simulated nodes on a thread of their own, and what really happened on them, seen by their engines."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Self

from agentless.demo.engine.container import Run, SimulatedContainer
from agentless.demo.fleet import Fleet, NodePlan
from agentless.demo.node import SimulatedNode
from agentless.model.containers.claim import GPUS, OWNER, TASK

MARK = "submit"
"""The label of a container that says which submit it came from."""
PATIENCE = 60
"""Seconds after which something in the simulation itself counts as stuck."""


@dataclass(frozen=True)
class Truth:
    """One container as it is and was. `by_hand` are the numbers of those `runs` that somebody else started."""

    node: str
    id: str
    labels: dict[str, str]
    state: str
    gone: bool
    runs: tuple[Run, ...]
    by_hand: frozenset[int]
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        runs = ", ".join(f"{run.began:.3f}–{run.ended or inf:.3f} ({run.exit_code})" for run in self.runs)
        hand = f", by hand {sorted(self.by_hand)}" if self.by_hand else ""
        return f"{self.task} on {self.node}: {self.state}{' and gone' if self.gone else ''}, runs {runs}{hand}"

    @property
    def task(self) -> str:
        return self.labels[TASK]

    @property
    def owner(self) -> str:
        """The person, without the machine."""
        return self.labels[OWNER].partition("@")[0]

    @property
    def gpus(self) -> frozenset[str]:
        return frozenset(filter(None, self.labels[GPUS].split(",")))

    @property
    def live(self) -> bool:
        return not self.gone and self.state in ("running", "paused")


@dataclass
class _Born:
    node: str
    container: SimulatedContainer
    by_hand: set[int] = field(default_factory=set)


class World:
    """The nodes of `plans`, their clocks so many seconds `ahead`, for the time of a `with`.

    `jumps` are the moments at which somebody changed such a clock.
    """

    def __init__(self, root: Path, plans: list[NodePlan], ahead: Mapping[str, float]) -> None:
        self._ahead = ahead
        self.fleet = Fleet(root, plans)
        self.jumps: dict[str, list[float]] = {plan.name: [] for plan in plans}
        self._born: dict[str, _Born] = {}
        self._loop = asyncio.new_event_loop()
        self._up, self._over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(PATIENCE), "the simulated nodes did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE)
        self._loop.close()

    @property
    def nodes(self) -> dict[str, SimulatedNode]:
        return self.fleet.nodes

    def do(self, work: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Call something of a node or an engine where it lives, and wait for what it gives."""

        async def there() -> Any:
            found = work(*args, **more)
            return await found if inspect.isawaitable(found) else found

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(PATIENCE)

    def containers(self) -> list[Truth]:
        """Every container of a task that ever was, in the order of their creation."""
        return self.do(lambda: [_truth(born, self.fleet) for born in self._born.values()])

    def unstarted(self, mark: str) -> list[Truth]:
        """The containers of this submit that are there and were never started."""
        return [c for c in self.containers() if c.labels[MARK] == mark and c.state == "created" and not c.gone]

    def by_hand(self, verb: str, container: Truth, name: str) -> None:
        """What `docker VERB` does, or a rename to `name`; raises Complaint."""
        engine = self.nodes[container.node].engine
        there = self.do(engine.find, container.id)
        match verb:
            case "rm":
                self.do(engine.remove, there, force=True)
            case "rename":
                self.do(engine.rename, there, name)
            case "start" | "restart":
                self._start_by_hand(container.id, again=verb == "restart")
            case "stop":
                self.do(engine.stop, there, 0.2)
            case "kill":
                self.do(engine.kill, there, 9)
            case _:
                self.do(getattr(engine, verb), there)

    def _start_by_hand(self, container: str, *, again: bool) -> None:
        """A run that agentless has not asked for."""
        born = self._born[container]
        engine = self.nodes[born.node].engine

        async def start() -> None:
            if again:
                await engine.stop(born.container, 0.2)
            runs = len(born.container.runs)
            engine.start(born.container)
            born.by_hand.update(range(runs, len(born.container.runs)))

        self.do(start)

    def set_clock(self, node: str, ahead: float) -> None:
        """Let the clock of a node jump."""

        def jump() -> None:
            self.jumps[node].append(time.monotonic())
            self.nodes[node].set_clock(ahead)

        self.do(jump)

    async def _run(self) -> None:
        async with self.fleet:
            for name, ahead in self._ahead.items():
                self.nodes[name].set_clock(ahead)
            journals = [asyncio.ensure_future(self._record(node)) for node in self.nodes.values()]
            await asyncio.sleep(0)
            self._up.set()
            await self._over.wait()
            for journal in journals:
                journal.cancel()

    async def _record(self, node: SimulatedNode) -> None:
        with node.engine.events() as events:
            while True:
                event = await events.get()
                if event["Action"] == "create":
                    self._born[event["ID"]] = _Born(node.name, node.engine.containers[event["ID"]])


def _truth(born: _Born, fleet: Fleet) -> Truth:
    container = born.container
    gone = container.id not in fleet.nodes[born.node].engine.containers
    runs = tuple(replace(run) for run in container.runs)
    labels = dict(container.config.labels)
    command = tuple(container.config.command)
    return Truth(born.node, container.id, labels, container.state, gone, runs, frozenset(born.by_hand), command)
