"""What a launch of a task is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.model.files.file_spec import Prepared
from agentless.model.nodes.node import EngineFacts
from agentless.model.tasks.task import Placement, Task


@dataclass(frozen=True, slots=True)
class Launch:
    """A task at its place. `prepared` has its files if it has some, `engine` is what the node has last said of its."""

    task: Task
    placement: Placement
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    prepared: Prepared | None = None
    engine: EngineFacts | None = None
