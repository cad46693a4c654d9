"""Starts tasks: members of a gang all or none, others each by itself.

A gang is created on all nodes first, which claims its GPUs, and started when all of it has been created. If a member
cannot be created or started, the others are removed again, and the gang returns to the queue. Both steps may be
repeated, so a new controller goes on wherever the last one was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from agentless.controller.gangs.members import MemberNodes
from agentless.controller.guarded import guarded_item
from agentless.controller.nodes.reconciler import Reconciler
from agentless.controller.state.event_bus import EventBus, LaunchWanted
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.launch.launcher import Elsewhere, Launcher
from agentless.controller.to_the_end import waited_for
from agentless.errors import AgentlessError, NoAnswer, NodeBroken, NodeUnfit, Refused, RuntimeFailed, TemplateError
from agentless.model.tasks.task import Assigning, Ended, Lost, Pending, Scheduled, Task
from agentless.model.tasks.task_event import Launched, LaunchFailed, Met, TaskEvent, Unplaced
from agentless.ports import Clock
from agentless.rules.tasks.gangs.gangs import gang_key, is_mate
from agentless.rules.tasks.reconcile import LAUNCH_BOUND

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_Work = Callable[[list[str]], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class _Failure:
    """The member that cannot start, and why. `unanswered` are those of which it is not known whether they will."""

    task: Task
    error: AgentlessError
    unanswered: frozenset[str] = frozenset()

    @property
    def words(self) -> str:
        """What is told of it."""
        rank = self.task.spec.gang.rank if self.task.spec.gang else 0
        return f"rank {rank} could not start on {self.task.node}: {self.error}"

    @property
    def is_final(self) -> bool:
        """Whether it would fail anywhere."""
        return isinstance(self.error, (RuntimeFailed, TemplateError))


class Starts:
    """Launches tasks whose turn it is."""

    def __init__(
        self,
        launcher: Launcher,
        nodes: MemberNodes,
        reconciler: Reconciler,
        ledger: Ledger,
        bus: EventBus,
        clock: Clock,
    ) -> None:
        self._launcher = launcher
        self._nodes = nodes
        self._reconciler = reconciler
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._clock = clock
        self._runs: dict[str, tuple[float | None, asyncio.Task[None]]] = {}
        bus.subscribe(LaunchWanted, self._wanted)

    async def first(self, task_id: str, elsewhere: Elsewhere) -> None:
        """Launch a new task, and wait. Raises Refused if nothing is left of the task, or NoAnswer."""
        task = self._tasks.live.get(task_id)
        if task is None or not task.spec.gang:
            await self._launcher.first(task_id, elsewhere)
        else:
            await waited_for(self._run(task, self._together), f"task {task_id}: launch")

    def begin(self, task_id: str, elsewhere: Elsewhere) -> None:
        """Launch a task whose turn it is."""
        task = self._tasks.live.get(task_id)
        if task and task.spec.gang:
            run = self._run(task, self._together)
            run.add_done_callback(lambda done: done.cancelled() or done.exception())
        else:
            self._launcher.begin(task_id, elsewhere)

    async def await_outcome(self, task_id: str) -> None:
        """Wait until the node has reported the outcome of a launch, for a while."""
        await self._launcher.await_outcome(task_id)

    async def close(self) -> None:
        """Leave gangs that are being started to the next controller."""
        runs = [run for _, run in self._runs.values()]
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    # ------------------------------------------------------------------ inside

    def _run(self, task: Task, work: _Work) -> asyncio.Task[None]:
        """Work for the gang of a task; all of its members share it. Work for later places begins when it is over."""
        key = gang_key(task) or task.id
        since = task.status.since if isinstance(task.status, (Assigning, Lost)) else None
        before = self._runs.get(key)
        if before and before[0] == since:
            return before[1]
        ids = self._ids(task)
        self._tasks.launching.update(ids)
        run = asyncio.create_task(self._guarded(ids, work, before[1] if before else None))
        self._runs[key] = since, run
        run.add_done_callback(lambda _: self._runs.pop(key) if self._runs.get(key) == (since, run) else None)
        return run

    def _ids(self, task: Task) -> list[str]:
        """The members of its gang by rank, without those that know nothing of it; a forged label may name any task."""
        ids = task.spec.gang.of_try(task.id) if task.spec.gang else (task.id,)
        return [each for each in ids if not (found := self._tasks.find(each)) or found == task or is_mate(task, found)]

    async def _guarded(self, ids: list[str], work: _Work, before: asyncio.Task[None] | None) -> None:
        if before:
            await asyncio.wait([before])
            self._tasks.launching.update(ids)
        try:
            await work(ids)
        except Refused:
            raise
        except AgentlessError as error:
            _log.warning("gang %s: launch: %s", ids[0], error)
        finally:
            self._tasks.launching.difference_update(ids)
        for task_id in ids:
            self._reconciler.catch_up(task_id)

    def _wanted(self, wanted: LaunchWanted) -> None:
        if wanted.task.spec.gang and gang_key(wanted.task) not in self._runs:
            run = self._run(wanted.task, self._again)
            run.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody else listens

    def _assigned(self, ids: Sequence[str]) -> list[Task]:
        """The members that have a place, and of which it is not known that they have started, by rank."""
        live = [self._tasks.live[each] for each in ids if each in self._tasks.live]
        return [task for task in live if isinstance(task.status, (Assigning, Lost)) and not task.container]

    async def _together(self, ids: list[str]) -> None:
        """Create all members, then start all; what fails is undone."""
        members = self._assigned(ids)
        if len(members) < max(len(ids), *(task.spec.gang_size for task in members), 1):
            return
        await self._nodes.ready(members)
        created = await self._created(ids)
        if isinstance(created, _Failure):
            await self._undo(self._assigned(ids), created, force=False)
            return
        members = self._assigned(ids)
        failure = await self._started(members, created)
        if failure is not None:
            await self._undo(members, failure, force=True)

    async def _created(self, ids: list[str]) -> _Failure | dict[str, str]:
        """Create all members; gives the containers of those that cannot have been created before."""
        members = self._assigned(ids)
        gang = members[0].spec.gang
        is_new = gang is not None and not gang.peers
        if gang and is_new:
            looks, errors = await _each(members, self._nodes.look)
            if errors:
                return replace(_failure(members, errors), unanswered=frozenset())  # nothing was created
            try:
                gangs = self._nodes.meet(members, looks)
            except NodeUnfit as error:
                [unfit] = [task for task in members if task.node == error.node]
                # Its ports will be free again: it waits if it can go nowhere else.
                return _Failure(unfit, Refused(str(error)) if self._nodes.is_unfit_everywhere(unfit) else error)
            events: dict[str, tuple[TaskEvent, str]] = {
                task.id: (Met(gang), "all members have places") for task, gang in zip(members, gangs, strict=True)
            }
            members = self._ledger.apply_all(events)
        created, errors = await _each(members, self._nodes.hold)
        if errors:
            return _failure(members, errors)
        if stopped := next((task for task in self._assigned(ids) if task.stop), None):
            return _Failure(stopped, Refused("stopped before it started"))
        return created if is_new else {}

    async def _started(self, members: list[Task], created: Mapping[str, str]) -> _Failure | None:
        """Start what has been created; gives what makes it certain that a member does not start."""
        begun, errors = await _each(members, lambda task: self._nodes.start(task, created.get(task.id, "")))
        # A start that fails leaves nothing, and says why only when it is made anew.
        again = [task for task in members if isinstance(errors.get(task.id), NoAnswer)]
        more, errors_again = await _each(again, self._nodes.start)
        begun, errors = begun | more, {**errors, **errors_again}
        errors = {task: error for task, error in errors.items() if task not in begun}
        if any(not isinstance(error, NoAnswer) for error in errors.values()):
            return _failure(members, errors)
        self._launched(begun)
        return None

    def _launched(self, begun: Mapping[str, str]) -> None:
        events: dict[str, tuple[TaskEvent, str]] = {
            task.id: (Launched(begun[task.id]), f"{task.node} answered") for task in self._assigned(list(begun))
        }
        if events:
            self._ledger.apply_all(events)

    async def _again(self, ids: list[str]) -> None:
        """Go on with a gang of which a node has no running container of a member."""
        known = map(self._tasks.find, ids)
        mates, assigned = [task for task in known if task], self._assigned(ids)
        if len(assigned) == len(ids):
            await self._together(ids)
        elif waits := next((task for task in mates if isinstance(task.status, (Pending, Scheduled))), None):
            reason = waits.status.reason if isinstance(waits.status, (Pending, Scheduled)) else ""
            await self._undo(assigned, _Failure(waits, Refused(reason)), force=True, late=True, words=reason)
        elif any(task.container for task in mates):
            begun, errors = await _each(assigned, self._nodes.start)
            self._launched(begun)
            for task in assigned:
                error = errors.get(task.id)
                if error and not isinstance(error, NoAnswer):
                    words = _Failure(task, error).words
                    self._ledger.apply(task.id, LaunchFailed(words), f"{task.node} could not start it")
        elif ended := next((task for task in mates if isinstance(task.status, Ended)), None):
            reason = (ended.status.reason if isinstance(ended.status, Ended) else None) or "its gang has ended"
            await self._undo(assigned, _Failure(ended, RuntimeFailed(reason)), force=True, late=True, words=reason)

    async def _undo(
        self, members: Sequence[Task], failure: _Failure, *, force: bool, late: bool = False, words: str = ""
    ) -> None:
        """Remove what was created, and put the gang back into the queue, or end it.

        A member whose node does not answer keeps its place until it does. `late`: an earlier launch of any member may
        still wait on its node.
        """
        undone = await asyncio.gather(
            *(self._nodes.undo(task, force=force) for task in members), return_exceptions=True
        )
        gone = list[Task]()
        for task, result in zip(members, undone, strict=True):
            now = self._tasks.live.get(task.id)
            if isinstance(result, BaseException):
                _log.warning("task %s: cannot undo its launch on %s: %s", task.id, task.node, result)
            elif now and isinstance(now.status, (Assigning, Lost)):
                is_unclear = late or task.id in failure.unanswered
                if not is_unclear or self._clock.now() - now.status.since > LAUNCH_BOUND:
                    gone.append(now)
        self._return(gone, failure, words or failure.words)

    def _return(self, gone: Sequence[Task], failure: _Failure, words: str) -> None:
        """What becomes of members of which nothing is left on their nodes."""
        unfit = failure.task.node if isinstance(failure.error, NodeUnfit) else None
        is_final = failure.is_final or (unfit is not None and self._nodes.is_unfit_everywhere(failure.task))
        waiting = [task for task in gone if not (is_final or task.stop or task.spec.terms.wait_for == 0)]
        at_once = isinstance(failure.error, (NodeBroken, NodeUnfit))
        event, cause = Unplaced(words, at_once=at_once, unfit=unfit), "not all members could start"
        if waiting:
            self._ledger.apply_all({task.id: (event, cause) for task in waiting})
        over = [task for task in gone if task not in waiting]
        if over and len(over) == over[0].spec.gang_size and not is_final and not any(task.stop for task in over):
            for task in over:
                self._ledger.forget(task, "refused", words)
            raise Refused(words)
        for task in over:
            with guarded_item(f"task {task.id}: the end of its launch"):
                reason = "stopped before it started" if task.stop else words
                self._ledger.apply(task.id, LaunchFailed(reason), cause)


async def _each(
    members: Sequence[Task], work: Callable[[Task], Awaitable[_Result]]
) -> tuple[dict[str, _Result], dict[str, AgentlessError]]:
    """Do it for all members at once; gives results and errors by task."""
    results = await asyncio.gather(*(work(task) for task in members), return_exceptions=True)
    done, errors = dict[str, _Result](), dict[str, AgentlessError]()
    for task, result in zip(members, results, strict=True):
        if isinstance(result, AgentlessError):
            errors[task.id] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            done[task.id] = result
    return done, errors


def _failure(members: Sequence[Task], errors: Mapping[str, AgentlessError]) -> _Failure:
    """The failure that is told: one that is certain, if there is one."""
    unanswered = frozenset(task for task, error in errors.items() if isinstance(error, NoAnswer))
    task = min((task for task in members if task.id in errors), key=lambda task: task.id in unanswered)
    return _Failure(task, errors[task.id], unanswered)
