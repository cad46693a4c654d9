"""What differs between engines that have Docker's commands, like podman: a value for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentless.model.containers.container import Container
from agentless.model.containers.signature import SIGNATURE
from agentless.model.nodes.complaint import Blame, Known
from agentless.model.nodes.engine import EngineName, Toolkit, ToolkitFacts, Way
from agentless.model.nodes.node import EngineFacts, NodeConfig
from agentless.model.tasks.task import Placement, Task

_CDI_NAME = re.compile(r"cdiname ([^ ]{1,200})")
_MOST_NAMES = 1000
_FOLDER = re.compile(r"/[^\x00-\x1f\x7f]{0,1023}")


@dataclass(frozen=True, slots=True)
class Formats:
    """Go templates for `--format`. `label` reads one label in a listing, with `%s` for its name."""

    label: str
    live: str
    state: str
    inspected: str
    info: str
    event: str
    image_defaults: str
    volume_sizes: str
    devices: str


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """An engine's answer to `info`, between the moments `asked` and `answered` (Unix seconds, our clock).

    `fields` are those of the answer, `lines` the other lines of the section, `listed` the ids of its containers with
    their states. `needed` are the toolkits without which it hands out no GPUs.
    """

    node: NodeConfig
    fields: Mapping[str, Any]
    lines: Sequence[str]
    listed: Mapping[str, str]
    engine: EngineName
    needed: Sequence[Toolkit]
    asked: float
    answered: float

    @property
    def root(self) -> str | None:
        """The folder in which it keeps images and containers, by its answer."""
        root = self.fields.get("root")
        return root if isinstance(root, str) and _FOLDER.fullmatch(root) else None

    @property
    def cdi(self) -> frozenset[str]:
        """The CDI devices in files on the node, like `nvidia.com/gpu=GPU-…`; none if a name is unreadable."""
        names = [match[1] for line in self.lines if (match := _CDI_NAME.fullmatch(line))]
        return frozenset() if any(name.endswith("=") for name in names) else frozenset(names[:_MOST_NAMES])

    def toolkits(self, way: Callable[[Toolkit], Way | None]) -> dict[str, ToolkitFacts]:
        """By vendor, in which way the engine hands out its GPUs."""
        found = {kit.vendor: (kit, way(kit)) for kit in self.needed}
        return {
            vendor: ToolkitFacts(by, kit.lists if by == "cdi" else kit.fixes.get(self.engine, ""), kit.is_optional)
            for vendor, (kit, by) in found.items()
            if by or not kit.is_optional
        }


@dataclass(frozen=True, slots=True)
class Dialect:
    """All that the engine class needs to know of one kind of engine.

    `gone` is the pattern of what `inspect` prints for a container that does not exist, with `{}` for its id.
    `image_missing` are phrases by which a launch says that the image does not exist. `explain` turns a complaint into a
    sentence with the fix, `blame` finds its reason; both also take the known complaints of the GPU stack.

    `read_info` gives the fields of its answer to `info` our names, where the format does not.
    `is_docker`: its command also asks other Docker engines on the node.
    `makes_volumes`: volumes are created before the container, because `--mount` takes no labels.
    `times_are_exact`: each line of a log has its own time.
    `id_field` is what `inspect` calls the id of a container.
    `quiet` are options that keep the command's own warnings out of what a task prints.
    `prelude` is what each script begins with.
    `under_lock` are words before the command in a script whose lock its processes must not inherit.
    `templates` are those that replace one of Docker's.
    """

    name: EngineName
    formats: Formats
    gone: str
    image_missing: tuple[str, ...]
    facts: Callable[[EngineAnswer], EngineFacts]
    container: Callable[[Mapping[str, Any], float], Container]
    container_name: Callable[[Task, Placement], str]
    explain: Callable[[str, NodeConfig, Sequence[Known]], str]
    blame: Callable[[str, Sequence[Known]], Blame]
    read_info: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    is_docker: bool = False
    keeps_envs: bool = True
    makes_volumes: bool = False
    times_are_exact: bool = True
    id_field: str = "Id"
    quiet: tuple[str, ...] = ()
    prelude: str = ""
    under_lock: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)

    def template(self, name: str) -> str:
        """The template that this engine uses in place of Docker's `name`."""
        return self.templates.get(name, name)

    @property
    def signed(self) -> str:
        """The format that reads a container's signature in a listing."""
        return self.formats.label % SIGNATURE
