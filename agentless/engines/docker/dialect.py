"""How one engine's command is spoken to, and answers: all that differs between Docker and what takes its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

from agentless.engines.docker.complaints import blame, explain
from agentless.engines.docker.inspection import container_of_fields, inspected
from agentless.engines.times import ahead, seconds
from agentless.model.nodes.device import EngineName, Toolkit, ToolkitFacts
from agentless.model.nodes.node import Control, EngineFacts, NodeConfig
from agentless.model.tasks.claim import TASK
from agentless.model.tasks.complaint import Blame, Known
from agentless.model.tasks.container import Container
from agentless.model.tasks.signature import SIGNATURE
from agentless.model.tasks.task import Placement, Task


@dataclass(frozen=True, slots=True)
class Formats:
    """The Go templates of its `--format`: `label` is a label in that of a listing, with `%s` for its name."""

    label: str
    live: str
    state: str
    inspected: str
    info: str
    event: str
    image_defaults: str
    volume_sizes: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What an engine has said of itself, and when we asked and had the answer (Unix seconds by our clock).

    `fields` are those of its answer, `lines` the others of the section, `listed` its containers with their states.
    `needed` are the toolkits without which it hands out no GPUs.
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
        """Which of them are there, by vendor."""
        return {kit.vendor: ToolkitFacts(is_ready(kit), kit.fixes.get(self.engine, "")) for kit in self.needed}


class Explain(Protocol):
    """Makes a sentence with the fix of a complaint; `devices` are those of the stack that hands out GPUs."""

    def __call__(self, complaint: str, node: NodeConfig, devices: Sequence[Known] = (), /) -> str:
        """That sentence."""


class FindBlame(Protocol):
    """Finds the reason of a launch that failed with a complaint."""

    def __call__(self, complaint: str, devices: Sequence[Known] = (), /) -> Blame:
        """That reason."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One engine's way of speaking.

    `templates` are those that stand for one of Docker's. `quiet` keeps the command from warning where that would come
    with what a task prints; `under_lock` are the words before it in a script whose lock it must not inherit.
    `gone` is the pattern of what `inspect` says of a container that is not there, with `{}` for its id, and
    `image_missing` what a launch says of an image. `times_are_exact`: each line of a log has a time of its own.
    `makes_volumes`: a volume is made before the container, for `--mount` takes no labels.
    """

    name: EngineName
    formats: Formats
    gone: str
    image_missing: tuple[str, ...]
    facts: Callable[[Asked], EngineFacts]
    container: Callable[[Mapping[str, Any], float], Container]
    container_name: Callable[[Task, Placement], str]
    explain: Explain
    blame: FindBlame
    keeps_envs: bool = True
    makes_volumes: bool = False
    times_are_exact: bool = True
    quiet: tuple[str, ...] = ()
    under_lock: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)

    def template(self, name: str) -> str:
        """The template to take for this one of Docker's."""
        return self.templates.get(name, name)

    @property
    def signed(self) -> str:
        """The signature of a container, in the format of a listing."""
        return self.formats.label % SIGNATURE


def _facts(of: Asked) -> EngineFacts:
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
