"""podman in Docker's place: what it is asked otherwise, and what it answers otherwise. No I/O.

It has no engine that runs: each command does its own work, and a `conmon` process stays with each container. So

- a user's podman knows that user's containers alone. What others hold is read off the arguments of their `conmon`, of
  which the container's name is one: it says what the container claims (`podman-live.sh.j2` reads it);
- after a reboot a container that ran is `created` again, with the time of its start: here it has ended with 255.

Formats are those of podman 4.1 to 5, `tests/pure/data/podman` has answers of 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from agentless.engines.docker.engine import Docker, ahead, container_of_fields, inspected
from agentless.engines.docker.volumes import SIZES_WITHIN, VolumeWords, record
from agentless.engines.podman.complaints import HIDDEN, blame, explain
from agentless.engines.times import seconds
from agentless.errors import RuntimeFailed
from agentless.model.command import Command, Result
from agentless.model.images.env import is_ours
from agentless.model.nodes.node import Control, EngineFacts, NodeConfig
from agentless.model.tasks.claim import TASK
from agentless.model.tasks.container import DOWN, WENT_DOWN, Container, ContainerState
from agentless.model.tasks.launch import Launch
from agentless.model.tasks.signature import SIGNATURE, Signer
from agentless.model.tasks.spec import Volume
from agentless.model.tasks.task import Placement, Task
from agentless.render import Renderer
from agentless.rules.tasks.known_complaints import Blame

OLDEST = (4, 1)
"""The first podman that hands out devices by CDI."""

_CLAIM = re.compile(r"^(agentless-[^.]*)\..*")
_OWN = frozenset(
    {
        "begin.sh.j2",
        "clear.sh.j2",
        "cp.j2",
        "events.j2",
        "facts.sh.j2",
        "live.sh.j2",
        "reap.sh.j2",
        "rm.j2",
        "run.j2",
        "shell.sh.j2",
    }
)
_INFO = (
    '{"version":{{json .Version.Version}},"rootless":{{json .Host.Security.Rootless}}'
    ',"cgroups":{{json .Host.CgroupsVersion}},"controllers":{{json .Host.CgroupControllers}}}'
)
# One that ran when the node went down holds nothing.
LIVE = (
    '{{$state := .ListContainer.State}}{{$down := and (eq $state "created") (gt .StartedAt 0)}}'
    '{{.ID}}|{{.Names}}|{{if $down}}Down{{else if eq $state "initialized"}}Created{{else}}{{.Status}}{{end}}'
    '|{{if not $down}}{{index .Labels "agentless.gpus"}}{{end}}'
    '|{{if not $down}}{{index .Labels "agentless.exclusive"}}{{end}}'
    '|{{index .Labels "agentless.gpu_share"}}|{{index .Labels "agentless.gpu_memory"}}'
    '|{{index .Labels "agentless.task"}}|{{index .Labels "agentless.owner"}}'
)
SIGNED = f'{{{{index .Labels "{SIGNATURE}"}}}}'
_STATE = (
    '{{if not .State.StartedAt.IsZero}}begun{{else if eq .State.Status "initialized"}}created'
    "{{else}}{{.State.Status}}{{end}}"
)
_INSPECTED = inspected(".ID")
_EVENT = f'{{{{with index .Attributes "{TASK}"}}}}{{{{$.Status}}}} {{{{$.ID}}}} {{{{printf "%.200s" .}}}}{{{{end}}}}'
_STATES = {"initialized": "created", "configured": "created", "stopping": "running", "stopped": "exited"}


class PodmanVolumes(VolumeWords):
    """Its volumes."""

    def sizes(self) -> Command:
        """Ask how large all volumes are, in KiB; of those that one may not look into nothing."""
        command = self._script("podman-volume-sizes.sh.j2", format="{{.Name}}|{{.Mountpoint}}")
        return replace(command, timeout=SIZES_WITHIN)

    def _label(self, label: str) -> str:
        return f'{{{{index .Labels "{label}"}}}}'

    def _volume(self, volume: Volume, owner: str) -> str:  # noqa: ARG002 - the launch has made it, with its labels
        return record(["type=volume", f"source={volume.name}", f"target={volume.target}"], read_only=volume.read_only)


class Podman(Docker):
    """The podman of one user of a node."""

    keeps_envs = False
    _makes_volumes = True
    _times_are_exact = False  # one for all that it has read at once, also in the middle of a line
    _volumes = PodmanVolumes
    _live, _state, _inspected, _info = LIVE, _STATE, _INSPECTED, _INFO
    _signed = SIGNED

    def __init__(self, node: NodeConfig, renderer: Renderer, signer: Signer) -> None:
        super().__init__(node, renderer, signer)
        self._quiet.append("--log-level=error")

    def events(self, since: float) -> Command:
        """As Docker's; a line of a container that is none of ours is empty."""
        return self._words("docker-events.j2", since=f"{since:.3f}", format=_EVENT)

    def says_gone(self, result: Result, missing: Iterable[str]) -> bool:
        """Whether an answer of `inspect` says of all these containers that they are gone, and not merely nothing."""
        words = result.err.lower()
        return all(re.search(rf'no such (object: "?|container:? "?){re.escape(one)}', words) for one in missing)

    def launches(self, wanted: Sequence[Launch]) -> Command:
        """As Docker's; raises RuntimeFailed also for an env."""
        if any(is_ours(each.task.spec.image or "") for each in wanted):
            raise RuntimeFailed(
                f"{self._node.name} has podman, which keeps no envs; take a node with Docker, or --image"
            )
        return super().launches(wanted)

    def complaint(self, words: str) -> str:
        """What podman complains of, as a sentence with the fix."""
        return explain(words, self._node)

    def _blame(self, words: str) -> Blame:
        return blame(words)

    # ------------------------------------------------------------------ inside

    def _template(self, name: str) -> str:
        own = name.removeprefix("docker-")
        return f"podman-{own}" if own in _OWN else name

    def _under_lock(self, docker: list[str]) -> list[str]:
        return ["unlocked", *docker]

    def _name(self, task: Task, placement: Placement) -> str:
        """The name of the task's container, with its claim: a name may have letters, digits, `_`, `.` and `-`."""
        needs = task.spec.needs
        shared = needs.sharing.limit > 1
        claim = (
            re.sub(r"[^A-Za-z0-9_-]", "_", task.owner),
            "1" if needs.exclusive else "",
            str(needs.sharing.limit) if shared else "",
            str(needs.sharing.floor) if shared else "",
            *placement.gpu_uuids,
        )
        return ".".join((task.container_name, *claim))

    def _engine(
        self,
        fields: Mapping[str, object],
        others: Sequence[str],
        listed: Mapping[str, str],
        asked: float,
        answered: float,
    ) -> EngineFacts:
        version = str(fields["version"])
        now = next((line.removeprefix("now ") for line in others if line.startswith("now ")), None)
        return EngineFacts(
            version=f"podman {version}",
            nvidia=any(line.startswith("cdi ") for line in others),
            error=self._unfit(version, rootless=bool(fields.get("rootless")), fields=fields, others=others),
            listed=listed,
            clock=ahead(seconds(now), asked, answered),
            lacks=_lacks(fields),
        )

    def _unfit(
        self, version: str, *, rootless: bool, fields: Mapping[str, object], others: Sequence[str]
    ) -> str | None:
        """Why tasks cannot be run by it, None when they can."""
        name, user = self._node.name, self._node.user or "$USER"
        as_root = "write 'docker: sudo podman' for it in the inventory"
        if _numbers(version) < OLDEST:
            return f"podman {version} on {name} is too old: 4.1 or newer can hand out GPUs"
        if "hidepid" in others:
            return HIDDEN.format(node=name)
        if not rootless:
            return None
        if fields.get("cgroups") != "v2":
            return f"podman without root can neither limit nor pause on {name}, which has cgroups v1: {as_root}"
        if "no linger" in others:
            return (
                f"containers of {user} on {name} would end with his last session; on the node run: "
                f"sudo loginctl enable-linger {user}, or {as_root}"
            )
        return None

    def _container(self, fields: Mapping[str, object], clock: float) -> Container:
        state: dict[str, object] = dict(fields["state"])  # type: ignore[call-overload]
        status = _STATES.get(str(state["Status"]), str(state["Status"]))
        began = seconds(state.get("StartedAt"))
        went_down = status == "created" and began is not None
        if went_down:
            status, state["ExitCode"] = "exited", DOWN
        elif status not in get_args(ContainerState):
            status = "running"  # it does not know itself: nobody else gets its GPUs
        found = container_of_fields({**fields, "state": {**state, "Status": status}}, clock)
        error = WENT_DOWN if went_down else found.error
        return replace(found, name=_CLAIM.sub(r"\1", found.name), error=error)

    def _lacks_image(self, complaint: str) -> bool:
        return "image not known" in complaint


def _lacks(fields: Mapping[str, object]) -> frozenset[Control]:
    """The control groups that it may not use. With cgroups v1 it does not say; with v2 it can always pause."""
    controllers = fields.get("controllers")
    if fields.get("cgroups") != "v2" or not isinstance(controllers, list):
        return frozenset()
    limits: tuple[Control, ...] = "memory", "cpu", "cpuset"
    return frozenset(control for control in limits if control not in controllers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
