"""Reconciles tasks with the containers that nodes report."""

from __future__ import annotations

import logging
from dataclasses import replace

from agentless.controller.guarded import guarded_item
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import ContainersSeen, EventBus, LaunchWanted
from agentless.controller.state.ledger import Ledger
from agentless.errors import StateError
from agentless.model.containers.claim import TASK, Claim, claim_of, task_of
from agentless.model.containers.container import Container
from agentless.model.containers.job_id import job_number
from agentless.model.nodes.node_record import NodeRecord
from agentless.model.nodes.sighting import Sighting
from agentless.model.tasks.task import Assigning, Lost, Running, Submitted, Task
from agentless.model.tasks.task_event import Exited, LostContact, Restarted, TaskEvent, Vanished
from agentless.model.tasks.task_id import is_task_id
from agentless.ports import Clock
from agentless.rules.tasks.gangs.gangs import is_to_be_undone
from agentless.rules.tasks.identity import is_adoptable
from agentless.rules.tasks.reconcile import container_of, is_elsewhere, is_same_run, lost_elsewhere, reconcile

LOST_AFTER = 60.0
"""Seconds without an answer after which the tasks of a node are `lost`: not known to run, not known to have ended."""

GONE_AFTER = 10.0
"""Seconds for which a job is missing before it is gone: a `squeue` in trouble, or a wrapper of it, may list nothing."""

_log = logging.getLogger(__name__)


class Reconciler:
    """Turns reports of nodes into events of tasks. Emits `LaunchWanted` for one whose node has no container of it."""

    def __init__(self, nodes: Nodes, ledger: Ledger, bus: EventBus, clock: Clock) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._bus = bus
        self._clock = clock
        self._missed: dict[str, float] = {}  # since when jobs are missing
        self._behind = False  # something that a node has said could not be written
        bus.subscribe(ContainersSeen, self._seen)

    def retry(self) -> None:
        """Write what is pending; if reports of nodes were lost to a full disk, reconcile all nodes again."""
        self._ledger.flush()
        if self._behind:
            self._behind = False
            for name, link in self._nodes.every.items():
                if link.online:
                    with guarded_item(f"{name}: reading its containers"):
                        self._seen(self._nodes.seen(link, Sighting(link.containers, asked_at=0.0)))

    def catch_up(self, task_id: str) -> None:
        """Reconcile a task after its launch with what its node reported meanwhile: it may have ended."""
        task = self._tasks.live.get(task_id)
        link = self._nodes.every.get(task.node or "") if task else None
        container = container_of(task, link.containers) if task and link else None
        if task and container:
            self._reconcile(task, container)

    def lose_silent(self) -> None:
        """Mark the tasks of nodes that have not answered for `LOST_AFTER` seconds as lost."""
        for task in list(self._tasks.live.values()):
            if not task.placement or isinstance(task.status, Lost) or task.id in self._tasks.launching:
                continue
            with guarded_item(f"task {task.id}: checking for lost contact"):
                self._lose_if_silent(task, task.placement.node)

    # ------------------------------------------------------------------ inside

    def _seen(self, seen: ContainersSeen) -> None:
        """Reconcile the tasks of a node with its containers, and adopt containers of unknown tasks."""
        node, sighting = seen.node, seen.sighting
        try:
            for task in self._tasks.on_node(node):
                if sighting.only in (None, task.id) and task.id not in self._tasks.launching:
                    container = container_of(task, sighting.containers)
                    if container and container.doubtful and is_same_run(task.status, container):
                        self._nodes.clusters[node].runtime.know(replace(container, labels={TASK: task.id}))
                    unseen = (sighting.blind and task.spec.on_node_itself) or _is_another(task, sighting)
                    if _is_before_its_start(task, container, sighting):
                        continue
                    if self._is_missed_only_once(task, container):
                        continue
                    if container is not None or not (unseen or _is_newer(task, sighting)):
                        with guarded_item(f"task {task.id}"):
                            self._reconcile(task, container, seen)
            for container in sighting.containers:
                with guarded_item(f"{node}: container {container.short_id}"):
                    self._adopt_or_revive(node, container)
        except StateError as error:
            _log.warning("%s: %s", node, error)
            self._behind = True

    def _is_missed_only_once(self, task: Task, container: Container | None) -> bool:
        """Whether the job of a task is missing in the answers of its cluster, and has not been for long."""
        if container is None and not task.stop and job_number(task.container):
            now = self._clock.now()
            if 0 <= now - self._missed.setdefault(task.id, now) < GONE_AFTER:
                return True
        self._missed.pop(task.id, None)  # or a job that comes back would be gone at once the next time
        return False

    def _adopt_or_revive(self, node: str, container: Container) -> None:
        claim, tasks = claim_of(container), self._tasks
        if not claim or not is_task_id(claim.task) or claim.task in tasks.live or claim.task in tasks.forgotten:
            return
        ended = tasks.history.get(claim.task)
        if ended is not None:
            self._revive(ended, node, container)
        else:
            self._adopt(claim, node, container)

    def _adopt(self, claim: Claim, node: str, container: Container) -> None:
        adoptable = is_adoptable(container, claim, self._tasks.controller)
        if adoptable and not self._ledger.was_forgotten(claim.task):
            task = task_of(container, node, self._clock.now())
            if task:
                self._ledger.adopt(task, f"found on {node}")

    def _revive(self, ended: Task, node: str, container: Container) -> None:
        events = reconcile(ended, container, self._clock.now())
        for event in events[:1]:
            self._ledger.revive(ended, event, _cause(node, event))
        for event in events[1:]:
            self._ledger.apply(ended.id, event, _cause(node, event))

    def _lose_if_silent(self, task: Task, node: str) -> None:
        link = self._nodes.every.get(node)
        if link is None:
            why = f"{node} is no longer in the inventory; add it again to reach its tasks"
            self._ledger.apply(task.id, LostContact(why), "inventory change")
        elif link.offline_since is not None and self._clock.now() - link.offline_since >= LOST_AFTER:
            why = link.observation.error or "no answer"
            self._ledger.apply(task.id, LostContact(why), f"no answer for {LOST_AFTER:.0f} s")

    def _reconcile(self, task: Task, container: Container | None, seen: ContainersSeen | None = None) -> None:
        if is_to_be_undone(task, self._tasks.live):
            self._bus.emit(LaunchWanted(task))
            return
        booted, record = (seen.booted_at, seen.record) if seen else (None, NodeRecord())
        for event in reconcile(task, container, self._clock.now(), booted, record):
            task = self._ledger.apply(task.id, event, _cause(task.node or "", event))
        unanswered = isinstance(task.status, (Assigning, Lost)) and not task.container
        unstarted = container is None or container.state == "created"
        if unstarted and unanswered and not task.stop:
            if is_elsewhere(task, record) and task.node in self._nodes.clusters:
                for event in lost_elsewhere(task, record):
                    self._ledger.apply(task.id, event, _cause(task.node, event))
                return
            self._bus.emit(LaunchWanted(task))


def _cause(node: str, event: TaskEvent) -> str:
    """The cause of an event that a node has shown."""
    match event:
        case Exited(exit_code=code):
            return f"{node}: exited" + ("" if code is None else f" with code {code}")
        case Restarted():
            return f"{node}: restarted outside agentless"
        case Vanished():
            return f"{node}: its container or service is gone"
        case _:
            return f"seen on {node}"


def _is_another(task: Task, sighting: Sighting) -> bool:
    # Others with its label were asked for. Of one that has just been started the link may not have heard yet.
    return sighting.about is not None and task.container is not None and task.container not in sighting.about


def _is_before_its_start(task: Task, container: Container | None, sighting: Sighting) -> bool:
    # It has been started again since: this is how it was.
    return task.spec.traits.comes_back and container is not None and container.over and _is_newer(task, sighting)


def _is_newer(task: Task, sighting: Sighting) -> bool:
    # The question left before this container was started, or this job was submitted.
    if isinstance(task.status, Submitted):
        return task.status.since >= sighting.asked_at
    return isinstance(task.status, Running) and task.status.started_at >= sighting.asked_at
