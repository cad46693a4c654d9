"""Starts the container of a VPS again: on request, and after a reboot of its node."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.reconciler import Reconciler
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.ledger import Ledger
from agentless.errors import AgentlessError, NoAnswer, Refused, Unreachable
from agentless.model.containers.container import DOWN
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.node import unreachable
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import on_targets
from agentless.model.tasks.task import Ended, Placement, Task
from agentless.model.tasks.task_event import Launched, NotStarted, StartAsked
from agentless.rules.explain.obstacles import refusal
from agentless.rules.tasks.preemptible import awaited_by

SETTLED = 10.0
MOST_SHORT = 3
"""Runs shorter than that many seconds, one after the other, after which it is left alone: its own command ends so."""
PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, *(30.0,) * 20)
"""Seconds before each attempt to start one after its node or engine went down."""
_log = logging.getLogger(__name__)


class VpsStarts:
    """Starts containers that have ended. Their GPUs are held, on disk, before anything is sent."""

    def __init__(self, nodes: Nodes, ledger: Ledger, reconciler: Reconciler, bus: EventBus) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._reconciler = reconciler
        self._left: set[str] = set()
        self._short: Counter[str] = Counter()
        self._background: set[asyncio.Task[None]] = set()
        bus.subscribe(TaskChanged, self._changed)

    async def start(self, task: Task, cause: str) -> Task:
        """Start it where it was, with the same GPUs. Raises Refused if they are taken, or Unreachable."""
        was, placement = task.status, task.placement
        if not isinstance(was, Ended) or placement is None or was.container is None:
            raise Refused(f"VPS {task.spec.name} has no container to start; create it anew")
        link = self._nodes.link(placement.node)
        await link.ready()
        # No await from here until its GPUs are held, on disk.
        if task.id in self._tasks.live:
            raise Refused(f"VPS {task.spec.name} was started by somebody else meanwhile")
        if not link.online:
            raise Unreachable(unreachable(link.node.name, link.observation.error))
        now = _renumbered(task, placement, link.observation.sample)
        needs, shared = task.spec.needs, task.spec.needs.gpu_share > 1
        memory = needs.gpu_memory if shared else None
        exact = replace(task.spec, needs=Needs(exclusive=needs.exclusive, gpu_share=needs.gpu_share, gpu_memory=memory))
        [exact] = on_targets(exact, [str(now)])
        if error := refusal(self._nodes.cluster([placement.node], asking=task), exact, task.owner):
            raise error
        if other := awaited_by(self._tasks.live.values(), placement):
            raise Refused(f"{placement} is kept for {other}, for which others give way; start it when that has ended")
        self._tasks.launching.add(task.id)
        try:
            self._ledger.revive(task, StartAsked(), cause)
        except BaseException:
            self._tasks.launching.discard(task.id)
            raise
        # Who asks may leave; a start is never left half done.
        return await asyncio.shield(self._send(link, task, was, placement))

    def keeping(self, task: Task) -> AbstractContextManager[None]:
        """Keep its GPUs for its next start, whoever else waits for them."""
        return self._tasks.keeping(task)

    def is_away(self, task: Task) -> bool:
        """Whether its node does not answer."""
        link = self._nodes.links.get(task.node or "")
        return link is None or not link.online

    def leave(self, task_id: str) -> None:
        """Leave it as it is, if it went down and would be started."""
        self._left.add(task_id)

    # ------------------------------------------------------------------ inside

    async def _send(self, link: NodeLink, task: Task, was: Ended, placement: Placement) -> Task:
        try:
            try:
                result = await link.run(link.runtime.revival(task, placement))
                container = link.runtime.parse_launch(task, result)
            except NoAnswer:
                raise
            except AgentlessError as error:
                self._ledger.apply(task.id, NotStarted(was, str(error)), f"{placement.node} refused it")
                raise
            task = self._ledger.apply(task.id, Launched(container), f"docker start on {placement.node} answered")
            with suppress(AgentlessError):  # what is known of the container is from before
                await link.look(task.id, link.runtime)
            return task
        finally:
            self._tasks.launching.discard(task.id)
            self._reconciler.catch_up(task.id)

    def _changed(self, change: TaskChanged) -> None:
        """Start a VPS again that has ended with its node or its engine."""
        self._left.discard(change.after.id)
        if not self._went_down(change.before, change.after):
            return
        restart = asyncio.create_task(self._restart(change.after))
        self._background.add(restart)
        restart.add_done_callback(self._background.discard)

    def _went_down(self, before: Task, after: Task) -> bool:
        status, link = after.status, self._nodes.links.get(after.node or "")
        if before.stop or not before.live or not after.spec.traits.comes_back or not isinstance(status, Ended):
            return False
        booted, began = link.cache.booted_at if link else None, status.started_at or after.created_at
        if booted is not None and began < booted:
            return True
        if status.exit_code != DOWN:
            return False
        short = status.ended_at - began < SETTLED
        self._short[after.id] = self._short[after.id] + 1 if short else 0
        return self._short[after.id] <= MOST_SHORT

    async def _restart(self, task: Task) -> None:
        """Try for a while: a node that has just come back is not ready at once, nor are its GPUs known."""
        problem = ""
        for pause in PAUSES:
            await asyncio.sleep(pause)
            if task.id in self._left or task.id in self._tasks.live or not self._tasks.history.has(task.id):
                return  # somebody has stopped it meanwhile, started it, or removed it
            try:
                await self.start(task, f"{task.node} or its engine went down")
            except AgentlessError as error:
                problem = str(error)
            else:
                return
        _log.warning("VPS %s: starting it again: %s", task.spec.name, problem)
        self._ledger.publish(task, "not-started", problem)


def _renumbered(task: Task, placement: Placement, sample: GpuSample | None) -> Placement:
    """Where it was, with the numbers that its GPUs have now. Raises Refused if one of them is gone."""
    if sample is None or sample.processes is None:
        return placement  # nothing can start there
    numbers = {gpu.uuid: gpu.number for gpu in sample.gpus}
    if gone := [uuid for uuid in placement.gpu_uuids if uuid not in numbers]:
        where = f"{placement.node} does not list any more"
        raise Refused(f"VPS {task.spec.name} had GPU {gone[0]}, which {where}; restore it there")
    return replace(placement, gpus=tuple(numbers[uuid] for uuid in placement.gpu_uuids))
