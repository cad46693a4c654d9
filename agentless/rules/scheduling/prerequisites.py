"""When the tasks end that blocked ones wait for, as far as a plan knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Blocked, Lost, Scheduled, Task
from agentless.model.tasks.task_id import first_try
from agentless.rules.scheduling.stay import UNKNOWN, Stay
from agentless.rules.scheduling.timeline.gpu import FAR
from agentless.rules.tasks.retry import is_last_try


class Prerequisites:
    """The places of those that blocked tasks of the queue wait for. `tasks` are all live ones.

    `stays` are the places of single tasks, by the id of the first try, `batches` those of batches.
    """

    def __init__(self, queue: Iterable[Task], tasks: Iterable[Task]) -> None:
        blocked = [task.status for task in queue if isinstance(task.status, Blocked)]
        wanted = {requirement for status in blocked for requirement in status.on}
        self.stays: dict[str, Stay | None] = {each.on: None for each in wanted if not each.batch}
        self.batches: dict[str, _Batch] = {each.on: _Batch() for each in wanted if each.batch}
        if self.batches:
            for task in tasks:
                if task.live and task.batch in self.batches:
                    self.batches[task.batch].left.add(first_try(task.id))

    def wants(self, task: Task) -> bool:
        """Whether a blocked task waits for this one."""
        return task.batch in self.batches or first_try(task.id) in self.stays

    def add(self, task: Task, stay: Stay) -> None:
        """Note the place that a task has, or is promised. If it may be tried again, its end is not certain."""
        first, certain = first_try(task.id), is_last_try(task) and not isinstance(task.status, Lost)
        stay = stay if certain else replace(stay, sure=False)
        if first in self.stays:
            self.stays[first] = stay
        if batch := self.batches.get(task.batch):
            batch.left.discard(first)
            batch.last = latest(batch.last, stay)

    def before(self, task: Task) -> Stay | None:
        """The last of the places that have to become free before a blocked task may start. None for any other task.

        That a task fails is never certain.
        """
        if not isinstance(task.status, Blocked):
            return None
        last: Stay | None = None
        for requirement in task.status.on:
            stay = self._of(requirement)
            if stay is None or stay.end >= FAR:
                return UNKNOWN
            last = latest(last, stay if requirement.state != "failed" else replace(stay, sure=False))
        return last or UNKNOWN

    def copy(self) -> Prerequisites:
        """The same, to which other places can be added."""
        other = copy(self)
        other.stays = dict(self.stays)
        other.batches = {name: _Batch(set(batch.left), batch.last) for name, batch in self.batches.items()}
        return other

    def _of(self, requirement: Requirement) -> Stay | None:
        if not requirement.batch:
            return self.stays.get(requirement.on)
        batch = self.batches[requirement.on]
        return None if batch.left else batch.last


def foreseeable(blocked: Iterable[Task], last_live: Callable[[str], Task | None], most: int) -> list[Task]:
    """The first of these blocked tasks that wait only for tasks with a place, pending ones, or each other."""
    found: dict[str, Task] = {}
    for task in blocked:
        if len(found) == most:
            break
        if isinstance(task.status, Blocked) and not task.stop:
            before = [last_live(each.on) for each in task.status.on if not each.batch]
            if all(each and (first_try(each.id) in found or not is_held(each)) for each in before):
                found[first_try(task.id)] = task
    return list(found.values())


def in_turn(queue: Sequence[Task]) -> Sequence[Task]:
    """The queue with each blocked task behind those that it waits for, since it cannot come before them."""
    if not any(isinstance(task.status, Blocked) for task in queue):
        return queue
    left = Counter(key for task in queue for key in task.waited_for_as)
    waiting: dict[tuple[bool, str], list[Task]] = {}
    missing: dict[str, int] = {}
    found = dict[str, Task]()
    for task in queue:
        keys = {each.key for each in task.status.on if left[each.key]} if isinstance(task.status, Blocked) else set()
        missing[task.id] = len(keys)
        for key in keys:
            waiting.setdefault(key, []).append(task)
        ready = [] if keys else [task]
        while ready:
            first = ready.pop()
            found[first.id] = first
            for key in first.waited_for_as:
                left[key] -= 1
                for each in reversed([] if left[key] else waiting.pop(key, [])):
                    missing[each.id] -= 1
                    ready += [] if missing[each.id] else [each]
    return [*found.values(), *(task for task in queue if task.id not in found)]


def is_held(task: Task) -> bool:
    """Whether a task is not even in the queue."""
    return isinstance(task.status, Blocked | Scheduled)


@dataclass(slots=True)
class _Batch:
    """The tasks of a batch without a place, and the last place of the others."""

    left: set[str] = field(default_factory=set)
    last: Stay | None = None


def latest(one: Stay | None, other: Stay | None) -> Stay | None:
    """The one that ends last. It is sure if both are."""
    if one is None or other is None:
        return one or other
    last = max(one, other, key=lambda stay: stay.end)
    return last if last is UNKNOWN else replace(last, sure=one.sure and other.sure)
