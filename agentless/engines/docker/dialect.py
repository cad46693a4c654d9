"""Docker's own dialect: its formats, and what its answers mean. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from agentless.engines.dialect import Dialect, EngineAnswer, Formats
from agentless.engines.docker import info
from agentless.engines.docker.complaints import blame, explain
from agentless.engines.docker.inspection import container_of_fields, inspected
from agentless.engines.times import ahead, seconds
from agentless.model.containers.claim import TASK
from agentless.model.nodes.engine import Toolkit, Way
from agentless.model.nodes.node import Control, EngineFacts, ImageStore
from agentless.model.tasks.task import Placement, Task


def _facts(of: EngineAnswer) -> EngineFacts:
    fields, runtimes = of.fields, of.fields.get("runtimes")
    runtimes = runtimes if isinstance(runtimes, Mapping) else {}

    def way(kit: Toolkit) -> Way | None:
        if any(line.endswith(f"/{name}") for line in of.lines for name in kit.programs):
            return "runtime"
        # A runtime alone may be one that `--gpus` does not know of: it needs the hook.
        if info.gives_by_cdi(fields, kit, list(of.lines)):
            return "cdi"
        return "runtime" if kit.runtime in runtimes else None

    clock = ahead(seconds(fields.get("time")), of.asked, of.answered)
    engine_id = str(fields.get("id") or "")[:100] or None
    store: ImageStore = "containerd" if info.has_containerd_store(fields) else "classic"
    driver = fields.get("driver")
    return EngineFacts(
        version=str(fields["version"]),
        toolkits=of.toolkits(way),
        listed=of.listed,
        clock=clock,
        lacks=_lacks(fields),
        id=engine_id,
        store=store,
        cgroup_version=info.cgroup_version(fields),
        rootless=info.is_rootless(fields),
        # Docker 28.2 and later lists what it has found; before that, the files are known.
        cdi=info.cdi_devices(fields) or of.cdi,
        note=info.note(fields),
        desktop=info.is_desktop(fields),
        root=of.root,
        keeps=f"{store} {str(driver)[:100]} {of.root}" if driver and of.root else None,
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
        info=info.FORMAT,
        event=f'{{{{.Action}}}} {{{{.Actor.ID}}}} {{{{printf "%.200s" (index .Actor.Attributes "{TASK}")}}}}',
        image_defaults=(
            '{"id":{{json .Id}},"user":{{json .Config.User}},"workdir":{{json .Config.WorkingDir}}'
            ',"volumes":{{json .Config.Volumes}}}'
        ),
        volume_sizes="{{range .Volumes}}{{.Name}}|{{.Size}}\n{{end}}",
        devices=(
            "{{range .HostConfig.Devices}}{{.PathOnHost}} {{end}}"
            "{{range .HostConfig.DeviceRequests}}{{range .DeviceIDs}}{{.}} {{end}}{{end}}"
        ),
    ),
    gone="no such object: {}",
    image_missing=("No such image", "Unable to find image"),
    facts=_facts,
    container=container_of_fields,
    container_name=_container_name,
    explain=explain,
    blame=blame,
    read_info=info.read,
    is_docker=True,
)
