"""What failed is not tried again before its time, and is reported once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from agentless.controller.files.outputs import PutOff
from agentless.errors import AgentlessError, NoAnswer, StateError
from agentless.model.tasks.task import Task
from agentless.ports import Clock

RETRY_AFTER = 60.0
"""Seconds before a log that could not be fetched, or a container that could not be removed, is tried again."""

_log = logging.getLogger(__name__)


class Backoff:
    """Tries work, and remembers what failed. A `key` is a task, its outputs, or a container."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._not_before: dict[str, float] = {}
        self._troubles: dict[str, str] = {}
        self._warned: dict[tuple[str, str], str] = {}

    @property
    def trouble(self) -> str | None:
        """Why nothing can be kept here at present, each kind of work until some of it is done."""
        return "; ".join(dict.fromkeys(self._troubles.values())) or None

    def is_due(self, key: str) -> bool:
        """Whether it may be tried now."""
        return self._not_before.get(key, 0.0) <= self._clock.now()

    def put_off(self, key: str, seconds: float = RETRY_AFTER) -> None:
        """Do not try it again for so long."""
        self._not_before[key] = self._clock.now() + seconds

    def tick(self) -> bool:
        """Whether something has become due."""
        now, before = self._clock.now(), len(self._not_before)
        self._not_before = {key: moment for key, moment in self._not_before.items() if moment > now}
        if not self._not_before:
            self._troubles.clear()
        return len(self._not_before) < before

    def note(self, kind: str, error: StateError) -> None:
        """Work of this kind cannot be written down here."""
        self._troubles[kind] = str(error)

    def clear(self, kind: str) -> None:
        """Work of this kind could be written down."""
        self._troubles.pop(kind, None)

    async def run(
        self, kind: str, node: str, task: Task, work: Coroutine[Any, Any, None], within: float | None = None
    ) -> bool:
        """What goes wrong with one task does not hold up the others. Raises NoAnswer, which is about all of them.

        Work of each kind writes into a store of its own. Gives whether it is done.
        """
        try:
            async with asyncio.timeout(within):
                await work
            self.clear(kind)
            self._warned.pop((kind, task.id), None)
            return True
        except (NoAnswer, PutOff):
            raise
        except StateError as error:
            self._troubles[kind] = f"{error}; the container stays on {node}, and agentless retries"
        except (AgentlessError, TimeoutError) as error:
            if self._warned.get((kind, task.id)) != str(error):
                self._warned[kind, task.id] = str(error)
                _log.warning("%s: task %s: %s", node, task.id, error)
        except Exception:  # noqa: BLE001 - one task must not hold up the others
            _log.exception("%s: unexpected error while keeping the log of task %s", node, task.id)
        return False
