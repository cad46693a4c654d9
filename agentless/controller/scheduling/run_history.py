"""Recent runs: read from the history once, then updated as tasks end, because planning must be quick."""

from __future__ import annotations

from collections.abc import Iterable

from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.tasks import Tasks
from agentless.errors import StateError
from agentless.inventory.inventory import Inventory
from agentless.model.tasks.task import Task
from agentless.model.usage.run import Kind, Run, kind_of_task, run_of
from agentless.model.view import ShareView
from agentless.ports import Clock
from agentless.rules.scheduling.timeline.learned import RUNS, learned_length
from agentless.rules.usage.fair_share import HALF_LIVES, decayed, live_uses, shares, sum_by_owner, use_of, used_hours

LEARN_FROM = 35 * 86400.0
"""Seconds back from which on runs are learned from."""
MOST = 50_000
"""So many of the last runs are read at the start: that takes half a second."""


class RunHistory:
    """Decayed GPU-hours by owner, and how long tasks of a kind took.

    `trouble` is why runs before the start are unknown.
    """

    def __init__(self, tasks: Tasks, bus: EventBus, clock: Clock, half_life: float) -> None:
        self._tasks = tasks
        self._clock = clock
        self._half_life = half_life
        self.trouble: str | None = None
        self._hours: dict[str, float] = {}
        self._lent: dict[str, float] = {}
        self._took: dict[Kind, list[float]] = {}
        self._at = self._clock.now()
        self._read()
        bus.subscribe(TaskChanged, self._changed)

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its half-life."""
        if inventory.half_life != self._half_life:
            self._half_life = inventory.half_life
            self._read()

    def used(self) -> dict[str, float]:
        """The decayed GPU-hours of each owner, including those expected of running tasks: the base of fair share."""
        return self._used(lent=False)

    def lent(self) -> dict[str, float]:
        """The same of preemptible tasks: the base of fair share among these."""
        return self._used(lent=True)

    def shares(self) -> list[ShareView]:
        """The same, as it is published."""
        now, tasks = self._clock.now(), self._tasks.live.values()
        self._until(now)
        return shares(self._hours, live_uses(tasks, now), tasks, now, self._half_life, self._lent)

    def lengths(self, others: Iterable[Task]) -> dict[str, float]:
        """Expected seconds of the live tasks and these others that have no time limit, where known."""
        known = {kind: found for kind, seconds in self._took.items() if (found := learned_length(seconds))}
        unlimited = (t for t in (*self._tasks.live.values(), *others) if t.spec.terms.time_limit is None)
        return {task.id: known[kind] for task in unlimited if (kind := kind_of_task(task)) in known}

    # ------------------------------------------------------------------ inside

    def _read(self) -> None:
        self._at = self._clock.now()
        try:
            runs = self._tasks.history.runs(self._at - max(HALF_LIVES * self._half_life, LEARN_FROM), MOST)
            self.trouble = None
        except StateError as error:
            self.trouble, runs = f"cannot read the earlier usage of owners: {error}", []
        uses = [use_of(run) for run in runs if not run.away]
        self._hours = used_hours([use for use in uses if not use.lent], self._at, self._half_life)
        self._lent = used_hours([use for use in uses if use.lent], self._at, self._half_life)
        self._took.clear()
        for run in runs:
            self._learn(run)

    def _learn(self, run: Run) -> None:
        if run.completed:
            took = self._took.setdefault(run.kind, [])
            took.append(run.end - run.begin)
            del took[:-RUNS]

    def _used(self, *, lent: bool) -> dict[str, float]:
        now = self._clock.now()
        self._until(now)
        live = [use for use in live_uses(self._tasks.live.values(), now) if use.lent is lent]
        return sum_by_owner(self._lent if lent else self._hours, used_hours(live, now, self._half_life))

    def _until(self, now: float) -> None:
        if now > self._at:
            self._hours = decayed(self._hours, now - self._at, self._half_life)
            self._lent = decayed(self._lent, now - self._at, self._half_life)
            self._at = now

    def _changed(self, change: TaskChanged) -> None:
        """Count a run that is over: its task has ended, or waits again."""
        before, after, now = change.before, change.after, self._clock.now()
        run = run_of(after, now)
        over = None if run and after.live else run or (run_of(before, now) if after.live else None)
        if over:
            self._learn(over)
        if over and not over.away:
            self._until(now)
            used = used_hours([use_of(over)], now, self._half_life)
            if over.lent:
                self._lent = sum_by_owner(self._lent, used)
            else:
                self._hours = sum_by_owner(self._hours, used)
