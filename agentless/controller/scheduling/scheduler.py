"""The queue: looks at who waits whenever something has changed, and starts those whose turn it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

from agentless import plugins
from agentless.controller.nodes.connection import SAMPLE_SOON
from agentless.controller.nodes.registry import Core
from agentless.controller.scheduling.run_history import RunHistory
from agentless.errors import AgentlessError, Refused, StateError, Unreachable, UsageError
from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.event import Assigned, Moved
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Pending, Placement, Scheduled, Task
from agentless.model.units import format_duration
from agentless.model.view import ExplainView, ShareView
from agentless.rules.explain.ahead import Ahead
from agentless.rules.explain.explanation import explanation, when
from agentless.rules.explain.obstacles import asked, brief, never, refusal
from agentless.rules.scheduling.batches import is_held_back
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import Outlook, Plan, plan
from agentless.rules.scheduling.rank import move
from agentless.rules.scheduling.search import Cost
from agentless.rules.views.publish import timestamp

LOOK_EVERY = 2.0
"""Seconds between two looks at a queue to which nothing has happened: GPU memory may be free by now."""
TOLD = 20
"""So many at the head of the queue are told what is in their way; the others, how many are before them."""
AGAIN_AFTER = 2.0
"""Seconds before a task that a node has refused is tried again: whoever was there first is seen by then."""

_log = logging.getLogger(__name__)


class Scheduler:
    """Those who wait, in their order. `policy` is the one that the inventory names.

    `launch` begins a launch, and is given `elsewhere` for a task that its node cannot start.
    `learn`: tasks without a limit are expected to take as long as those of their kind took.
    """

    def __init__(
        self, core: Core, launch: Callable[[str, Callable[[str], bool]], None], run_history: RunHistory
    ) -> None:
        self.policy = "pack"
        self.learn = False
        self.plan = Plan()
        self._core = core
        self._run_history = run_history
        self._used: Mapping[str, float] = {}
        self._positions: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        self._seen: Cluster | None = None
        core.outlook = self.outlook
        self._launch = launch
        self._work: asyncio.Task[None] | None = None

    @property
    def queue(self) -> list[Task]:
        """The tasks that wait, those first that are next; behind them those that are not in the queue yet."""
        later = [
            (task.status.until, task.id, task)
            for task in self._core.tasks.values()
            if isinstance(task.status, Scheduled)
        ]
        return self._in_order() + [task for *_, task in sorted(later)]

    def look(self, others: Sequence[Task] = ()) -> Plan:
        """What would happen now to those who wait, and to these others."""
        now = self._core.clock.now()
        waiting = [task for task in self._waiting() if not _was_refused_just_now(task, now)]
        cluster = self._core.cluster()
        self._used = self._run_history.used()
        lengths = self._run_history.lengths(others) if self.learn else {}
        queue, placed = order([*waiting, *others], self._used), self._core.tasks.values()
        return plan(cluster, queue, now, self._policies, self.plan, lengths=lengths, placed=placed)

    def elsewhere(self, task: str) -> bool:
        """Give a task that its node could not start another place now; says whether there is one."""
        placement = self.look().starts.get(task)
        if placement is None:
            return False
        self._assign({task: placement}, "its node could not start it")
        return True

    def shares(self) -> list[ShareView]:
        """What each owner has used lately, holds and waits for."""
        return self._run_history.shares()

    def outlook(self, task: Task) -> Outlook:
        """What one who waits is told."""
        if task.id not in self._positions:
            self._positions = {waiting.id: number for number, waiting in enumerate(self._in_order(), 1)}
        position = self._positions.get(task.id)
        if position is None:
            return Outlook()
        if position > TOLD:
            return Outlook(position, f"{position - 1} tasks are before it", self.plan.promises.get(task.id))
        if task.id not in self._reasons:
            refused = task.status.reason if isinstance(task.status, Pending) else ""
            self._seen = self._seen or self._core.cluster()  # a look at many nodes takes its time
            found = self._held_back(task) or brief(self._seen, task.spec, task.owner)
            fits = "what is free is promised to those before it" if position > 1 else "it is about to start"
            self._reasons[task.id] = found or refused or fits
        return Outlook(position, self._reasons[task.id], self.plan.promises.get(task.id))

    def explain(self, task: Task) -> ExplainView:
        """Why a task does not start, node by node."""
        if isinstance(task.status, Scheduled):
            left = format_duration(task.status.until - self._core.clock.now())
            return ExplainView(task.id, f"task {task.id} goes into the queue in {left}", None, (), {})
        if not isinstance(task.status, Pending):
            return ExplainView(task.id, f"task {task.id} is {task.state}: it waits for nothing", None, (), {})
        cluster, promise = self._core.cluster(), self.plan.promises.get(task.id)
        position = self.outlook(task).position
        held_back = self._held_back(task)
        coming = when(promise, cluster, task.spec, held_back=bool(held_back))
        summary = f"task {task.id} ({task.spec.needs}) is number {position} in the queue; "
        if never(cluster, task.spec, task.owner):
            return explanation(cluster, task, f"{summary}as the nodes are now, it can never start", None, Ahead())
        if held_back:
            start = timestamp(promise.start) if promise else None
            return ExplainView(task.id, f"{summary}{held_back}; {coming}", start, (), {})
        return explanation(cluster, task, summary + coming, promise, self._ahead(task, self.plan))

    def what_if(self, spec: TaskSpec, owner: str | None) -> ExplainView:
        """What would become of a task if it were submitted now."""
        now, cluster = self._core.clock.now(), self._core.cluster()
        task = Task("", spec, "", owner or self._core.owner, now)
        if never(cluster, spec, task.owner):
            return explanation(cluster, task, f"{asked(spec)} can never be had here", None, Ahead())
        if isinstance(refusal(cluster, spec, task.owner), Unreachable):
            words = f"{spec.needs} would be refused: none of the nodes that will do can be reached"
            return explanation(cluster, task, words, None, Ahead())
        found = self.look([task])
        if placement := found.starts.get(task.id):
            return ExplainView("", f"{spec.needs} would start now, on {placement}", timestamp(now), (), {})
        place, promise = self._in_order(task).index(task) + 1, found.promises.get(task.id)
        summary = f"{spec.needs} would be number {place} in the queue; {when(promise, cluster, spec)}"
        return explanation(cluster, task, summary, promise, self._ahead(task, found))

    def move(
        self,
        reference: str,
        position: int | None = None,
        before: str | None = None,
        after: str | None = None,
        by: str | None = None,
    ) -> Task:
        """Give a task that waits another place: a position from 1 on, or next to another one that waits.

        `by` is who asks, None: the controller's own owner.
        """
        if [position, before, after].count(None) != 2:
            raise UsageError("where to? Write a position, like 1, or one of --before TASK and --after TASK")
        task, queue = self._waits(reference), self._in_order()
        if position is None:
            other = self._waits(before or after or "")
            if other.id == task.id:
                raise UsageError(f"task {task.id} cannot be moved next to itself; name another one")
            others = [waiting.id for waiting in queue if waiting.id != task.id]
            position = others.index(other.id) + (1 if before else 2)
        for moved, rank in move(queue, task, position).items():
            to = f"to number {position}" if moved == task.id else f"keeps its place, task {task.id} was moved"
            self._core.apply(moved, Moved(rank), f"agentless queue: {to}, by {by or self._core.owner}")
        # As one that is new to the queue, it has not been promised anything, nor have those behind it.
        self.plan = Plan(self.plan.starts, {name: p for name, p in self.plan.promises.items() if name != task.id})
        self._positions.clear()
        self._reasons.clear()
        return self._core.tasks[task.id]

    def start(self) -> None:
        """Begin to look."""
        self._work = asyncio.create_task(self._keep_looking(), name="queue")

    async def close(self) -> None:
        """Leave the queue as it is: the next controller goes on with it."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    # ------------------------------------------------------------------ inside

    def _ahead(self, task: Task, looked: Plan) -> Ahead:
        """Those who come before it."""
        queue = self._in_order(*([] if task.id in self._core.tasks else [task]))
        before = queue[: [each.id for each in queue].index(task.id)]
        promises = {key: promise for key, promise in looked.promises.items() if key}  # one that is new has none to keep
        lengths = self._run_history.lengths([task]) if self.learn else {}
        return Ahead(before, promises, self._policies, lengths, tuple(self._core.tasks.values()))

    @property
    def _policies(self) -> Mapping[str | None, Cost]:
        return {name: POLICIES[name or self.policy] for name in (None, *POLICIES)}

    def _held_back(self, task: Task) -> str:
        if not is_held_back(task, self._core.tasks.values()):
            return ""
        most = task.spec.terms.max_parallel
        return f"{most} of its batch {'runs' if most == 1 else 'run'} already (--max-parallel)"

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        with self._core.hub.waking() as news:
            while True:
                news.clear()
                began = loop.time()
                try:
                    self._begin()
                except StateError:
                    pass  # it is the ledger's trouble, and tried once more at the next look
                except Exception:  # noqa: BLE001 - one bad look must not end the queue
                    _log.exception("looking at the queue failed in an unforeseen way")
                # A quarter of the time at most, however long the queue is.
                await asyncio.sleep(max(0.005, 3 * (loop.time() - began)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await news.wait()

    def _begin(self) -> None:
        """Start those whose turn it is."""
        self._positions.clear()
        self._reasons.clear()
        self._seen = None
        waiting = self._waiting()
        for link in self._core.links.values():
            link.pace(self, SAMPLE_SOON if waiting and link.has_stranger else None)
        if not waiting:
            self.plan = Plan()
            return
        self.plan = self.look()
        starts = self.plan.starts
        self._assign(starts, "its turn in the queue")
        for task in starts:
            self._launch(task, self.elsewhere)

    def _assign(self, starts: Mapping[str, Placement], cause: str) -> None:
        """Give these tasks their places, in one write: from now on a launch of each is under way."""
        self._core.launching.update(starts)
        try:
            self._core.apply_all({task: (Assigned(placement), cause) for task, placement in starts.items()})
        except AgentlessError:
            self._core.launching.difference_update(starts)
            raise

    def _waits(self, reference: str) -> Task:
        task = self._core.find(reference)
        if not isinstance(task.status, Pending):
            raise Refused(f"task {task.id} is {task.state}: only tasks that wait have a place in the queue")
        return task

    def _in_order(self, *others: Task) -> list[Task]:
        return order([*self._waiting(), *others], self._used)

    def _waiting(self) -> list[Task]:
        return [t for t in self._core.tasks.values() if isinstance(t.status, Pending) and not t.stop]


def _was_refused_just_now(task: Task, now: float) -> bool:
    since = task.status.since if isinstance(task.status, Pending) else None
    return since is not None and now - since < AGAIN_AFTER


POLICIES: Mapping[str, Cost] = {
    name: plugins.load("rules.scheduling.policies", name).cost for name in plugins.names("rules.scheduling.policies")
}
"""All there are, by name."""
