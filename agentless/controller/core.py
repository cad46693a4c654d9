"""The controller's core: the only place where tasks change. Requests and news from the nodes come in, events go out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict

import orjson

from agentless.controller.hub import Hub
from agentless.controller.link import Link, Sighting
from agentless.errors import NotFound
from agentless.model.claim import task_of
from agentless.model.cluster import Cluster
from agentless.model.container import Container
from agentless.model.event import Event, LostContact
from agentless.model.task import Assigning, Ended, Lost, Pending, Running, Task
from agentless.model.view import TaskView
from agentless.ports import Clock
from agentless.rules.lifecycle import apply
from agentless.rules.nearest import nearest
from agentless.rules.publish import task_view
from agentless.rules.reconcile import reconcile
from agentless.rules.survey import survey
from agentless.stores.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.tinydb import TaskStore

LOST_AFTER = 60.0
"""Seconds without an answer after which the tasks of a node are `lost`: not known to run, not known to have ended."""


class Core:
    """All live tasks and all links."""

    def __init__(
        self, owner: str, store: TaskStore, history: History, secrets: SecretStore, hub: Hub, clock: Clock
    ) -> None:
        self.owner = owner
        self.history = history
        self.secrets = secrets
        self.hub = hub
        self.clock = clock
        self.links: dict[str, Link] = {}
        self.shared_dir: str | None = None
        self.tasks: dict[str, Task] = {}
        self.relaunch: Callable[[Task], None] | None = None
        self.launching: set[str] = set()
        self._gists: dict[str, object] = {}
        self._store = store
        for task in store.load().values():
            # A crash between the two stores leaves an ended task in both.
            if any(ended.id == task.id for ended in history.find(task.id)):
                store.remove(task.id)
            else:
                self.tasks[task.id] = task
        for task_id in secrets.tasks():
            if task_id not in self.tasks:
                secrets.remove(task_id)

    # ----------------------------------------------------------------- reading

    def cluster(self) -> Cluster:
        """The cluster as it is known now."""
        return survey(
            {name: link.node for name, link in self.links.items()},
            {name: link.observation for name, link in self.links.items()},
            self.tasks.values(),
            self.clock.now(),
        )

    def others(self) -> dict[str, Task]:
        """Tasks on the nodes that other controllers started, by id; ended ones as long as their container is there."""
        found: dict[str, Task] = {}
        for name, link in self.links.items():
            engine = link.observation.engine
            for container in (engine.containers or ()) if engine else ():
                task = task_of(container, name)
                if task and task.id not in self.tasks and not self._ended_here(task.id):
                    found[task.id] = task
        return found

    def find(self, reference: str) -> Task:
        """The task that an id, a unique beginning of one, or a name means; raises NotFound with the candidates.

        A name means the live task of that name, else the last one that ended.
        """
        known = {**self.others(), **self.tasks}
        if reference in known:
            return known[reference]
        every = {task.id: task for task in self.history.find(reference)} | known
        named = [task for _, task in sorted(every.items(), reverse=True) if task.spec.name == reference]
        begun = [task for task in every.values() if reference and task.id.startswith(reference)]
        found = [task for task in named if task.live] or named[:1] or begun
        if len(found) == 1:
            return found[0]
        if not found:
            hint = nearest(reference, [*known, *(t.spec.name for t in known.values() if t.spec.name)])
            raise NotFound(f"no task {reference!r}{hint}; agentless ps --all lists them")
        ids = ", ".join(sorted(task.id for task in found)[:5])
        raise NotFound(f"{reference!r} means {len(found)} tasks ({ids}); type more of the id")

    def link(self, node: str) -> Link:
        """The link to a node; raises NotFound with the nearest name."""
        if node not in self.links:
            hint = nearest(node, self.links)
            raise NotFound(f"no node {node!r} in the inventory{hint}; agentless nodes lists them")
        return self.links[node]

    def view(self, task: Task) -> TaskView:
        """The task as it is published."""
        return task_view(task, mine=task.owner == self.owner)

    def _ended_here(self, task_id: str) -> bool:
        return any(task.id == task_id for task in self.history.find(task_id, limit=1))

    # ---------------------------------------------------------------- changing

    def add(self, task: Task, event: Event) -> Task:
        """Take in a new task with its first event; it is on disk before this returns."""
        self.tasks[task.id] = task
        try:
            return self.apply(task.id, event)
        except BaseException:
            del self.tasks[task.id]
            raise

    def apply(self, task_id: str, event: Event) -> Task:
        """One event: the new state is on disk before anybody hears of it. Raises IllegalMove or StateError."""
        old = self.tasks[task_id]
        now = self.clock.now()
        new = apply(old, event, now)
        if isinstance(new.status, Ended):
            self.history.add(new)
            self._store.remove(task_id)
            del self.tasks[task_id]
        else:
            self._store.save(new)
            self.tasks[task_id] = new
        if not new.live or _container_of(new):
            self.secrets.remove(task_id)  # no launch of it will ever need them again
        self._publish(new, event, now)
        return new

    def _publish(self, task: Task, event: Event, now: float) -> None:
        news = {"kind": "task", "at": now, "event": _words(event), "task": asdict(self.view(task))}
        self.history.record(now, task.id, orjson.dumps(news))
        self.hub.publish(news)

    def forget(self, task: Task) -> None:
        """Drop a task whose launch was refused: nothing of it exists anywhere."""
        self._store.remove(task.id)
        self.tasks.pop(task.id, None)
        self.secrets.remove(task.id)

    # -------------------------------------------------------------- from nodes

    def node_changed(self, link: Link) -> None:
        """Something new is known of a node; publishes it when it is more than fresh numbers."""
        seen = link.observation
        gist = (seen.error, seen.sample and seen.sample.error, seen.engine)
        if self._gists.get(link.node.name) != gist:
            self._gists[link.node.name] = gist
            node = self.cluster().nodes[link.node.name]
            self.hub.publish(
                {"kind": "node", "at": self.clock.now(), "node": node.name, "state": node.state, "reason": node.reason}
            )

    def sighted(self, link: Link, sighting: Sighting) -> None:
        """Bring the tasks of a node to what it said of its containers."""
        for task in self.on_node(link.node.name):
            name = task.container_name
            if sighting.only not in (None, name) or task.id in self.launching:
                continue
            container = sighting.containers.get(name)
            if container is None and _is_newer(task, sighting):
                continue
            self._settle(task, container)

    def catch_up(self, task_id: str) -> None:
        """Bring a task that was just launched to what its node has said of it meanwhile: it may be over already."""
        task = self.tasks[task_id]
        link = self.links.get(task.target.node)
        engine = link.observation.engine if link else None
        for container in (engine.containers or ()) if engine else ():
            if container.name == task.container_name:
                self._settle(task, container)

    def lose_silent(self) -> None:
        """Mark the tasks of nodes that have not answered past the grace time."""
        for link in self.links.values():
            since = link.offline_since
            if since is None or self.clock.now() - since < LOST_AFTER:
                continue
            for task in self.on_node(link.node.name):
                if not isinstance(task.status, Lost) and task.id not in self.launching:
                    self.apply(task.id, LostContact(link.observation.error or "it does not answer"))

    def on_node(self, node: str) -> list[Task]:
        """The live tasks that are placed on a node."""
        return [t for t in self.tasks.values() if t.placement and t.placement.node == node]

    def _settle(self, task: Task, container: Container | None) -> None:
        for event in reconcile(task, container, self.clock.now()):
            task = self.apply(task.id, event)
        unanswered = isinstance(task.status, (Assigning, Lost)) and task.status.placement and not _container_of(task)
        unstarted = container is None or container.state == "created"
        if unstarted and unanswered and not task.stop and self.relaunch:
            self.relaunch(task)


def _words(event: Event) -> str:
    """`stop-asked` for StopAsked."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(event).__name__).lower()


def _container_of(task: Task) -> str | None:
    return None if isinstance(task.status, (Pending, Assigning)) else task.status.container


def _is_newer(task: Task, sighting: Sighting) -> bool:
    # The question left before this container was started.
    return isinstance(task.status, Running) and task.status.started_at >= sighting.asked_at
