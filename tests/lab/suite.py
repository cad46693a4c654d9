"""A node whose root folder is another Debian release, with that release's engine: Docker 26 or 28, podman 5.

Its /etc, users and locks are its own. The kernel is this machine's, and so are the control groups, of version 1 unless
the node has a view of version 2.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .engine import Engine
from .namespaces import Namespaces
from .network import Network
from .node import Node
from .podman import Podman, cdi_text
from .rootless import RootlessKit
from .roots import root_of

PERSON, PERSON_ID = "carol", 4242
_HOOK = "/usr/bin/nvidia-container-runtime-hook"
_DOCKER = (
    "usr/lib/x86_64-linux-gnu/*.so*",
    "usr/bin/docker*",
    "usr/bin/containerd*",
    "usr/sbin/dockerd",
    "usr/sbin/runc",
    "usr/bin/runc",
    "usr/libexec/docker",
)
_ADD_PERSON = f"""
printf '{PERSON}:x:{PERSON_ID}:{PERSON_ID}::%s:/bin/bash\\n' "$1" >> /etc/passwd
printf '{PERSON}:*:19000:0:99999:7:::\\n' >> /etc/shadow
printf '{PERSON}:x:{PERSON_ID}:\\n' >> /etc/group
printf '{PERSON}:200000:65536\\n' | tee -a /etc/subuid >> /etc/subgid
chown -R {PERSON_ID}:{PERSON_ID} "$1"
"""


@dataclass(frozen=True)
class Kind:
    """Which engine a node has, and how it is set up.

    `containerd`: Docker keeps its images in containerd's store. `rootless`: Docker runs as a person, and sessions are
    hers. `cdi`: Docker has no hook of NVIDIA's and a CDI file. `cgroup2`: control groups of version 2 are all it sees,
    without memory and cpuset, which this machine has in version 1.
    """

    suite: str = "sid"
    engine: Literal["docker", "podman"] | None = "docker"
    containerd: bool = False
    rootless: bool = False
    cdi: bool = False
    cgroup2: bool = False


class SuiteNode(Node):
    """A node of a `Lab`, made by `Lab.add_suite_node`."""

    def __init__(self, name: str, folder: Path, lab: Path, address: str, gpus: int, kind: Kind) -> None:
        netns = folder / "net"
        space = Namespaces(netns, lab, root_of(kind.suite), folder, kind.cgroup2)
        super().__init__(name, folder, lab, netns, address, 22, gpus, "", space)
        self.kind = kind
        self._run("mkdir -p /run/sshd")
        if kind.rootless:
            self.user = PERSON
            self._run(_ADD_PERSON, f"{folder}/home")

    def install(self, network: Network, image: Path) -> None:
        """Start its engine, which has the image in `image`."""
        if self.kind.engine == "podman":
            self._podman = Podman(self.dir, self._space, network.name, self.name, cdi=self.dir / "nvidia.yaml")
            self._podman.offer(self.gpu_uuids)
            self._offer_cdi()
            self._podman.load(image, self.env())
        elif self.kind.engine == "docker":
            self._add_docker(network)
            assert self._engine
            self._engine.start()
            self._engine.load(image)

    def upgrade(self, suite: str) -> None:
        """Put Docker of another release in place of its own, with its libraries, as an upgrade of packages does."""
        root = root_of(suite)
        files = [str(path.relative_to(root)) for names in _DOCKER for path in root.glob(names)]
        packed = subprocess.Popen(["tar", "-C", str(root), "-c", *files], stdout=subprocess.PIPE)
        unpack = ["tar", "-C", "/", "-x", "--unlink-first"]
        with packed, self._space.popen(unpack, env=self.env(), stdin=packed.stdout) as unpacking:
            assert unpacking.wait(300) == 0

    def _add_docker(self, network: Network) -> None:
        hook = not self.kind.cdi
        if self.kind.rootless:
            folder = self.dir / f"rootless-{PERSON}"
            self._engine = RootlessKit(folder, self._lab, self._space, PERSON_ID, PERSON_ID, hook=hook)
            self.docker_socket.symlink_to(self._engine.socket)
        else:
            self._engine = Engine(self.dir, self._lab, self._space, f"/{network.name}", hook=hook)
        if hook:  # where sessions find it, as well as the engine
            self._run(f"printf '#!/bin/sh\\nexec cat >/dev/null\\n' > {_HOOK} && chmod 755 {_HOOK}")
        features = {"containerd-snapshotter": self.kind.containerd}
        if self.kind.cdi:
            features["cdi"] = True
            self.dir.joinpath("nvidia.yaml").write_text(cdi_text(self.gpu_uuids))
            self._offer_cdi()
        self._engine.configure({"features": features})

    def _offer_cdi(self) -> None:
        self._run('mkdir -p /etc/cdi && cp "$1" /etc/cdi/nvidia.yaml', f"{self.dir}/nvidia.yaml")

    def _run(self, script: str, *words: str) -> None:
        self._space.run(["sh", "-c", script, "sh", *words], self.env(), timeout=60).check_returncode()
