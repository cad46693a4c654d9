"""Removes tasks, with container, log and outputs to come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentless.controller.files.expected_outputs import ExpectedOutputs
from agentless.controller.nodes.node_link import NodeLink
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

AT_ONCE = 50
"""The most containers of one node that one command removes."""
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
        task, tries = self._found(reference, force=force, vps=vps)
        if not force:
            self._check_job(task, tries)
        views = [await self._remove(each, by, force=force) for each in tries]
        self._remember(task, views)
        return views[-1]

    async def remove_all(
        self, references: Iterable[str], *, by: Caller, force: bool = False, part: bool = False
    ) -> dict[str, TaskView | AgentlessError]:
        """Remove tasks likewise, several ended ones at a time; gives each as it was, or why it is still there.

        `part`: these are a part of what is removed, so that jobs may stay of their workflow for now.
        """
        found, live, ended = dict[str, TaskView | AgentlessError](), list[str](), dict[str, tuple[Task, list[Task]]]()
        for reference in dict.fromkeys(references):
            if reference in self._with_others:
                found[reference] = self._with_others.pop(reference)
                continue
            try:
                task, tries = self._found(reference, force=force)
            except AgentlessError as error:
                found[reference] = error
            else:
                if any(each.live for each in tries):
                    live.append(reference)
                else:
                    ended[reference] = task, tries

        async def one(reference: str) -> None:
            try:
                found[reference] = await self.remove(reference, by=by, force=force)
            except AgentlessError as error:
                found[reference] = error

        if not (force or part):
            found |= self._kept_jobs(ended)
        await asyncio.gather(*map(one, live))
        done = await self._remove_ended(
            {each.id: each for _, tries in ended.values() for each in tries}, by, force=force
        )
        for reference, (task, tries) in ended.items():
            results = [done[each.id] for each in tries]
            found[reference] = next((each for each in results if isinstance(each, AgentlessError)), results[-1])
            self._remember(task, [each for each in results if isinstance(each, TaskView)])
        for reference in ended:
            self._with_others.pop(reference, None)
        return found

    def _found(self, reference: str, *, force: bool, vps: bool = False) -> tuple[Task, list[Task]]:
        """The task, and all tries of it and of its gang that are to be removed. Raises Refused."""
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
        return task, tries

    def _kept_jobs(self, ended: dict[str, tuple[Task, list[Task]]]) -> dict[str, TaskView | AgentlessError]:
        """Take out those that would leave their workflow incomplete, with the reason."""
        gone, kept = [each for _, tries in ended.values() for each in tries], dict[str, TaskView | AgentlessError]()
        for reference, (task, _) in ended.items():
            try:
                self._check_job(task, gone)
            except Refused as error:
                kept[reference] = error
        for reference in kept:
            del ended[reference]
        return kept

    def _check_job(self, task: Task, tries: Sequence[Task]) -> None:
        """Raise Refused if a job would be removed of a workflow that has others: it would be incomplete."""
        job, gone = task.spec.job, {each.id for each in tries}
        if job is None or task.batch != job.workflow:
            return
        every = (*self._tasks.history.batch(task.batch), *self._tasks.in_batch(task.batch))
        left = {first_try(each.id) for each in every if each.id not in gone}
        if left and first_try(task.id) not in left:
            raise Refused(
                f"task {task.id} is job {job.name} of workflow {job.workflow}; to remove the workflow, run: agentless "
                f"workflow rm {job.workflow}; to remove only this job, which leaves the workflow incomplete: agentless "
                f"rm --force {task.id}"
            )

    def _remember(self, task: Task, views: Iterable[TaskView]) -> None:
        # Whoever names each member, as with `rm $(agentless ps -aq)`, is not told that it does not exist.
        gone = {first_try(view.id): view for view in views if first_try(view.id) != first_try(task.id)}
        self._with_others = dict([*self._with_others.items(), *gone.items()][-REMEMBERED:])

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

    async def _remove_ended(
        self, tasks: Mapping[str, Task], by: Caller, *, force: bool
    ) -> dict[str, TaskView | AgentlessError]:
        """Remove ended tries: on all nodes at once, on each some at a time, whose records go in one write."""
        here, there = list[Task](), dict[str, list[Task]]()
        for task in tasks.values():
            with_container = task.container and task.node in self._nodes.every
            (there.setdefault(task.node or "", []) if with_container else here).append(task)
        found = dict[str, TaskView | AgentlessError]()

        async def on(node: str, its: Sequence[Task]) -> None:
            for some in (its[at : at + AT_ONCE] for at in range(0, len(its), AT_ONCE)):
                errors = await self._remove_containers(node, some, force=force)
                found.update(errors)
                self._forget_ended([task for task in some if task.id not in errors], by, found)

        self._forget_ended(here, by, found)
        await asyncio.gather(*(on(node, its) for node, its in there.items()))
        return found

    async def _remove_containers(
        self, node: str, tasks: Sequence[Task], *, force: bool
    ) -> Mapping[str, AgentlessError]:
        """Remove the containers of ended tasks on one node; gives what was refused."""
        link, removed, errors = self._nodes.every[node], set[str](), dict[str, AgentlessError]()
        try:
            await link.ready()
            together = [task.container_ref for task in tasks if not task.spec.on_node_itself]
            if isinstance(link, NodeLink) and len(together) > 1:
                result = await link.run(link.runtime.remove_all(together, force=force))
                removed = {*result.out.split()}
        except AgentlessError as error:
            return {task.id: error for task in tasks}
        for task in tasks:
            if task.container_ref not in removed:
                try:
                    await self._remove_container(task, force=force)
                except AgentlessError as error:
                    errors[task.id] = error
        return errors

    def _forget_ended(self, tasks: Sequence[Task], by: Caller, found: dict[str, TaskView | AgentlessError]) -> None:
        try:
            for task in tasks:
                self._outputs.forget(task)
                self._logs.remove(task.id)
            views = self._ledger.forget_all(tasks, "removed", f"agentless rm, by {by}") if tasks else []
        except AgentlessError as error:
            found |= {task.id: error for task in tasks}
        else:
            found |= {view.id: view for view in views}

    async def _remove_container(self, task: Task, *, force: bool) -> None:
        """Remove the container of an ended task."""
        link = self._nodes.every[task.node or ""]
        await link.ready()
        # Not by force unless it was asked for: somebody may have started it again meanwhile.
        runtime = link.runtime_of(task)
        result = await link.run(runtime.remove(task.container_ref, force=force))
        if not result.ok and "no such container" not in result.err.lower():
            runtime.check(result)

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
            await self._remove_container(task, force=force)
        self._outputs.forget(task)
        return self._forget(task, f"agentless rm, by {by}")

    def _is_hidden(self, task: Task) -> bool:
        """Whether its engine answers, and does not show for certain what runs it."""
        link = self._nodes.every.get(task.node or "")
        container = container_of(task, link.containers) if link else None
        return (
            is_hidden(self._lookup.task(task.id))
            and link is not None
            and link.silence is None
            and (container is None or container.doubtful)
        )

    def _forget(self, task: Task, cause: str) -> TaskView:
        """Drop it from the ledger; returns it as it was published last."""
        self._logs.remove(task.id)
        return self._ledger.forget(task, "removed", cause)
