"""A node's own podman: a command with folders of its own, and a CDI file that says which GPUs it may hand out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from .namespaces import Namespaces
from .processes import descendants, kill, processes

CDI = Path("/etc/cdi")
"""podman 4 looks nowhere else, so the file in it is named after the lab's network and the node."""

_CONTAINERS = """\
[containers]
# Beside the node's own network none is made, and so none is left over.
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{at}/tmp"
runtime = "runc"
[engine.runtimes]
runc = ["{at}/runc"]
"""
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{at}/storage"
runroot = "{at}/run"
"""
_PODMAN = """\
#!/bin/sh
export CONTAINERS_CONF={at}/containers.conf CONTAINERS_STORAGE_CONF={at}/storage.conf
export CONTAINERS_REGISTRIES_CONF={at}/registries.conf
case $1 in
  run) shift; set -- run --cgroup-parent {cgroup}/podman "$@" ;;
esac
exec {podman} "$@"
"""
_RUNC = '#!/bin/sh\nexec {runc} --root {at}/runtime "$@"\n'


class Podman:
    """podman as root, with storage of its own. There is no registry, and no short name means one."""

    def __init__(self, folder: Path, space: Namespaces, network: str, name: str, cdi: Path | None = None) -> None:
        self._folder, self._at, self._space, self._network = folder, folder / "podman", space, network
        self._cdi = cdi or CDI / f"{network}-{name}.json"
        self._at.mkdir(parents=True)
        values = {
            "at": self._at,
            "cgroup": f"/{network}",
            "podman": shutil.which("podman"),
            "runc": shutil.which("runc", path="/usr/sbin:/usr/bin"),
        }
        self.program = folder / "bin" / "podman"
        for file, text in {
            self._at / "containers.conf": _CONTAINERS,
            self._at / "storage.conf": _STORAGE,
            self._at / "registries.conf": "",
            self._at / "runc": _RUNC,
            self.program: _PODMAN,
        }.items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(text.format(**values))
            file.chmod(0o755)

    def offer(self, uuids: Sequence[str]) -> None:
        """Write the CDI file."""
        self._cdi.parent.mkdir(exist_ok=True)
        self._cdi.write_text(cdi_text(uuids))

    def load(self, archive: Path, env: Mapping[str, str]) -> None:
        """Give it the images of `archive`."""
        self._podman(env, "load", "--quiet", "--input", str(archive))

    def other(self) -> Podman:
        """One that knows nothing of this one's containers, as that of another user does not."""
        return Podman(self._folder / "other", self._space, self._network, "other")

    def remove_containers(self, env: Mapping[str, str]) -> None:
        """All of them, whatever they do."""
        if [*self._at.glob("storage/overlay-containers/*/")]:
            self._podman(env, "rm", "--all", "--force", "--time", "0", "--volumes")

    def reboot(self) -> None:
        """A power cut: no process, mount or state of what ran is left, but what is on disk."""
        everyone = processes()
        conmons = [p.pid for p in everyone.values() if p.name == "conmon" and f"{self._at}/" in p.command]
        below = descendants(conmons, everyone)
        kill(conmons)  # first, or it would write down how they end
        kill(below)
        while {*below, *conmons} & processes().keys():
            pass
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        mounts = [
            line.split()[1] for line in self._space.run(["cat", "/proc/mounts"], env, timeout=30).stdout.splitlines()
        ]
        for mount in reversed(mounts):
            if mount.startswith(f"{self._at}/"):
                self._space.run(["umount", "--lazy", mount], env, timeout=30).check_returncode()
        for folder in ("tmp", "run", "runtime"):
            shutil.rmtree(self._at / folder, ignore_errors=True)

    def _podman(self, env: Mapping[str, str], *words: str) -> str:
        done = self._space.run([str(self.program), *words], env, timeout=60)
        done.check_returncode()
        return done.stdout


def cdi_text(uuids: Sequence[str]) -> str:
    """A CDI file: a container that gets GPU i has its UUID in LAB_GPU_i, and nothing else of it."""
    devices = [
        {"name": uuid, "containerEdits": {"env": [f"LAB_GPU_{index}={uuid}"]}} for index, uuid in enumerate(uuids)
    ]
    return json.dumps({"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": devices})


def remove_cdi(network: str) -> None:
    """The CDI files of a lab."""
    for file in CDI.glob(f"{network}-*.json"):
        file.unlink()
    if CDI.is_dir() and not os.listdir(CDI):
        CDI.rmdir()
