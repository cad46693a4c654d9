"""Volumes and folders of a node for containers: Docker's commands and its answers. No I/O."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from agentless.engines.docker.commands import Commands
from agentless.errors import Refused, RuntimeFailed, UsageError
from agentless.model.command import Command, Result
from agentless.model.containers.claim import OWNER, TASK, VOLUME
from agentless.model.nodes.node import with_node
from agentless.model.tasks.spec import Mount, TaskSpec, Volume
from agentless.model.units import parse_size

MARK = f'{{{{index .Labels "{VOLUME}"}}}}'
"""The format that reads the mark of a volume of ours: its own name."""
NOT_OURS = 80
"""A script's exit code for a volume that is none of ours."""
_THERE = 73
SIZES_WITHIN = 8.0


def not_ours(name: str) -> str:
    """The error for a volume that agentless did not create."""
    return f"volume {name} already exists and was not created by agentless; choose another name"


class DockerVolumes:
    """Volume commands for one node. `complaint` turns the engine's complaint into a sentence."""

    def __init__(self, commands: Commands, complaint: Callable[[str], str]) -> None:
        self._commands = commands
        self._node = commands.node
        self._dialect = commands.dialect
        self._complaint = complaint

    def mounts(self, spec: TaskSpec, owner: str) -> list[str]:
        """The values of `--mount` for all that a container sees of the node; `spec` has the settings of the node."""
        return [*map(_mount, spec.mounts), *(self._volume(volume, owner) for volume in spec.volumes)]

    def all(self) -> Command:
        """List our volumes, and the tasks whose containers use them."""
        label = self._dialect.formats.label
        listing, users = f"{{{{.Name}}}}|{label % OWNER}", label % TASK
        return self._commands.script("docker-volumes.sh.j2", label=VOLUME, listing=listing, users=users)

    def sizes(self) -> Command:
        """Ask for the sizes of all volumes. Slow: the engine counts everything that it stores."""
        format_ = self._dialect.formats.volume_sizes
        return self._commands.script("docker-volume-sizes.j2", timeout=SIZES_WITHIN, format=format_)

    def parse(self, result: Result) -> list[tuple[str, str, tuple[str, ...]]]:
        """Name, owner and tasks of each volume."""
        if not result.ok:
            raise RuntimeFailed(with_node(self._node.name, self._complaint(result.err.strip())))
        found: list[tuple[str, str, list[str]]] = []
        for line in result.out.splitlines():
            if line.startswith("volume|"):
                _, name, owner = line.split("|", 2)
                found.append((name, owner or "unknown", []))
            elif found and line:
                found[-1][2].append(line)
        return [(name, owner, tuple(sorted(tasks))) for name, owner, tasks in sorted(found)]

    def parse_sizes(self, result: Result) -> dict[str, int]:
        """Bytes of each volume whose size is known."""
        found = {}
        for line in result.out.splitlines():
            name, _, size = line.partition("|")
            with contextlib.suppress(UsageError):
                found[name] = parse_size(size)
        return found

    def create(self, name: str, owner: str) -> Command:
        """Create a volume; `check` reads the answer."""
        return self._one(name, [f"{VOLUME}={name}", f"{OWNER}={owner}"])

    def remove(self, name: str) -> Command:
        """Remove a volume if it is ours; `check` reads the answer."""
        return self._one(name, [])

    def check(self, name: str, result: Result) -> None:
        """Raise Refused for a volume that exists or is not ours, RuntimeFailed for any other failure."""
        if result.exit_code == _THERE:
            raise Refused(f"{self._node.name} already has a volume {name}; to see it, run: agentless volume list")
        if result.exit_code == NOT_OURS:
            raise Refused(f"{self._node.name}: {not_ours(name)}")
        if not result.ok:
            raise RuntimeFailed(with_node(self._node.name, self._complaint(result.err.strip())))

    def _volume(self, volume: Volume, owner: str) -> str:
        """The value of `--mount` for a volume, with the labels in case the engine has to create it."""
        fields = ["type=volume", f"source={volume.name}", f"target={volume.target}"]
        labels = (
            []
            if self._dialect.makes_volumes
            else [f"volume-label={VOLUME}={volume.name}", f"volume-label={OWNER}={owner}"]
        )
        return record([*fields, *labels], read_only=volume.read_only)

    def _one(self, name: str, labels: list[str]) -> Command:
        return self._commands.script("docker-volume.sh.j2", name=name, labels=labels, format=MARK, there=_THERE)


def _mount(mount: Mount) -> str:
    return record(["type=bind", f"source={mount.source}", f"target={mount.target}"], read_only=mount.read_only)


def record(fields: list[str], *, read_only: bool) -> str:
    """A value of `--mount`, which the engine reads as one CSV record."""
    fields = [*fields, "readonly"] if read_only else fields
    return ",".join('"' + f.replace('"', '""') + '"' if re.search(r'[",\r\n]', f) else f for f in fields)
