"""Launches placed tasks, and finds out the outcome if the answer was lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from agentless.controller.nodes.cluster_link import ClusterLink, TaskLink
from agentless.controller.nodes.reconciler import Reconciler
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus, LaunchWanted
from agentless.controller.state.group_commit import GroupCommit
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.launch.launches import Launches
from agentless.controller.tasks.launch.preparation import Preparation
from agentless.controller.to_the_end import waited_for
from agentless.errors import (
    AgentlessError,
    FilesMissing,
    Held,
    IllegalMove,
    ImageMissing,
    NodeBroken,
    NodeUnfit,
    Refused,
    RuntimeFailed,
    TemplateError,
    Unseen,
)
from agentless.model.files.file_spec import Prepared
from agentless.model.tasks.task import Assigning, Lost, Pending, Task
from agentless.model.tasks.task_event import HandedBack, JobQueued, Launched, LaunchFailed, TaskEvent, Unplaced
from agentless.ports import Clock, Engine
from agentless.rules.explain.obstacles import never
from agentless.rules.tasks.reconcile import LAUNCH_BOUND

OUTCOME_WITHIN = 15.0
"""Seconds a submit waits for the truth after the answer to its launch was lost."""

Elsewhere = Callable[[str], bool]
"""Gives a task that a node could not start another place, and says whether there was one."""

_FIRST_REST, _LONGEST_REST = 2.0, 16.0
"""Seconds before a cluster that has given no answer is asked again for a job: at first, and at most. Each try doubles
them: its looks come twice a second after commands."""

_log = logging.getLogger(__name__)


class Launcher:
    """Launches tasks. `taken_back` gives the event for one that waits for nodes again, since its cluster refuses it."""

    def __init__(
        self,
        nodes: Nodes,
        ledger: Ledger,
        reconciler: Reconciler,
        preparation: Preparation,
        taken_back: Callable[[Task, AgentlessError], HandedBack | None],
        bus: EventBus,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._reconciler = reconciler
        self._preparation = preparation
        self._taken_back = taken_back
        self._bus = bus
        self._clock = clock
        self._commits = GroupCommit(ledger)
        self._launches: defaultdict[str, Launches] = defaultdict(
            lambda: Launches(ledger.stores.ownership, self._placed)
        )
        self._background: set[asyncio.Task[None]] = set()
        self._rests: dict[str, tuple[float, float]] = {}  # since when, and how long
        bus.subscribe(LaunchWanted, self._wanted)

    async def first(self, task_id: str, elsewhere: Elsewhere) -> None:
        """Launch a new task, and wait. Raises Refused if nothing is left of the task, or NoAnswer."""
        # Shielded: a client that goes away must not leave a launch half done.
        await waited_for(self._spawn(self._first(task_id, elsewhere)), f"task {task_id}: launch")

    def begin(self, task_id: str, elsewhere: Elsewhere) -> None:
        """Launch a task whose turn it is."""
        self._spawn(self._next(task_id, elsewhere))

    async def await_outcome(self, task_id: str) -> None:
        """Wait until the node has reported the outcome of a launch, at most OUTCOME_WITHIN seconds."""
        task = self._tasks.live.get(task_id)
        link = self._nodes.every.get(task.node or "") if task else None
        if task is None or link is None:
            return

        def is_settled() -> bool:
            return task_id not in self._tasks.live or not isinstance(self._tasks.live[task_id].status, Assigning)

        look = self._spawn(_look(link, task_id, link.runtime_of(task)))
        await self._bus.until(is_settled, OUTCOME_WITHIN)
        if not is_settled():
            look.cancel()

    async def place(self, task: Task, *, held: bool = False, created: str = "") -> tuple[TaskLink, str]:
        """Start a task on its node, or only create its container if it is `held`; gives its id. Raises what went wrong.

        The image is pulled first if the node lacks it. `created` is the container of one that was held just now.
        """
        link = self._nodes.place(task.node or "")
        if isinstance(link, ClusterLink):
            return link, await self._prepared(link, task)
        try:
            if task.spec.pull == "always" and (held or not task.spec.gang):
                await self._preparation.pull(link, task, missing=False)
            try:
                container = await self._prepared(link, task, held=held, created=created)
            except ImageMissing:
                await self._preparation.provide(link, task)
                container = await self._prepared(link, task, held=held, created=created)
        except NodeBroken as error:
            link.breakdowns.failed(task, error)
            raise
        if not held:
            link.breakdowns.succeeded(task)
        return link, container

    def is_unfit_everywhere(self, task: Task) -> bool:
        """Whether only the node that cannot start the task could ever run it."""
        rest = task.spec.without(task.node or "")
        return never(self._nodes.cluster(), rest, task.owner) is not None

    # ------------------------------------------------------------------ inside

    async def _first(self, task_id: str, elsewhere: Elsewhere) -> None:
        try:
            await self._somewhere(task_id, elsewhere)
        except Refused as error:
            task = self._tasks.live.get(task_id)
            if task is None or task.spec.terms.wait_for == 0:
                if task:
                    self._ledger.forget(task, "refused", str(error))
                raise
            self._refused(task, error)

    async def _next(self, task_id: str, elsewhere: Elsewhere) -> None:
        try:
            await self._somewhere(task_id, elsewhere)
        except Refused as error:
            if task := self._tasks.live.get(task_id):
                self._refused(task, error)
        except AgentlessError as error:
            _log.warning("task %s: launch: %s", task_id, error)

    async def _somewhere(self, task_id: str, elsewhere: Elsewhere) -> None:
        """Launch on the node that was chosen, and if that cannot start anything, on another one while there is one.

        No node is tried twice: each that fails is degraded. That costs a task none of its tries.
        """
        while True:
            try:
                await self._launch(task_id)
            except (NodeBroken, NodeUnfit) as error:
                task = self._tasks.live.get(task_id)
                if task is None or task.stop:
                    raise
                unfit = task.node if isinstance(error, NodeUnfit) else None
                event = Unplaced(str(error), at_once=True, unfit=unfit)
                self._ledger.apply(task_id, event, f"{task.node} could not start it")
                # No await before this: the queue would give it a place, too.
                if not elsewhere(task_id):
                    raise
            else:
                return

    def _refused(self, task: Task, error: Refused) -> None:
        """It is certain that no launch has started a task, or will: it waits again, if it is willing to."""
        if isinstance(task.status, Pending):
            return
        over = task.stop or task.spec.terms.wait_for == 0
        event = LaunchFailed(str(error)) if over else Unplaced(str(error))
        self._ledger.apply(task.id, event, f"{task.node} refused it")

    async def _launch(self, task_id: str) -> None:
        """Launch, pulling the image first if the node lacks it. Raises a kind of Refused, or NoAnswer.

        Whatever it waits for, the task may have been removed meanwhile: then there is nothing left to say of it.
        """
        task = self._tasks.live.get(task_id)
        if not task:
            self._tasks.launching.discard(task_id)
            return
        self._tasks.launching.add(task_id)
        try:
            link, container = await self.place(task)
            await self._answered(link, task, container)
        except NodeUnfit as error:
            if self.is_unfit_everywhere(task):
                self._apply_if_live(task_id, LaunchFailed(str(error)), f"the launch on {task.node} failed")
            else:
                raise
        except (RuntimeFailed, TemplateError) as error:
            self._failed(task_id, error)
        finally:
            self._tasks.launching.discard(task_id)
        self._reconciler.catch_up(task_id)

    def _failed(self, task_id: str, error: AgentlessError) -> None:
        """The launch is certain to have failed. Where overflow sent it to a cluster, it may wait for nodes again."""
        if task := self._tasks.live.get(task_id):
            back = self._taken_back(task, error)
            cause = f"{error}; waits for nodes" if back else f"the launch on {task.node} failed"
            self._ledger.apply(task_id, back or LaunchFailed(str(error)), cause)

    async def _answered(self, link: TaskLink, task: Task, container: str) -> None:
        program = link.runtime_of(task).program
        event = JobQueued(container) if isinstance(link, ClusterLink) else Launched(container)
        try:
            await self._commits.apply(task.id, event, f"{program} on {link.node.name} answered")
        except IllegalMove as error:
            # No refusal of the node: the task was seen there before the answer came, and is what it was seen to be.
            _log.info("task %s: %s", task.id, error)

    def _apply_if_live(self, task_id: str, event: TaskEvent, cause: str) -> None:
        if task_id in self._tasks.live:
            self._ledger.apply(task_id, event, cause)

    async def _prepared(self, link: TaskLink, task: Task, *, held: bool = False, created: str = "") -> str:
        """Launch with its files. They may be gone since they were seen: then they are brought once more."""
        try:
            prepared = await self._preparation.files(link, task)
            return await self._try(link, task, prepared, held=held, created=created)
        except FilesMissing:
            self._preparation.forget_files(link)
            prepared = await self._preparation.files(link, task)
            return await self._try(link, task, prepared, held=held, created=created)

    async def _try(
        self, link: TaskLink, task: Task, prepared: Prepared | None, *, held: bool = False, created: str = ""
    ) -> str:
        if task.placement is None:
            raise AssertionError("a task needs a placement before its launch")
        runtime = link.runtime_of(task)
        launch = link.launch(task, task.placement, self._ledger.stores.secrets.get(task.id), prepared)
        launch = replace(launch, held=held, created=created, labels=self._preparation.labels(task))
        try:
            return runtime.parse_launch(task, await self._launches[link.node.name].run(link, runtime, launch))
        except Unseen:
            # The node is degraded before the task is put back: nothing goes there again.
            with contextlib.suppress(AgentlessError):
                await link.refresh()
            raise

    def _placed(self, batch: str) -> set[str]:
        return {task.id for task in self._tasks.in_batch(batch) if task.live and task.placement}

    def _wanted(self, wanted: LaunchWanted) -> None:
        """Launch a task again; under the lock of the node, the name of its container shows whether it was started."""
        task = wanted.task
        if task.spec.gang is None and task.id not in self._tasks.launching and not self._rests_now(task.id):
            self._tasks.launching.add(task.id)
            self._spawn(self._again(task.id))

    async def _again(self, task_id: str) -> None:
        if (known := self._tasks.live.get(task_id)) and known.stop:
            self._tasks.launching.discard(task_id)  # since it was wanted
            return
        try:
            await self._launch(task_id)
        except (Held, NodeBroken, NodeUnfit) as error:
            # A launch before this one may still wait on the node: not before it is over may the task go elsewhere.
            task = self._tasks.live.get(task_id)
            since = task.status.since if task and isinstance(task.status, (Assigning, Lost)) else None
            if task and since and (task.spec.terms.wait_for == 0 or self._clock.now() - since > LAUNCH_BOUND):
                self._refused(task, error)
        except AgentlessError as error:
            _log.warning("task %s: retrying its launch: %s", task_id, error)
            self._rest(task_id)

    def _rest(self, task_id: str) -> None:
        """Leave the cluster of a task alone for a while; nodes look for a task less often than these."""
        self._rests = {each: rest for each, rest in self._rests.items() if each in self._tasks.live}
        task = self._tasks.live.get(task_id)
        if task and isinstance(self._nodes.every.get(task.node or ""), ClusterLink):
            _, before = self._rests.get(task_id, (0.0, _FIRST_REST / 2))
            self._rests[task_id] = self._clock.now(), min(2 * before, _LONGEST_REST)

    def _rests_now(self, task_id: str) -> bool:
        since, seconds = self._rests.get(task_id, (0.0, 0.0))
        return 0 <= self._clock.now() - since < seconds

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _look(link: TaskLink, task: str, runtime: Engine) -> None:
    await link.ready()
    try:
        await link.look(task, runtime)
    except AgentlessError as error:
        _log.info("checking for task %s: %s", task, error)
