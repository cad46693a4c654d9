"""Finds tasks by id, id prefix or name, including those that only the nodes know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from agentless.controller.state.tasks import Tasks
from agentless.errors import NotFound
from agentless.model.caller import Caller
from agentless.model.tasks.claim import claim_of, task_of
from agentless.model.tasks.container import Container
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import first_try, is_task_id, next_try, numbered
from agentless.ports import Clock
from agentless.rules.tasks.identity import called
from agentless.rules.views.nearest import nearest


class Node(Protocol):
    """What is known of a node."""

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers of agentless that the node reported last."""


class Nodes(Protocol):
    """The nodes of the inventory."""

    @property
    def links(self) -> Mapping[str, Node]:
        """The nodes by name."""


class Lookup:
    """Finds tasks of this controller and of others."""

    def __init__(self, tasks: Tasks, nodes: Nodes, clock: Clock) -> None:
        self._tasks = tasks
        self._nodes = nodes
        self._clock = clock

    def others(self, nodes: Iterable[str] | None = None, *, ended: bool = True) -> dict[str, Task]:
        """Tasks read from containers' labels that are unknown here; ended ones while their container exists.

        Keyed by task id, or by container id where the label may not claim the task id. Tasks that were just removed
        here are left out: a node may still report their containers.
        """
        found: dict[str, Task] = {}
        for name in self._nodes.links if nodes is None else nodes:
            for container in self._nodes.links[name].containers:
                claim = claim_of(container)
                if not claim or not (container.live or (ended and claim.task not in self._tasks.forgotten)):
                    continue
                remembered = self._tasks.remembered(claim.task)
                task_id = called(container, claim, self._tasks.controller, remembered)
                if task_id == claim.task and remembered[0]:
                    continue
                task = task_of(container, name, self._clock.now(), task_id)
                if task and (container.live or task_id not in found):
                    found[task_id] = task
        return found

    def unremembered(self, caller: Caller) -> dict[str, tuple[Task, Container]]:
        """Tasks on nodes that are unknown here, of this controller's owner and of the caller.

        Containers that this controller has signed are adopted as soon as they are seen. After the state was lost, the
        key is a new one: the labels prove nothing then, so a person has to confirm them.
        """
        found: dict[str, tuple[Task, Container]] = {}
        for name, link in self._nodes.links.items():
            for container in sorted(link.containers, key=lambda each: (each.live, each.created_at or 0.0)):
                claim = claim_of(container)
                if not claim or claim.owner not in (self._tasks.owner, caller.name) or not is_task_id(claim.task):
                    continue
                if self._tasks.knows(claim.task) or (claim.task in self._tasks.forgotten and not container.live):
                    continue
                task = task_of(container, name, self._clock.now())
                if task and (claim.task not in found or container.name == task.container_name):
                    found[claim.task] = task, container
        return dict(sorted(found.items()))

    def task(self, task_id: str) -> Task:
        """The task with exactly this id, live or ended, of any controller; raises NotFound."""
        found = self._tasks.live.get(task_id) or self._tasks.history.get(task_id) or self.others().get(task_id)
        if found is None:
            raise NotFound(f"task {task_id} is not there any more")
        return found

    def find(self, reference: str) -> Task:
        """The task of an id, a unique id prefix, or a name; raises NotFound with the candidates.

        A name means the live task of that name, else the last one that ended. A retried task is found as its last
        try, unless the number of a try is given: `…-1` is the first.
        """
        task = self._find(reference)
        if reference != numbered(task.id):
            while self._tasks.knows(later := next_try(task.id)):
                task = self.task(later)
        return task

    def _find(self, reference: str) -> Task:
        if reference in self._tasks.live:
            return self._tasks.live[reference]
        exact = first_try(reference) if reference.endswith("-1") else reference
        if found_one := self._tasks.live.get(exact) or self._tasks.history.get(exact):
            return found_one
        others = self.others()
        if exact in others:
            return others[exact]
        known = {**others, **self._tasks.live}
        every = {task.id: task for task in self._tasks.history.find(reference)} | self._tasks.live
        # Whatever strangers write into labels, a name or the beginning of an id of ours means what it did.
        if not any(task.spec.name == reference or task.id.startswith(reference) for task in every.values()):
            every = others
        named = [task for _, task in sorted(every.items(), reverse=True) if task.spec.name == reference]
        begun = [task for task in every.values() if reference and task.id.startswith(reference)]
        begun = [task for task in begun if first_try(task.id) == task.id or first_try(task.id) not in every]
        found = [task for task in named if task.live] or named[:1] or begun
        if len(found) == 1:
            return found[0]
        if not found:
            hint = nearest(reference, [*known, *(t.spec.name for t in known.values() if t.spec.name)])
            raise NotFound(f"no task {reference!r}{hint}; agentless ps --all lists them")
        ids = ", ".join(sorted(task.id for task in found)[:5])
        raise NotFound(f"{reference!r} means {len(found)} tasks ({ids}); type more of the id")
