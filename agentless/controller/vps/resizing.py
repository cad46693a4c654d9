"""Other cores, memory and terms for a VPS that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.vps.replacement import exactly
from agentless.errors import Refused, UsageError
from agentless.model.caller import Caller
from agentless.model.scheduling.needs import Needs, joined, parse_target
from agentless.model.tasks.spec import TaskSpec, check_spec, without_zeros
from agentless.model.tasks.task import Paused, Running, Task
from agentless.model.tasks.task_event import Resized, TermsChanged
from agentless.model.units import format_size
from agentless.rules.explain.obstacles import refusal


@dataclass(frozen=True, slots=True)
class Resize:
    """New limits and GPUs of a VPS. None: as they are; 0 cores or bytes: no limit."""

    cores: float | None = None
    memory: int | None = None
    target: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether the engine can do it while it runs. It can set a limit, but not lift one."""
        return self.target is None and 0 not in (self.cores, self.memory)

    def check(self, task: Task) -> None:
        """Raise Refused or UsageError if it cannot be changed, or if nothing changes."""
        if not isinstance(task.status, (Running, Paused)):
            name = task.spec.name
            raise Refused(f"VPS {name} is {task.state}; first run: agentless vps start {name}")
        spec = self.limited(task.spec)
        if (spec.cores, spec.memory) == (task.spec.cores, task.spec.memory) and self._fits(task):
            raise UsageError(f"VPS {task.spec.name} has just that; nothing to change")

    def limited(self, spec: TaskSpec) -> TaskSpec:
        """The spec with these limits; raises UsageError."""
        cores = spec.cores if self.cores is None else self.cores
        memory = spec.memory if self.memory is None else self.memory
        changed = without_zeros(replace(spec, cores=cores, memory=memory))
        check_spec(changed)
        return changed

    def wanted(self, task: Task) -> TaskSpec:
        """The spec of its new container; raises UsageError."""
        spec = self.limited(task.spec)
        return exactly(spec, task.placement) if self.target is None else replace(spec, needs=self._needs(spec.needs))

    def _needs(self, needs: Needs) -> Needs:
        """The needs of the new target, on the terms of the old ones."""
        terms = Needs(exclude=needs.exclude, on=needs.on, exclusive=needs.exclusive, policy=needs.policy)
        target = parse_target(self.target or "")
        return joined(replace(terms, exclude=() if target.nodes else terms.exclude), target, self.target or "")

    def _fits(self, task: Task) -> bool:
        """Whether the task has what the target says."""
        if self.target is None or task.placement is None:
            return self.target is None
        target, has = parse_target(self.target), task.placement
        where = (not target.nodes or has.node in target.nodes) and target.indices in ((), has.gpus)
        alike = target.indices or not has.parents  # slices are no GPUs
        return bool(where and alike and target.gpus == len(has.gpus) and not target.gpu_types and not target.gpu_memory)


class Resizing:
    """Changes limits of containers that run."""

    def __init__(self, nodes: Nodes, ledger: Ledger) -> None:
        self._nodes = nodes
        self._ledger = ledger

    async def update(self, task: Task, change: Resize, by: Caller) -> Task:
        """Change them; raises Refused if the node has not as much."""
        spec = change.limited(task.spec)
        link = self._nodes.link(task.node or "")
        self._check_room(task, spec, link.node.name)
        link.runtime.check(await link.run(link.runtime.resize(task.container_ref, spec.cores, spec.memory)))
        memory = None if spec.memory is None else format_size(spec.memory)
        return self._ledger.apply(task.id, Resized(spec.cores, spec.memory), f"{spec.cores} cores, {memory}, by {by}")

    def change_terms(self, task: Task, given: Mapping[str, Any], by: Caller) -> Task:
        """Give it other terms, by their names; raises UsageError."""
        spec = without_zeros(replace(task.spec, terms=replace(task.spec.terms, **given)))
        check_spec(spec)
        if spec == task.spec:
            raise UsageError(f"VPS {task.spec.name} has just that; nothing to change")
        words = ", ".join(f"{name} {value:g}" for name, value in given.items())
        return self._ledger.apply(task.id, TermsChanged(spec.terms), f"{words}, by {by}")

    def _check_room(self, task: Task, spec: TaskSpec, node: str) -> None:
        """Raise Refused if the node has not what is asked for in addition."""
        cores = max(0.0, (spec.cores or 0.0) - (task.spec.cores or 0.0)) or None
        memory = max(0, (spec.memory or 0) - (task.spec.memory or 0)) or None
        added = replace(spec, cores=cores, memory=memory, needs=Needs(nodes=(node,)))
        if error := refusal(self._nodes.cluster([node]), added, task.owner):
            raise error
