"""What is published of the cluster now, row by row, and which rows have changed since a screen was told last.

Nothing has to report a change here: all values are frozen, so what is another object than at the last look has changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import orjson

from agentless.controller.http.workflow_rows import WorkflowRows
from agentless.controller.nodes.health.records import NodeRecords
from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.explanations import Explanations
from agentless.controller.scheduling.queue import Queue
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.reservation_book import ReservationBook
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import GpuViews, TaskViews
from agentless.controller.vps.vps import Vps
from agentless.controller.workflows.workflows import Workflows
from agentless.model.caller import Caller
from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Blocked, Pending, Task
from agentless.model.tasks.task_id import first_try, previous_try
from agentless.rules.scheduling.plan import Outlook, Plan
from agentless.rules.views.publish import node_view

ENDED = 1000
"""So many ended tasks are shown, the newest. Stopped VPS are all shown."""
FOLLOWED = 1.0
"""Seconds between two samples of a node while somebody watches."""

Key = tuple[str, ...]
"""Kind, and what names it: `nodes` and `clusters` the name, `gpus` node and UUID, `tasks` and `workflows` the id."""
Rows = dict[str, list[Any]]
"""By kind, ready for JSON; `gone` has keys."""


class FeedServices(Protocol):
    """The parts that the rows are made from."""

    nodes: Nodes
    records: NodeRecords
    tasks: Tasks
    lookup: Lookup
    queue: Queue
    explanations: Explanations
    reservation_book: ReservationBook
    views: TaskViews
    gpu_views: GpuViews
    vps: Vps
    workflows: Workflows


class Follower:
    """One who watches: they know of everything up to this `number`."""

    def __init__(self) -> None:
        self.number = 0


class LiveFeed:
    """The rows as one caller sees them."""

    def __init__(self, services: FeedServices, caller: Caller) -> None:
        self._services = services
        self._caller = caller
        self._followers: list[Follower] = []
        self._number = 0
        self._rows: dict[Key, tuple[int, bytes | None]] = {}  # by number; None: it is gone
        self._gone: dict[Key, int] = {}  # likewise, those that are
        self._plan: Plan | None = None
        self._nodes: dict[str, object] = {}  # what the rows of a node were made from
        self._clusters: dict[str, object] = {}  # likewise
        self._gpus: dict[str, frozenset[str]] = {}
        self._tasks: dict[
            str, tuple[Task, Outlook | None, object, object, object]
        ] = {}  # likewise the row of a live task
        self._others: dict[str, dict[str, Task]] = {}  # tasks of other controllers, by node
        self._ended: dict[str, None] = {}
        self._stopped: set[str] = set()  # VPS
        self._workflows = WorkflowRows(services.workflows, services.tasks, caller)
        self._event = services.tasks.history.last_events(0, 0.0)
        for task in (*reversed(services.tasks.history.newest(ENDED)), *services.vps.names.all()):
            if not task.live:
                self._put_ended(task)

    @contextlib.contextmanager
    def followed(self) -> Iterator[Follower]:
        """Somebody watches: the nodes are sampled more often for that long."""
        follower = Follower()
        self._followers.append(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)
            if not self._followers:
                for link in self._services.nodes.links.values():
                    link.pace(self, None)

    def refresh(self) -> None:
        """Bring all rows to what is known now."""
        nodes, records = self._services.nodes, self._services.records.known
        touched, reservations = self._refresh_tasks(), tuple(self._services.reservation_book.known.values())
        changed = []
        for name, link in nodes.links.items():
            link.pace(self, FOLLOWED)
            made_from = (link.observation, records.get(name), reservations)
            if name in touched or self._nodes.get(name) != made_from:
                self._nodes[name] = made_from
                changed.append(name)
        self._refresh_clusters(touched)
        for name in self._nodes.keys() - nodes.links.keys():
            del self._nodes[name]
            self._drop_node(name)
        if changed:
            self._refresh_nodes(nodes.cluster(changed))

    def news(self, follower: Follower) -> Rows:
        """What has changed since the last time that they asked; the first time everything there is."""
        found: Rows = {}
        for key, (changed, row) in reversed(self._rows.items()):
            if changed <= follower.number:
                break
            if row is not None:
                found.setdefault(key[0], []).append(orjson.Fragment(row))
            elif follower.number:
                found.setdefault("gone", []).append(key)
        follower.number = self._number
        self._bury(min(each.number for each in self._followers))
        return {kind: rows[::-1] for kind, rows in found.items()}

    # ------------------------------------------------------------------ inside

    def _refresh_tasks(self) -> set[str]:
        """Bring the rows of all tasks to what is known; gives the nodes on which that changes something."""
        tasks, queue, touched = self._services.tasks, self._services.queue, set[str | None]()
        looked, self._plan = self._plan is not queue.plan, queue.plan
        for task in tasks.live.values():
            before = self._tasks.get(task.id)
            outlook = before[1] if before and before[0] is task and not looked else self._outlook(task)
            stale = self._services.nodes.stale(task)
            made_from = (task, outlook, tasks.intruders.get(task.id), tasks.idle.get(task.id), stale)
            if before != made_from:
                self._tasks[task.id] = made_from
                self._forget_end(task.id)
                self._put_task(task)
                touched |= {task.node, before[0].node if before else None}
        for task_id in self._tasks.keys() - tasks.live.keys():
            touched.add(self._tasks.pop(task_id)[0].node)
        for task_id in self._happened() - tasks.live.keys():
            self._end(task_id)
        while len(self._ended) > ENDED:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self._drop("tasks", oldest)
        for workflow, view in self._workflows.changes():
            if view:
                self._put(view, "workflows", workflow)
            else:
                self._drop("workflows", workflow)
        return {node for node in touched if node}

    def _happened(self) -> set[str]:
        """The tasks to which something has happened since the last look: one may have come and gone."""
        found = set[str]()
        while events := self._services.tasks.history.events(self._event, 1000):
            self._event = events[-1][0]
            found |= {task["id"] for _, event in events if (task := orjson.loads(event).get("task"))}
        return found

    def _outlook(self, task: Task) -> Outlook | None:
        return self._services.explanations.outlook(task) if isinstance(task.status, Blocked | Pending) else None

    def _end(self, task_id: str) -> None:
        ended = self._services.tasks.history.get(task_id)
        if ended is None:
            self._forget_end(task_id)
            self._drop("tasks", task_id)
            self._workflows.forget(task_id)
        else:
            self._put_ended(ended)

    def _put_ended(self, task: Task) -> None:
        if task.spec.traits.comes_back:
            self._stopped.add(task.id)
        else:
            self._ended[task.id] = None
        self._put_task(task)

    def _forget_end(self, task_id: str) -> None:
        self._ended.pop(task_id, None)
        self._stopped.discard(task_id)

    def _put_task(self, task: Task) -> None:
        self._put(self._services.views.seen_by(self._caller, task), "tasks", task.id)
        self._workflows.take(task)
        if task.id != first_try(task.id) and (before := previous_try(task.id)) in self._ended:
            self._end(before)  # it says which task goes on with it

    def _refresh_clusters(self, touched: set[str]) -> None:
        links = self._services.nodes.clusters
        for name, link in links.items():
            made_from = (link.inside_at, link.outdated, link.online)
            if name in touched or self._clusters.get(name) != made_from:
                self._clusters[name] = made_from
                self._put(self._services.nodes.cluster_view(name), "clusters", name)
        for name in self._clusters.keys() - links.keys():
            del self._clusters[name]
            self._drop("clusters", name)

    def _refresh_nodes(self, cluster: Cluster) -> None:
        for name, node in cluster.nodes.items():
            self._put(node_view(node), "nodes", name)
            found = {view.uuid: view for view in self._services.gpu_views.seen_by(self._caller, node)}
            for uuid, view in found.items():
                self._put(view, "gpus", name, uuid)
            for uuid in self._gpus.get(name, frozenset()) - found.keys():
                self._drop("gpus", name, uuid)
            self._gpus[name] = frozenset(found)
            self._refresh_others(name)

    def _refresh_others(self, name: str) -> None:
        """The tasks on a node that nobody here remembers."""
        before, self._others[name] = self._others.get(name, {}), self._services.lookup.others([name])
        for task_id in before.keys() - self._others[name].keys():
            if task_id not in self._tasks and task_id not in self._ended and task_id not in self._stopped:
                self._drop("tasks", task_id)
        for task_id, task in self._others[name].items():
            if before.get(task_id) != task:
                self._put_task(task)

    def _drop_node(self, name: str) -> None:
        self._drop("nodes", name)
        for uuid in self._gpus.pop(name, frozenset()):
            self._drop("gpus", name, uuid)
        for task_id in self._others.pop(name, {}):
            self._drop("tasks", task_id)

    def _put(self, view: object, *key: str) -> None:
        row = orjson.dumps(view)
        if key not in self._rows or self._rows[key][1] != row:
            self._keep(key, row)

    def _drop(self, *key: str) -> None:
        if self._rows.get(key, (0, None))[1] is not None:
            self._keep(key, None)

    def _bury(self, number: int) -> None:
        """Think no more of what was gone by this number: all have heard of it."""
        while self._gone and (key := next(iter(self._gone))) and self._gone[key] <= number:
            del self._gone[key], self._rows[key]

    def _keep(self, key: Key, row: bytes | None) -> None:
        self._number += 1
        self._gone.pop(key, None)
        if row is None:
            self._gone[key] = self._number
        self._rows.pop(key, None)  # the last ones are those that have changed last
        self._rows[key] = (self._number, row)
