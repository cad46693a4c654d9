"""A user's own Docker engine on a node: `dockerd --rootless`, in namespaces of rootlesskit or in such as it makes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .engine import SBIN, Engine
from .namespaces import Namespaces
from .processes import MARK

_IDS = "0 {} 1\n1 200000 65535\n"
_PRIVATE = 'mount -t tmpfs -o mode=755 tmpfs /run && mount -t tmpfs tmpfs /etc/docker && exec "$@"'


class Rootless(Engine):
    """As Docker runs it without delegated control groups: it can neither limit nor name what its containers use."""

    storage: tuple[str, ...] = ("--storage-driver=vfs",)

    def __init__(self, folder: Path, lab: Path, space: Namespaces, uid: int, gid: int, *, hook: bool = True) -> None:
        folder.mkdir()
        super().__init__(folder, lab, space, "", hook=hook)
        self._uid, self._gid = uid, gid
        self._holder: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it answers."""
        at = self._folder
        subprocess.run(["chown", "-R", f"{self._uid}:{self._gid}", str(at)], check=True)
        at.chmod(0o700)
        env = {MARK: str(self._lab), "PATH": f"{at}/bin:{SBIN}", "TMPDIR": f"{at}/tmp", "HOME": str(at)}
        env["XDG_RUNTIME_DIR"] = str(at)
        argv = ["dockerd", "--rootless", "--config-file", f"{at}/daemon.json", "--host", f"unix://{self.socket}"]
        argv += ["--data-root", f"{at}/docker", "--exec-root", f"{at}/run", "--pidfile", f"{at}/docker.pid"]
        argv += ["--iptables=false", "--ip6tables=false", "--ip-masq=false", "--bridge=none", *self.storage]
        argv += ["--group=root"]
        self._run(argv, env)
        self._wait_until_ready()

    def _run(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        at, uid, gid = self._folder, self._uid, self._gid
        with at.joinpath("dockerd.log").open("ab") as log:
            self._holder = self._space.popen(
                ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "unshare", "--user", "sleep", "inf"],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            mine = os.readlink("/proc/self/ns/user")
            while os.readlink(f"/proc/{self._holder.pid}/ns/user") == mine:
                assert self._holder.poll() is None, at.joinpath("dockerd.log").read_text()
                time.sleep(0.005)
            Path(f"/proc/{self._holder.pid}/uid_map").write_text(_IDS.format(uid))
            Path(f"/proc/{self._holder.pid}/gid_map").write_text(_IDS.format(gid))
            there = ["nsenter", f"--target={self._space.pid(self._holder)}", "--user", "unshare", "--mount", "--net"]
            self._process = self._space.popen(
                [*there, "sh", "-c", _PRIVATE, "sh", *argv],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End it and its containers."""
        super().stop()
        self._end_holder()

    def reap(self) -> None:
        """Collect what somebody else has ended."""
        super().reap()
        self._end_holder()

    def _end_holder(self) -> None:
        if self._holder:
            self._holder.kill()
            self._holder.wait(30)
            self._holder = None


class RootlessKit(Rootless):
    """With the rootlesskit that Docker 23 and later ask for; the node has subordinate ids for the user."""

    storage = ()

    def _run(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        person = ["setpriv", f"--reuid={self._uid}", f"--regid={self._gid}", "--clear-groups"]
        kit = [
            "rootlesskit",
            f"--state-dir={self._folder}/kit",
            "--net=slirp4netns",
            "--port-driver=builtin",
            "--copy-up=/etc",
            "--copy-up=/run",
        ]
        with self._folder.joinpath("dockerd.log").open("ab") as log:
            self._process = self._space.popen(
                [*person, *kit, *argv],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
