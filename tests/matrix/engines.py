"""The engines of the matrix, and what each is known not to do: that is refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.lab import Kind, Lab, Node


@dataclass(frozen=True)
class Engine:
    """One column, whose head is `short`. Without a `kind` it is this machine's own.

    `refuses` are parts of the sentences by which commands are refused.
    """

    name: str
    short: str
    kind: Kind | None = None
    podman: bool = False
    refuses: Mapping[str, str] = field(default_factory=dict)

    def node(self, lab: Lab, name: str = "n") -> Node:
        """A node that has it."""
        if self.kind:
            return lab.add_suite_node(name, self.kind)
        return lab.add_podman(name) if self.podman else lab.add_node(name)

    @property
    def inventory(self) -> str:
        """What its node has in the inventory beside its address."""
        user = "carol" if self.kind and self.kind.rootless else "root"
        docker = ", docker: podman" if self.podman else ""
        return f"user: {user}{docker}"


NO_ENVS = {
    "env create, exec, save": "does not support envs",
    "env push, submit --container": "does not support envs",
    "env export, import": "does not support envs",
    "vps snapshot, restore": "does not support envs",
}
NO_MEMORY = {
    "submit --memory --cores": "cannot limit memory: the memory control group is missing",
    "vps resize --cores": "cannot limit cores: the cpu control group is missing",
}
NO_LIMITS = {
    **NO_MEMORY,
    "pause, resume": "cannot pause: the freezer control group is missing",
}

ENGINES = (
    Engine("Docker 20.10", "20.10"),
    Engine("Docker 26", "26", Kind("trixie")),
    Engine("Docker 26, CDI only", "26 CDI", Kind("trixie", cdi=True)),
    Engine("Docker 28", "28", Kind()),
    Engine("Docker 28, containerd's store", "28 store", Kind(containerd=True)),
    Engine("Docker 28, rootless", "28 rootless", Kind(rootless=True), refuses=NO_LIMITS),
    Engine("Docker 28, CDI only", "28 CDI", Kind(cdi=True)),
    Engine("Docker 28, cgroup v2", "28 v2", Kind(cgroup2=True), refuses=NO_MEMORY),
    Engine("podman 4.3", "podman 4.3", podman=True, refuses=NO_ENVS),
    Engine("podman 5.4", "podman 5.4", Kind("trixie", "podman"), podman=True, refuses=NO_ENVS),
    Engine("podman 5.8", "podman 5.8", Kind("sid", "podman"), podman=True, refuses=NO_ENVS),
)
