"""The engines of one node: the one for containers, and systemd for what runs on the node itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentless.model.command import Command
from agentless.model.containers.container import is_container_id
from agentless.model.tasks.task import Task
from agentless.ports import ContainerEngine, Engine, HostEngine

_UNIT = "unit"


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """A line of the event stream. `change` is what `sort` reads; `over` is the task of a unit that has ended.

    `at_once` is whether it is worth a look by itself.
    """

    change: str
    at_once: bool = True
    over: str | None = None


@dataclass(frozen=True, slots=True)
class NodeEngines:
    """What runs tasks on one node. No I/O."""

    runtime: ContainerEngine
    units: HostEngine

    def runtime_of(self, task: Task) -> Engine:
        """The one that runs this task."""
        return self.units if task.spec.on_node_itself else self.runtime

    def events(self, since: float) -> Command:
        """A stream of what happens to containers from then on (Unix seconds, node's clock), and to units."""
        return self.units.watch(self.runtime.events(since))

    def parse_event(self, line: str) -> EngineEvent:
        """One line of that stream."""
        watched = self.units.parse_watched(line)
        if watched is None:
            action, _, rest = line.partition(" ")
            return EngineEvent(rest, at_once=action != "start")
        state, task = watched
        return EngineEvent(f"{_UNIT} {task}", over=task if state == "over" else None)

    def sort(self, changes: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """The tasks whose units have changed, and the containers that have, each with the task that it names."""
        units, containers = list[str](), dict[str, str]()
        for container, _, task in sorted(change.partition(" ") for change in changes):
            if container == _UNIT:
                units.append(task)
            elif is_container_id(container):
                containers[container] = task
        return units, containers
