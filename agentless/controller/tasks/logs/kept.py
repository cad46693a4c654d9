"""Kept logs by lines: pages of them, and searches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from agentless.controller.in_thread import in_thread
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.lookup import Lookup
from agentless.errors import Refused
from agentless.formats.log_index import Part
from agentless.model.tasks.task import Task
from agentless.model.view import LogFoundView, LogLinesView, LogLineView, LogMatchesView, LogView
from agentless.rules.tasks.reconcile import container_of
from agentless.stores.files.log_pages import LogIndexes, LogPages
from agentless.stores.files.logs import LogStore

AT_ONCE = 2
"""Logs that are read at a time: who waits for an index to be made would take the threads of everything else."""
_Result = TypeVar("_Result")


class KeptLogs:
    """Reads logs of ended tasks in threads: a long one takes a second to index, and as long to search."""

    def __init__(self, nodes: Nodes, lookup: Lookup, kept: LogStore, indexes: LogIndexes) -> None:
        self._nodes = nodes
        self._lookup = lookup
        self._kept = kept
        self._indexes = indexes
        self._places = asyncio.Semaphore(AT_ONCE)

    async def about(self, reference: str) -> LogView:
        """How long a log is, and whether it is complete."""
        task = self._lookup.find(reference)
        on_node = self._is_on_node(task)

        def view(log: LogPages) -> LogView:
            counts = (log.index.span(only).end for only in (None, 1, 2))
            return LogView(task.id, not log.is_cut, on_node, log.size, *counts)

        return await self._with(task, view)

    async def lines(self, reference: str, part: Part) -> LogLinesView:
        """Some of its lines."""

        def view(log: LogPages) -> LogLinesView:
            first, lines = log.lines(part)
            return LogLinesView(
                first, tuple(LogLineView(stream, line.decode(errors="replace")) for stream, line in lines)
            )

        return await self._with(self._lookup.find(reference), view)

    async def find(self, reference: str, words: str, first: int, *, back: bool, only: int | None) -> LogFoundView:
        """Search it, for a part of a second."""

        def view(log: LogPages) -> LogFoundView:
            found = log.find(words, first, back=back, only=only)
            return LogFoundView(found.line, found.go_on)

        return await self._with(self._lookup.find(reference), view)

    async def matches(self, reference: str, words: str, first: int, *, only: int | None) -> LogMatchesView:
        """All lines that have these words, for a part of a second."""

        def view(log: LogPages) -> LogMatchesView:
            found = log.matches(words, first, only=only)
            return LogMatchesView(found.lines, found.go_on)

        return await self._with(self._lookup.find(reference), view)

    # ------------------------------------------------------------------ inside

    async def _with(self, task: Task, work: Callable[[LogPages], _Result]) -> _Result:
        if task.live or self._kept.state(task.id) not in ("whole", "cut"):
            raise Refused(f"the log of task {task.id} is not kept here; run: agentless logs {task.id}")

        def opened() -> _Result:
            with self._indexes.open(task.id) as log:
                return work(log)

        async with self._places:
            return await in_thread(opened)

    def _is_on_node(self, task: Task) -> bool:
        """Whether its container, and with it the whole log, can be read now."""
        link = self._nodes.every.get(task.node or "")
        engine = link.observation.engine if link and link.online else None
        return (
            engine is not None and engine.containers is not None and container_of(task, engine.containers) is not None
        )
