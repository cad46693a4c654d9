"""The input of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from agentless.model.files.file_spec import Prepared
from agentless.model.nodes.node import EngineFacts
from agentless.model.tasks.task import Placement, Task


@dataclass(frozen=True, slots=True)
class Launch:
    """A placed task. `prepared` is the image with its files, if any; `engine` are the latest facts of the engine.

    `entrypoint` replaces that of the image. `image_id` is what the node calls the image of its env. If `held`, its
    container is created, which claims its GPUs, and not started; `created` is the id that it has got just now, if it is
    to be started. `labels` are those that are neither its claim nor its spec. With a `limit`, so many of the tasks of
    its batch that are launched together may run at once; 0: it may start nothing, but be found.
    """

    task: Task
    placement: Placement
    _: KW_ONLY
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    prepared: Prepared | None = None
    engine: EngineFacts | None = None
    entrypoint: str | None = None
    image_id: str | None = None
    held: bool = False
    created: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
