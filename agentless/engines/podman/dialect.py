"""podman in Docker's place, as a value: how its commands and answers differ from Docker's.

podman has no daemon: each command does its own work, and a `conmon` process stays with each container. So

- a user's podman knows that user's containers only. The claims of others are read from the arguments of their `conmon`
  processes: one is the container's name, which says what the container claims (`podman-live.sh.j2` reads it);
- after a reboot, podman reports a container that ran as `created`, with the time of its start. Here it has ended with
  255.

Formats are those of podman 4.1 to 5, `tests/pure/data/podman` has answers of 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from agentless.engines.dialect import Dialect, EngineAnswer, Formats
from agentless.engines.docker.inspection import container_of_fields, inspected
from agentless.engines.podman.complaints import HIDDEN, HYBRID, blame, explain
from agentless.engines.times import ahead, seconds
from agentless.model.containers.claim import TASK, terms_of
from agentless.model.containers.container import DOWN, WENT_DOWN, Container, ContainerState
from agentless.model.nodes.node import Control, EngineFacts
from agentless.model.tasks.task import Placement, Task

OLDEST = (4, 1)
"""The first podman that hands out devices by CDI."""

_CLAIM = re.compile(r"^(agentless-[^.]*)\..*")
_STATES = {"initialized": "created", "configured": "created", "stopping": "running", "stopped": "exited"}


def _container_name(task: Task, placement: Placement) -> str:
    """The name of the task's container, with its claim: a name may have letters, digits, `_`, `.` and `-`."""
    owner = re.sub(r"[^A-Za-z0-9_-]", "_", task.owner)
    return ".".join((task.container_name, owner, *terms_of(task.spec.needs), *placement.claimed))


def _facts(of: EngineAnswer) -> EngineFacts:
    version = str(of.fields["version"])
    now = next((line.removeprefix("now ") for line in of.lines if line.startswith("now ")), None)
    return EngineFacts(
        version=f"podman {version}",
        # A user's template from an early version prints only the file.
        toolkits=of.toolkits(
            lambda kit: "cdi" if any(re.match(rf"cdi ({re.escape(kit.cdi)} )?/", line) for line in of.lines) else None
        ),
        error=_unfit(of, version),
        listed=of.listed,
        clock=ahead(seconds(now), of.asked, of.answered),
        lacks=_lacks(of.fields),
        cgroup_version={"v1": 1, "v2": 2}.get(str(of.fields.get("cgroups"))),
        rootless=of.fields.get("rootless") is True,
        cdi=of.cdi,
        root=of.root,
    )


def _unfit(of: EngineAnswer, version: str) -> str | None:
    """Why it cannot run tasks, None if it can."""
    name, user = of.node.name, of.node.user or "$USER"
    as_root = "set 'docker: sudo podman' for it in the inventory"
    if _numbers(version) < OLDEST:
        return f"podman {version} on {name} is too old; install podman 4.1 or newer for GPU support"
    if problem := _runtime_problem(of, name):
        return problem
    if "hidepid" in of.lines:
        return HIDDEN.format(node=name)
    if not of.fields.get("rootless"):
        return None
    if of.fields.get("cgroups") != "v2":
        return f"rootless podman on {name} cannot limit or pause containers with cgroups v1; {as_root}"
    if "no linger" in of.lines:
        return (
            f"containers of {user} on {name} would end when {user} logs out; on the node, run: sudo loginctl "
            f"enable-linger {user}, or {as_root}"
        )
    return None


def _runtime_problem(of: EngineAnswer, name: str) -> str | None:
    """Why its runtime can start no container, None if it can or if that is unknown."""
    if "runtime" not in of.fields:
        return None
    runtime = of.fields["runtime"]
    if runtime is None:
        return f"podman on {name} cannot start containers: its runtime does not run; run there: podman info"
    if "hybrid" in of.lines and isinstance(runtime, Mapping) and runtime.get("name") == "crun":
        return HYBRID.format(node=name)
    return None


def _container(fields: Mapping[str, Any], clock: float) -> Container:
    state: dict[str, object] = dict(fields["state"])
    status = _STATES.get(str(state["Status"]), str(state["Status"]))
    began = seconds(state.get("StartedAt"))
    went_down = status == "created" and began is not None
    if went_down:
        status, state["ExitCode"] = "exited", DOWN
    elif status not in get_args(ContainerState):
        status = "running"  # not known: its GPUs stay taken
    found = container_of_fields({**fields, "state": {**state, "Status": status}}, clock)
    error = WENT_DOWN if went_down else found.error
    return replace(found, name=_CLAIM.sub(r"\1", found.name), error=error)


def _lacks(fields: Mapping[str, Any]) -> frozenset[Control]:
    """The control groups that it may not use. With cgroups v1 it does not say; with v2 it can always pause."""
    controllers = fields.get("controllers")
    if fields.get("cgroups") != "v2" or not isinstance(controllers, list):
        return frozenset()
    limits: tuple[Control, ...] = "memory", "cpu", "cpuset"
    return frozenset(control for control in limits if control not in controllers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


PODMAN = Dialect(
    name="podman",
    formats=Formats(
        label='{{index .Labels "%s"}}',
        # A container that ran when the node went down holds nothing.
        live=(
            '{{$state := .ListContainer.State}}{{$down := and (eq $state "created") (gt .StartedAt 0)}}'
            '{{.ID}}|{{.Names}}|{{if $down}}Down{{else if eq $state "initialized"}}Created{{else}}{{.Status}}{{end}}'
            '|{{if not $down}}{{index .Labels "agentless.gpus"}}{{end}}'
            '|{{if not $down}}{{index .Labels "agentless.exclusive"}}{{end}}'
            '|{{index .Labels "agentless.gpu_share"}}|{{index .Labels "agentless.gpu_memory"}}'
            '|{{index .Labels "agentless.task"}}|{{index .Labels "agentless.owner"}}'
        ),
        state=(
            '{{if not .State.StartedAt.IsZero}}begun{{else if eq .State.Status "initialized"}}created'
            "{{else}}{{.State.Status}}{{end}}"
        ),
        inspected=inspected(".ID"),
        info=(
            '{"version":{{json .Version.Version}},"rootless":{{json .Host.Security.Rootless}}'
            ',"cgroups":{{json .Host.CgroupsVersion}},"controllers":{{json .Host.CgroupControllers}}'
            ',"root":{{json .Store.GraphRoot}}'
            ',"runtime":{{json .Host.OCIRuntime}}}'
        ),
        # A line of a container that is none of ours is empty.
        event=(
            f'{{{{with index .Attributes "{TASK}"}}}}{{{{$.Status}}}} {{{{$.ID}}}} {{{{printf "%.200s" .}}}}{{{{end}}}}'
        ),
        image_defaults=(
            '{"id":{{json .ID}},"user":{{json .Config.User}},"workdir":{{json .Config.WorkingDir}}'
            ',"volumes":{{json .Config.Volumes}}}'
        ),
        volume_sizes="{{.Name}}|{{.Mountpoint}}",
        devices="{{range .HostConfig.Devices}}{{.PathOnHost}} {{end}}",
    ),
    gone=r'no such (object: "?|container:? "?){}',
    image_missing=("image not known",),
    facts=_facts,
    container=_container,
    container_name=_container_name,
    explain=explain,
    blame=blame,
    keeps_envs=False,
    makes_volumes=True,
    times_are_exact=False,  # one time for all that it read at once, also in the middle of a line
    id_field="ID",
    quiet=("--log-level=error",),
    # podman 5 warns at every call where control groups are of version 1. By sudo it still does, and is not listened to.
    prelude="export PODMAN_IGNORE_CGROUPSV1_WARNING=1\n",
    under_lock=("unlocked",),
    templates={
        "docker-begin.sh.j2": "podman-begin.sh.j2",
        "docker-clear.sh.j2": "podman-clear.sh.j2",
        "docker-cp.j2": "podman-cp.j2",
        "docker-events.j2": "podman-events.j2",
        "docker-facts.sh.j2": "podman-facts.sh.j2",
        "docker-live.sh.j2": "podman-live.sh.j2",
        "docker-reap.sh.j2": "podman-reap.sh.j2",
        "docker-rm.j2": "podman-rm.j2",
        "docker-run.j2": "podman-run.j2",
        "docker-shell.sh.j2": "podman-shell.sh.j2",
        "docker-undo.sh.j2": "podman-undo.sh.j2",
        "docker-volume-sizes.j2": "podman-volume-sizes.sh.j2",
    },
)
