"""What differs between Docker and engines with the same commands, like podman; and Docker's own dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from agentless.engines.docker.complaints import blame, explain
from agentless.engines.docker.inspection import container_of_fields, inspected
from agentless.engines.times import ahead, seconds
from agentless.model.nodes.complaint import Blame, Known
from agentless.model.nodes.engine import EngineName, Toolkit, ToolkitFacts
from agentless.model.nodes.node import Control, EngineFacts, NodeConfig
from agentless.model.tasks.claim import TASK
from agentless.model.tasks.container import Container
from agentless.model.tasks.signature import SIGNATURE
from agentless.model.tasks.task import Placement, Task


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

    def toolkits(self, is_ready: Callable[[Toolkit], bool]) -> dict[str, ToolkitFacts]:
        """Whether each needed toolkit is installed, by vendor."""
        return {kit.vendor: ToolkitFacts(is_ready(kit), kit.fixes.get(self.engine, "")) for kit in self.needed}


@dataclass(frozen=True, slots=True)
class Dialect:
    """All that the engine class needs to know of one kind of engine.

    `gone` is the pattern of what `inspect` prints for a container that does not exist, with `{}` for its id.
    `image_missing` are phrases by which a launch says that the image does not exist. `explain` turns a complaint into a
    sentence with the fix, `blame` finds its reason; both also take the known complaints of the GPU stack.

    `makes_volumes`: volumes are created before the container, because `--mount` takes no labels.
    `times_are_exact`: each line of a log has its own time.
    `quiet` are options that keep the command's own warnings out of what a task prints.
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
    keeps_envs: bool = True
    makes_volumes: bool = False
    times_are_exact: bool = True
    quiet: tuple[str, ...] = ()
    under_lock: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)

    def template(self, name: str) -> str:
        """The template that this engine uses in place of Docker's `name`."""
        return self.templates.get(name, name)

    @property
    def signed(self) -> str:
        """The format that reads a container's signature in a listing."""
        return self.formats.label % SIGNATURE


def _facts(of: EngineAnswer) -> EngineFacts:
    fields, runtimes = of.fields, of.fields.get("runtimes") or ()

    def is_ready(kit: Toolkit) -> bool:
        return kit.runtime in runtimes or any(line.endswith(f"/{name}") for line in of.lines for name in kit.programs)

    clock = ahead(seconds(fields.get("time")), of.asked, of.answered)
    engine_id = str(fields.get("id") or "")[:100] or None
    return EngineFacts(
        version=str(fields["version"]),
        toolkits=of.toolkits(is_ready),
        listed=of.listed,
        clock=clock,
        lacks=_lacks(fields),
        id=engine_id,
    )


def _lacks(fields: Mapping[str, Any]) -> frozenset[Control]:
    """The control groups that `docker info` says are not there; a rootless engine without systemd has none at all."""
    if fields.get("cgroups") == "none":
        return frozenset(get_args(Control))
    limits: tuple[Control, ...] = "memory", "cpu", "cpuset"
    return frozenset(control for control in limits if fields.get(control) is False)


def _container_name(task: Task, placement: Placement) -> str:  # noqa: ARG001 - podman's has the place in it
    return task.container_name


DOCKER = Dialect(
    name="docker",
    formats=Formats(
        label='{{.Label "%s"}}',
        # The claim before the words that others chose: a bar in those cannot hide it.
        live=(
            '{{.ID}}|{{.Names}}|{{.Status}}|{{.Label "agentless.gpus"}}|{{.Label "agentless.exclusive"}}'
            '|{{.Label "agentless.gpu_share"}}|{{.Label "agentless.gpu_memory"}}'
            '|{{.Label "agentless.task"}}|{{.Label "agentless.owner"}}'
        ),
        state="{{.State.Status}}",
        inspected=inspected(".Id"),
        # Docker 20.10 has no other fields when its engine does not answer.
        info=(
            '{"errors":{{json .ServerErrors}}'
            '{{if not .ServerErrors}},"version":{{json .ServerVersion}},"runtimes":{{json .Runtimes}}'
            ',"memory":{{json .MemoryLimit}},"cpu":{{json .CPUCfsQuota}},"cpuset":{{json .CPUSet}}'
            ',"cgroups":{{json .CgroupDriver}},"security":{{json .SecurityOptions}}'
            ',"time":{{json .SystemTime}},"id":{{json .ID}}{{end}}}'
        ),
        event=f'{{{{.Action}}}} {{{{.Actor.ID}}}} {{{{printf "%.200s" (index .Actor.Attributes "{TASK}")}}}}',
        image_defaults=(
            '{"id":{{json .Id}},"user":{{json .Config.User}},"workdir":{{json .Config.WorkingDir}}'
            ',"volumes":{{json .Config.Volumes}}}'
        ),
        volume_sizes="{{range .Volumes}}{{.Name}}|{{.Size}}\n{{end}}",
    ),
    gone="no such object: {}",
    image_missing=("No such image", "Unable to find image"),
    facts=_facts,
    container=container_of_fields,
    container_name=_container_name,
    explain=explain,
    blame=blame,
)
