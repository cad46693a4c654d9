"""Where the processes of a node live: a network, PIDs and mounts of its own, or those of this machine.

A node sees no process of another node, of another lab or of the machine. They see its processes as they see those of a
container: with one PID more.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .network import enter
from .processes import MARK

_NEW_PID = 0x20000000  # CLONE_NEWPID, of setns(2)
# The first process: it collects what its parents have left, and all others end with it.
_INIT = "echo; sleep infinity & wait"
# Another root folder: an overlay on `root`, whose changes are in the node's folder. The lab's folder is where it was.
# On /mnt, which every machine has: in the lab's folder, the overlay would be in itself.
_PIVOT = r"""
set -e
root=$1 folder=$2 lab=$3 cgroup2=$4
mkdir "$folder/changes" "$folder/work"
mount -t overlay -o "lowerdir=$root,upperdir=$folder/changes,workdir=$folder/work" overlay /mnt
mount -t proc proc /mnt/proc
mount --rbind /sys /mnt/sys
[ -z "$cgroup2" ] || mount -t cgroup2 cgroup2 /mnt/sys/fs/cgroup
mount --rbind /dev /mnt/dev
mount -t tmpfs -o mode=755 tmpfs /mnt/run
# For rootlesskit: everybody may use the real one on usual machines.
[ ! -e /dev/net/tun ] || { mknod -m 666 /mnt/run/tun c 10 200 && mount --bind /mnt/run/tun /mnt/dev/net/tun; }
mkdir -p "/mnt$lab" /mnt/etc/docker
mount --rbind "$lab" "/mnt$lab"
cd /mnt
pivot_root . mnt
umount --lazy /mnt
exec sh -c "$5"
"""


class Namespaces:
    """The namespaces of a node with the network in the file `netns`; None: no other ones than this machine's.

    With `root` its files are those of that folder, and what it changes goes into `folder`; see `SuiteNode`.
    """

    def __init__(
        self,
        netns: Path | None,
        lab: Path,
        root: Path | None = None,
        folder: Path | None = None,
        cgroup2: bool = False,
    ) -> None:
        self.netns = netns
        self._holder: subprocess.Popen[bytes] | None = None
        if netns is None:
            return
        # Slave: what a test mounts in the lab's folder is there on its nodes.
        words = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "slave", "--mount-proc"]
        init = ["sh", "-c", _INIT]
        if root:
            init = ["sh", "-c", _PIVOT, "sh", str(root), str(folder), str(lab), "yes" * cgroup2, _INIT]
        self._holder = subprocess.Popen(
            [*enter(netns), *words, *init],
            env={MARK: str(lab), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._holder.stdout
        if not self._holder.stdout.readline():
            raise RuntimeError("no namespaces for a node")
        self._init = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().strip()

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program there. Its `pid` is that of this machine: what is sent to it reaches the program itself."""
        if self._holder is None:
            return subprocess.Popen(argv, **options)
        with self._born_there():
            return subprocess.Popen(["nsenter", f"--target={self._init}", "--net", "--mount", *argv], **options)

    def run(self, argv: Sequence[str], env: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
        """Run a program there to its end; a non-zero exit is a result."""
        pipe = subprocess.PIPE
        with self.popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def pid(self, process: subprocess.Popen[Any]) -> int:
        """The PID that one of its programs has there."""
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])

    def reap(self) -> None:
        """Collect the first process after somebody has ended it."""
        if self._holder:
            self._holder.communicate(timeout=30)

    @contextlib.contextmanager
    def _born_there(self) -> Iterator[None]:
        """What this thread starts meanwhile has its PID there; `nsenter` would put itself between us and a program."""
        with _opened(f"/proc/{self._init}/ns/pid") as there, _opened("/proc/self/ns/pid") as here:
            _setns(there)
            try:
                yield
            finally:
                _setns(here)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _setns(fd: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(fd, _NEW_PID) != 0:
        raise OSError(ctypes.get_errno(), "setns")
