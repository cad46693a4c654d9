"""The blocked tasks, by what they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Blocked, Task

Key = tuple[bool, str]
"""What is waited for: whether it is a batch, and its id."""


class Waiters:
    """Who waits for whom: an end concerns only those that wait for it, however many others are blocked.

    A task may wait for a thousand others, so what has not changed of that is not looked at again.
    """

    def __init__(self) -> None:
        self._on: dict[str, tuple[Requirement, ...]] = {}
        self._of: dict[Key, dict[str, tuple[Requirement, ...]]] = {}

    def __iter__(self) -> Iterator[str]:
        """The ids of all blocked tasks."""
        return iter(self._on)

    def __len__(self) -> int:
        return len(self._on)

    def __contains__(self, key: Key) -> bool:
        """Whether anybody waits for this."""
        return key in self._of

    def of(self, key: Key) -> list[str]:
        """The ids of the tasks that wait for this, in the order in which they came."""
        return list(self._of.get(key, ()))

    def of_task(self, task: Task) -> list[str]:
        """The ids of the tasks that wait for this task or for its batch."""
        return [task_id for key in task.waited_for_as for task_id in self.of(key)]

    def between(self, task_id: str, keys: Iterable[Key]) -> list[Requirement]:
        """What a task requires of these."""
        return [each for key in keys for each in self._of.get(key, {}).get(task_id, ())]

    def put(self, task: Task) -> None:
        """Note what a task waits for now."""
        on = task.status.on if isinstance(task.status, Blocked) else ()
        before = self._on.get(task.id, ())
        if on is before:
            return
        old, new = dict(zip(map(id, before), before, strict=True)), dict(zip(map(id, on), on, strict=True))
        for found in new.keys() - old.keys():
            waiting = self._of.setdefault(new[found].key, {})
            waiting[task.id] = (*waiting.get(task.id, ()), new[found])
        for gone in old.keys() - new.keys():
            self._drop(task.id, old[gone])
        if on:
            self._on[task.id] = on
        else:
            self._on.pop(task.id, None)

    def drop(self, task_id: str) -> None:
        """Forget a task that waits no more."""
        for each in self._on.pop(task_id, ()):
            self._drop(task_id, each)

    def _drop(self, task_id: str, requirement: Requirement) -> None:
        waiting = self._of[requirement.key]
        if left := tuple(each for each in waiting[task_id] if each is not requirement):
            waiting[task_id] = left
            return
        del waiting[task_id]
        if not waiting:
            del self._of[requirement.key]
