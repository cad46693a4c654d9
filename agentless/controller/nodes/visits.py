"""Who has logged in to containers, and when the last one has left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager

from agentless.ports import Clock

Show = Callable[[str], None]
"""Shows a line to somebody who has logged in."""


class Visits:
    """The sessions in containers, by task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._here: defaultdict[str, list[Show]] = defaultdict(list)
        self._left: dict[str, float] = {}

    @contextmanager
    def entered(self, task_id: str, show: Show) -> Iterator[None]:
        """Somebody is in the container of a task."""
        self._here[task_id].append(show)
        try:
            yield
        finally:
            self._here[task_id].remove(show)
            if not self._here[task_id]:
                del self._here[task_id]
            self._left[task_id] = self._clock.now()

    def left_at(self, task_id: str) -> float | None:
        """When the last one has left (Unix seconds), 0 if nobody was there, None while somebody is."""
        return None if task_id in self._here else self._left.get(task_id, 0.0)

    def keep_only(self, tasks: Container[str]) -> None:
        """Forget when the last one has left the containers of all other tasks."""
        self._left = {task_id: at for task_id, at in self._left.items() if task_id in tasks}

    def tell(self, task_id: str, text: str) -> None:
        """Show a line to all who are in the container of a task."""
        for show in list(self._here.get(task_id, ())):
            show(text)
