"""Finds tasks by id, id prefix or name, including those that only the nodes know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from agentless.controller.state.tasks import Tasks
from agentless.errors import NotFound
from agentless.model.containers.claim import claim_of, task_of
from agentless.model.containers.container import Container
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import first_try, next_try, numbered
from agentless.ports import Clock
from agentless.rules.tasks.gangs.gangs import unit_of
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

    @property
    def clusters(self) -> Collection[str]:
        """The names of the clusters with a queue of their own."""


class Lookup:
    """Finds tasks of this controller and of others."""

    def __init__(self, tasks: Tasks, nodes: Nodes, clock: Clock) -> None:
        self._tasks = tasks
        self._nodes = nodes
        self._clock = clock

    def is_node(self, name: str) -> bool:
        """Whether a node or a cluster has this name."""
        return name in self._nodes.links or name in self._nodes.clusters

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

    def all(self, batch: str | None = None, *, ended: bool, newest: int) -> list[Task]:
        """The live tasks by id, whoever started them; with `ended` also the `newest` that have ended.

        With `batch`, those in the batch of this task, however long ago they ended.
        """
        known = {**self.others(ended=ended), **self._tasks.live}
        if ended:
            known = {task.id: task for task in self._tasks.history.newest(newest)} | known
        if batch is not None:
            known = self._batch_of(self._found(batch)[0], known.values())
        return [task for _, task in sorted(known.items())]

    def _batch_of(self, found: Task, known: Iterable[Task]) -> dict[str, Task]:
        every = (*self._tasks.history.batch(found.batch), *known)
        ours = self._tasks.knows(found.id)  # then nobody makes a container one of the batch by a label
        return {
            task.id: task for task in every if task.batch == found.batch and (not ours or self._tasks.knows(task.id))
        }

    def is_ours(self, task: Task) -> bool:
        """Whether this controller has the task, or only the nodes."""
        return self._tasks.knows(task.id)

    def task(self, task_id: str) -> Task:
        """The task with exactly this id, live or ended, of any controller; raises NotFound."""
        found = self._tasks.live.get(task_id) or self._tasks.history.get(task_id) or self.others().get(task_id)
        if found is None:
            raise NotFound(f"task {task_id} no longer exists")
        return found

    def gang(self, task: Task) -> list[Task]:
        """The members of a task's gang that are known here, in the same try and by rank; of any other task itself."""
        gang = task.spec.gang
        if gang is None or not self._tasks.knows(task.id):
            return [task]
        return unit_of(task, self._tasks.find)

    def find(self, reference: str, of_batch: str = "--batch") -> Task:
        """The task of an id, a unique id prefix, or a name; raises NotFound with the candidates.

        A name means the live task of that name, else the last one that ended; if tasks of one batch have it, it means
        none of them. A retried task is found as its last try, unless the number of a try is given: `…-1` is the first.
        `of_batch` is the option that means all of a batch, empty if there is none.
        """
        task, *others = self._found(reference)
        meant = {first_try(each.id) for each in (task, *others)}
        if others and {first_try(each.id) for each in self.gang(task)} >= meant:
            [task, *others] = self.gang(task)[:1]
        if others:
            ids = sorted(meant)
            raise NotFound(
                f"{reference!r} is a batch of {len(ids)} tasks; use the id of one, such as {ids[0]}"
                + (f", or {of_batch} {reference}" if of_batch else "")
            )
        if reference != numbered(task.id) and not self._tasks.is_vps(task):
            while self._tasks.knows(later := next_try(task.id)):
                task = self.task(later)
        return task

    def _found(self, reference: str) -> list[Task]:
        """The task that is meant, or all tasks of a batch that have this name. A VPS has its name for itself."""
        if (vps := self._tasks.vps.get(reference)) and self._tasks.knows(vps):
            return [self.task(vps)]
        if reference in self._tasks.live:
            return [self._tasks.live[reference]]
        exact = first_try(reference) if reference.endswith("-1") else reference
        if found_one := self._tasks.live.get(exact) or self._tasks.history.get(exact):
            return [found_one]
        others = self.others()
        if exact in others:
            return [others[exact]]
        known = {**others, **self._tasks.live}
        every = {task.id: task for task in self._tasks.history.find(reference)} | self._tasks.live
        # Whatever strangers write into labels, a name or the beginning of an id of ours means what it did.
        if not any(task.spec.name == reference or task.id.startswith(reference) for task in every.values()):
            every = others
        named = [task for _, task in sorted(every.items(), reverse=True) if task.spec.name == reference]
        begun = [task for task in every.values() if reference and task.id.startswith(reference)]
        begun = [task for task in begun if first_try(task.id) == task.id or first_try(task.id) not in every]
        found = _of_name(named) or begun
        if len(found) == 1 or (named and len({task.batch for task in found}) == 1):
            return found
        if not found and reference in self._nodes.clusters:
            raise NotFound(
                f"{reference} is a cluster, not a task; to log in to its login node, run: agentless ssh {reference}; "
                "to list tasks: agentless ps"
            )
        if not found:
            hint = nearest(reference, [*known, *(t.spec.name for t in known.values() if t.spec.name)])
            raise NotFound(f"no task {reference!r}{hint}; to list tasks, run: agentless ps --all")
        ids = ", ".join(sorted(task.id for task in found)[:5])
        raise NotFound(f"{reference!r} matches {len(found)} tasks ({ids}); type more of the id")


def _of_name(named: Sequence[Task]) -> list[Task]:
    """Of the tasks with a name, newest first: the live ones, else the newest, or all of its batch."""
    chosen = [task for task in named if task.live] or list(named[:1])
    batches = {task.batch for task in chosen}
    batch = [task for task in named if task.batch in batches]
    return batch if len(batches) == 1 and len({first_try(task.id) for task in batch}) > 1 else chosen
