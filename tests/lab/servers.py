"""SSH servers other than OpenSSH on a node: dropbear, and tinyssh behind systemd's inetd.

Neither takes an environment for its sessions as `SetEnv` does, so the node has the files that a machine of its own has:
a home of root, and programs in /usr/local/bin that mean this node.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .namespaces import Namespaces

_SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"


class Servers:
    """The other servers of a node; each has the node's host key, where it can read that."""

    def __init__(self, folder: Path, lab: Path, host: str, space: Namespaces, env: Mapping[str, str]) -> None:
        self._folder, self._node, self._space, self._host, self._env = folder, folder.parent, space, host, env
        self._bin = folder / "bin"
        self._bin.mkdir(parents=True)
        for name in ("docker", "nvidia-smi", "nvidia-container-runtime-hook"):
            program = self._bin / name
            settings = "\n".join(f"export {key}='{value}'" for key, value in env.items() if key != "PATH")
            program.write_text(f'#!/bin/sh\n{settings}\nexec {shutil.which(name, path=env["PATH"])} "$@"\n')
            program.chmod(0o755)
        home = folder / "root"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        shutil.copy(lab / "authorized_keys", home / ".ssh/authorized_keys")
        done = space.run(["sh", "-c", f"mount --bind {home} /root; mount --bind {self._bin} /usr/local/bin"], env, 60)
        assert done.returncode == 0, done
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def dropbear(self, port: int, *options: str) -> str:
        """Start one; gives its host key as known_hosts has it."""
        key = self._folder / "dropbear_key"
        if not key.exists():
            words = ["/usr/lib/dropbear/dropbearconvert", "openssh", "dropbear", str(self._node / "host_key"), str(key)]
            subprocess.run(words, check=True, capture_output=True)
        where = f"{self._host}:{port}"
        pid = str(self._folder / f"dropbear{port}.pid")
        self._start(port, "dropbear", "-F", "-E", "-m", "-r", str(key), "-p", where, "-P", pid, *options)
        return (self._node / "host_key.pub").read_text().strip()

    def tinyssh(self, port: int, *options: str) -> str:
        """Likewise."""
        keys = self._folder / "tinyssh"
        if not keys.exists():
            subprocess.run(["/usr/sbin/tinysshd-makekey", str(keys)], check=True, capture_output=True)
        inetd = ["systemd-socket-activate", "--inetd", "--accept", "-E", "PATH", "-l", f"{self._host}:{port}"]
        self._start(port, *inetd, "/usr/sbin/tinysshd", "-v", *options, str(keys))
        words = ["/usr/sbin/tinysshd-printkey", str(keys)]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    def log(self, port: int) -> str:
        """What the server there has said."""
        return (self._folder / f"{port}.log").read_text(errors="replace")

    def stop(self) -> None:
        """End all of them with their connections."""
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()

    def _start(self, port: int, *argv: str) -> None:
        with (self._folder / f"{port}.log").open("wb") as log:
            process = self._space.popen(
                [str(shutil.which(argv[0], path=_SBIN)), *argv[1:]],
                env={**self._env, "PATH": f"{self._bin}:{_SBIN}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running[str(port)] = process
        listens = f":{port:04X} 00000000:0000 0A"
        _until(lambda: listens in self._space.run(["cat", "/proc/1/net/tcp"], self._env, 60).stdout, process)


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert process.poll() is None, process
        assert time.monotonic() < deadline, process
        time.sleep(0.01)
