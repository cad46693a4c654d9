"""A user's own Docker engine on a node: `dockerd --rootless`, in namespaces that rootlesskit would make."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from pathlib import Path

from .engine import SBIN, Engine
from .namespaces import Namespaces
from .processes import MARK

_IDS = "0 {} 1\n1 200000 65535\n"
_PRIVATE = 'mount -t tmpfs -o mode=755 tmpfs /run && mount -t tmpfs tmpfs /etc/docker && exec "$@"'


class Rootless(Engine):
    """As Docker runs it without delegated control groups: it can neither limit nor name what its containers use."""

    def __init__(self, folder: Path, lab: Path, space: Namespaces, login: str) -> None:
        folder.mkdir()
        super().__init__(folder, lab, space, "")
        self._user = pwd.getpwnam(login)
        self._holder: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it answers."""
        at, uid, gid = self._folder, self._user.pw_uid, self._user.pw_gid
        subprocess.run(["chown", "-R", f"{uid}:{gid}", str(at)], check=True)
        at.chmod(0o700)
        env = {MARK: str(self._lab), "PATH": f"{at}/bin:{SBIN}", "TMPDIR": f"{at}/tmp", "HOME": str(at)}
        env["XDG_RUNTIME_DIR"] = str(at)
        argv = ["dockerd", "--rootless", "--config-file", f"{at}/daemon.json", "--host", f"unix://{self.socket}"]
        argv += ["--data-root", f"{at}/docker", "--exec-root", f"{at}/run", "--pidfile", f"{at}/docker.pid"]
        argv += ["--iptables=false", "--ip6tables=false", "--ip-masq=false", "--bridge=none", "--storage-driver=vfs"]
        argv += ["--group=root"]
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
        self._wait_for_answer()

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
