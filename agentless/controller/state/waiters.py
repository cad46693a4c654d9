"""The blocked tasks, by what they wait for."""

from __future__ import annotations

from collections.abc import Iterator

from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Blocked, Task
from agentless.model.tasks.task_id import first_try

Key = tuple[bool, str]
"""What is waited for: whether it is a batch, and its id."""


def key_of(requirement: Requirement) -> Key:
    """What a requirement is about."""
    return requirement.batch, requirement.on


def keys_of(task: Task) -> tuple[Key, Key]:
    """What a requirement about this task may name."""
    return (False, first_try(task.id)), (True, task.batch)


class Waiters:
    """Who waits for whom: an end concerns only those that wait for it, however many others are blocked."""

    def __init__(self) -> None:
        self._on: dict[str, tuple[Requirement, ...]] = {}
        self._of: dict[Key, dict[str, None]] = {}

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
        return [task_id for key in keys_of(task) for task_id in self.of(key)]

    def put(self, task: Task) -> None:
        """Note what a task waits for now."""
        on = task.status.on if isinstance(task.status, Blocked) else ()
        before = self._on.get(task.id, ())
        if on == before:
            return
        for key in {key_of(each) for each in before} - {key_of(each) for each in on}:
            waiting = self._of[key]
            waiting.pop(task.id, None)
            if not waiting:
                del self._of[key]
        for each in on:
            self._of.setdefault(key_of(each), {})[task.id] = None
        if on:
            self._on[task.id] = on
        else:
            del self._on[task.id]

    def drop(self, task_id: str) -> None:
        """Forget a task that waits no more."""
        for each in self._on.pop(task_id, ()):
            waiting = self._of.get(key_of(each), {})
            waiting.pop(task_id, None)
            if not waiting:
                self._of.pop(key_of(each), None)
