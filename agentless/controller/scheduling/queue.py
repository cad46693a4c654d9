"""The queue: which tasks wait, in which order, and the plan of who starts where and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentless.controller import plugins
from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.run_history import RunHistory
from agentless.controller.state.tasks import Tasks
from agentless.inventory.inventory import Inventory
from agentless.model.tasks.task import Assigning, Pending, Placement, Scheduled, Submitted, Task
from agentless.ports import Clock
from agentless.rules.explain.ahead import Ahead
from agentless.rules.scheduling.batches import within_limits
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import PROMISES, Plan, plan
from agentless.rules.scheduling.prerequisites import foreseeable
from agentless.rules.scheduling.search import Cost
from agentless.rules.tasks.awaited_jobs import jobs_awaited
from agentless.rules.tasks.gangs.gangs import (
    is_held_by_last_try,
)

AGAIN_AFTER = 2.0
"""Seconds before a task that a node has refused is tried again: whoever was there first is seen by then."""


class Queue:
    """The waiting tasks. `plan` is the result of the last look, `has_looked` whether there was one.

    `policy` is the inventory's. With `learn`, tasks without a time limit are expected to take as long as earlier
    ones of their kind.
    """

    def __init__(self, tasks: Tasks, nodes: Nodes, run_history: RunHistory, clock: Clock) -> None:
        self.policy = "pack"
        self.learn = False
        self.plan = Plan()
        self.has_looked = False
        self._tasks = tasks
        self._nodes = nodes
        self._run_history = run_history
        self._clock = clock
        self._used: Mapping[str, float] = {}
        self._lent: Mapping[str, float] = {}

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its policy."""
        self.policy = inventory.policy
        self.learn = inventory.learn

    @property
    def is_empty(self) -> bool:
        """Whether no task is pending."""
        return not self._waiting()

    @property
    def tasks(self) -> list[Task]:
        """The pending tasks in their order, then blocked and scheduled ones, then those in the queues of clusters."""
        away = [task for task in self._tasks.live.values() if isinstance(task.status, Submitted)]
        later = [
            (task.status.until, task.id, task)
            for task in self._tasks.live.values()
            if isinstance(task.status, Scheduled)
        ]
        blocked = [self._tasks.live[task_id] for task_id in self._tasks.waiters]
        return self.waiting() + blocked + [task for *_, task in sorted(later)] + away

    def look(self, others: Sequence[Task] = (), *, asking: Task | None = None) -> Plan:
        """Plan the pending tasks, and these others, as of now; `asking` is as in `Nodes.cluster`."""
        now = self._clock.now()
        waiting = [task for task in self._waiting() if not _was_refused_just_now(task, now)]
        handed, waiting, others = self._handed_over(waiting, others)
        cluster = self._nodes.cluster(asking=asking)
        self._used, self._lent = self._run_history.used(), self._run_history.lent()
        lengths = self._run_history.lengths(others) if self.learn else {}
        queue = order([*waiting, *self._blocked(), *others], self._used, self._lent)
        placed = (*self._tasks.live.values(), *handed)
        planned = plan(cluster, queue, now, self._policies, self.plan, lengths=lengths, placed=placed)
        starts = {task.id: place for task in handed if (place := task.placement)}
        return replace(planned, starts={**starts, **planned.starts}) if handed else planned

    def look_again(self) -> Plan:
        """Plan as of now, and keep the plan."""
        self.has_looked = True
        self.plan = Plan() if self.is_empty and not self._tasks.waiters else self.look()
        return self.plan

    def moved(self, task: Task) -> None:
        """A task was moved: like a new one, it is promised no start any more."""
        promises = {name: promise for name, promise in self.plan.promises.items() if name != task.id}
        self.plan = Plan(self.plan.starts, promises)

    def waiting(self, *others: Task) -> list[Task]:
        """The pending tasks and these others, in their order."""
        return order([*self._waiting(), *others], self._used, self._lent)

    def ahead(self, task: Task, looked: Plan) -> Ahead:
        """The tasks before it in the queue."""
        others = [] if task.id in self._tasks.live else [task]
        queue = order([*self._waiting(), *self._blocked(), *others], self._used, self._lent)
        mates = task.spec.gang.of_try(task.id) if task.spec.gang else ()
        before = [each for each in queue[: [each.id for each in queue].index(task.id)] if each.id not in mates]
        promises = {key: promise for key, promise in looked.promises.items() if key in self._tasks.live}
        lengths = self._run_history.lengths([task]) if self.learn else {}
        return Ahead(before, promises, self._policies, lengths, tuple(self._tasks.live.values()))

    def last_live(self, first: str) -> Task | None:
        """The last try of a task if it is live; `first` is the first one."""
        last = self._tasks.last_live(first)
        return self._tasks.live[last] if last else None

    def goes_with_its_wait(self, task_id: str) -> bool:
        """Whether the cluster of a blocked task answers, and waits in the place of our queue."""
        task = self._tasks.live.get(task_id)
        return task is not None and self._place_behind(task) is not None

    # ------------------------------------------------------------------ inside

    @property
    def _policies(self) -> Mapping[str | None, Cost]:
        return {name: POLICIES[name or self.policy] for name in (None, *POLICIES)}

    def _blocked(self) -> list[Task]:
        """The blocked tasks that may be promised a place."""
        blocked = (self._tasks.live[task_id] for task_id in self._tasks.waiters)
        return foreseeable(blocked, self.last_live, PROMISES)

    def _handed_over(
        self, waiting: Sequence[Task], others: Sequence[Task]
    ) -> tuple[list[Task], list[Task], list[Task]]:
        """The tasks that go to clusters which answer, with their places, and those that are planned here."""
        if not self._nodes.clusters:
            return [], [*waiting], [*others]
        away, now = list[Task](), self._clock.now()
        for task in (*waiting, *others):
            if (place := self._nodes.cluster_of(task.spec.needs)) and place.silence is None:
                away.append(_handed(task, Placement(place.node.name), now))
        known = (*self._tasks.live.values(), *waiting, *others)
        handed = [*within_limits(away, known), *self._waiting_there(now)]

        def here(some: Sequence[Task]) -> list[Task]:
            return [task for task in some if not self._nodes.cluster_of(task.spec.needs)]

        return handed, here(waiting), here(others)

    def _waiting_there(self, now: float) -> list[Task]:
        """The blocked tasks whose cluster can wait in their place, with their places."""
        blocked = map(self._tasks.live.__getitem__, self._tasks.waiters)
        return [_handed(task, place, now) for task in blocked if (place := self._place_behind(task))]

    def _place_behind(self, task: Task) -> Placement | None:
        """The place of a blocked task on its cluster behind the jobs that it waits for; None if it waits here."""
        link = self._nodes.cluster_of(task.spec.needs)
        if link is None or link.silence is not None:
            return None
        after = jobs_awaited(task, link.node.name, self.last_live)
        return Placement(link.node.name, after=after) if after else None

    def _waiting(self) -> list[Task]:
        live = self._tasks.live
        waiting = [t for t in live.values() if isinstance(t.status, Pending) and not t.stop]
        return [t for t in waiting if not is_held_by_last_try(t, live)]


def _handed(task: Task, place: Placement, now: float) -> Task:
    """A task as it is on its way to a cluster."""
    return replace(task, status=Assigning(place, now))


def _was_refused_just_now(task: Task, now: float) -> bool:
    since = task.status.since if isinstance(task.status, Pending) else None
    return since is not None and now - since < AGAIN_AFTER


POLICIES: Mapping[str, Cost] = {
    name: plugins.load("rules.scheduling.policies", name).cost for name in plugins.names("rules.scheduling.policies")
}
"""All there are, by name."""
