"""Removes tasks, with container, log and outputs to come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from agentless.controller.files.expected_outputs import ExpectedOutputs
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.controller.tasks.stops import Stops
from agentless.errors import AgentlessError, Refused, Unreachable
from agentless.model.caller import Caller
from agentless.model.tasks.task import Ended, Task
from agentless.model.tasks.task_id import first_try, next_try, numbered
from agentless.model.view import TaskView
from agentless.rules.tasks.reconcile import container_of, is_hidden
from agentless.stores.files.logs import LogStore

REMEMBERED = 1000
"""The most members of gangs that are remembered after they were removed with the others."""


class Removal:
    """Removes tasks."""

    def __init__(
        self,
        nodes: Nodes,
        stops: Stops,
        ledger: Ledger,
        lookup: Lookup,
        outputs: ExpectedOutputs,
        logs: LogStore,
    ) -> None:
        self._nodes = nodes
        self._stops = stops
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._lookup = lookup
        self._outputs = outputs
        self._logs = logs
        self._with_others: dict[str, TaskView] = {}  # members that were removed with their gang

    async def remove(self, reference: str, *, by: Caller, force: bool = False, vps: bool = False) -> TaskView:
        """Remove an ended task with its container and log, and all tries unless the number of one is given.

        With one member of a gang all are removed.

        `force` kills a live one first.
        """
        if reference in self._with_others:
            return self._with_others.pop(reference)
        task = self._lookup.find(reference)
        if self._tasks.is_vps(task) and not vps:
            raise Refused(
                f"task {task.id} is a VPS; to remove it with its files, run: agentless vps rm {task.spec.name}"
            )
        of_all, mates = reference != numbered(task.id), self._lookup.gang(task)
        mates = [*(each for each in mates if each.id != task.id), task]
        tries = [each for mate in mates for each in ([*self._earlier(mate), mate] if of_all else [mate])]
        if late := next((each for each in tries if self._outputs.open(each) and not force), None):
            raise Refused(
                f"outputs of task {late.id} are not copied yet; to wait for them, run: agentless wait {late.id}; "
                f"to discard them: agentless rm --force {late.id}"
            )
        if live := next((each for each in tries if each.live and not force), None):
            raise Refused(f"task {live.id} is {live.state}; first run: agentless stop {live.id}, or use rm --force")
        waiting = self.waiting_for(task)
        if waiting and not force:
            more = f" and {len(waiting) - 1} more wait" if len(waiting) > 1 else " waits"
            raise Refused(
                f"task {waiting[0]}{more} for task {task.id}; to end that, run: agentless stop {waiting[0]}; to "
                f"remove this one all the same: agentless rm --force {task.id}"
            )
        views = [await self._remove(each, by, force=force) for each in tries]
        # Whoever names each member, as with `rm $(agentless ps -aq)`, is not told that it does not exist.
        gone = {first_try(view.id): view for view in views if first_try(view.id) != first_try(task.id)}
        self._with_others = dict([*self._with_others.items(), *gone.items()][-REMEMBERED:])
        return views[-1]

    def waiting_for(self, task: Task) -> Sequence[str]:
        """The tasks that wait for a task, and for no later try of it."""
        return () if self._tasks.knows(next_try(task.id)) else self._tasks.waiters.of_task(task)

    def has_open_outputs(self, task: Task) -> bool:
        """Whether outputs of a task, or of an earlier try, may still arrive."""
        return any(map(self._outputs.open, (*self._earlier(task), task)))

    async def silent(self, tasks: Iterable[Task]) -> dict[str, list[Task]]:
        """The nodes that do not answer, each with those of these tasks that cannot be removed without it."""
        there: dict[str, list[Task]] = {}
        for task in tasks:
            for each in (*self._earlier(task), task):
                if each.container and each.node in self._nodes.every and task not in there.get(each.node, ()):
                    there.setdefault(each.node, []).append(task)
        links = [self._nodes.every[name] for name in there]
        await asyncio.gather(*(link.ready() for link in links), return_exceptions=True)
        return {link.node.name: there[link.node.name] for link in links if link.silence is not None}

    # ------------------------------------------------------------------ inside

    def _earlier(self, task: Task) -> Iterator[Task]:
        """The tries before this one that are still known."""
        each = first_try(task.id)
        for _ in range(1, task.attempt):
            if self._tasks.knows(each):
                yield self._lookup.task(each)
            each = next_try(each)

    async def _remove(self, task: Task, by: Caller, *, force: bool) -> TaskView:
        """Remove one try; returns it as it was published last."""
        if task.live:
            if task.placement and task.node not in self._nodes.every:
                return self._forget(task, f"agentless rm --force, by {by}; {task.node} is not in the inventory")
            try:
                await self._stops.ask(task, "kill", by=by)
            except Unreachable as error:
                raise Unreachable(f"{error}; after that, run: agentless rm {task.id}") from None
            except AgentlessError:
                if not self._is_hidden(task):
                    raise
                return self._forget(task, f"agentless rm --force, by {by}; {task.node} does not show its container")
            task = self._lookup.task(task.id)
        if isinstance(task.status, Ended) and task.status.container and task.node in self._nodes.every:
            link = self._nodes.every[task.node]
            await link.ready()
            # Not by force unless it was asked for: somebody may have started it again meanwhile.
            runtime = link.runtime_of(task)
            result = await link.run(runtime.remove(task.container_ref, force=force))
            if not result.ok and "no such container" not in result.err.lower():
                runtime.check(result)
        self._outputs.forget(task)
        return self._forget(task, f"agentless rm, by {by}")

    def _is_hidden(self, task: Task) -> bool:
        """Whether its engine answers, keeps containers elsewhere than before, and does not show this one."""
        link = self._nodes.every.get(task.node or "")
        return (
            is_hidden(self._lookup.task(task.id))
            and link is not None
            and link.silence is None
            and container_of(task, link.containers) is None
        )

    def _forget(self, task: Task, cause: str) -> TaskView:
        """Drop it from the ledger; returns it as it was published last."""
        self._logs.remove(task.id)
        return self._ledger.forget(task, "removed", cause)
