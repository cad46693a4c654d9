"""A node with a real systemd as the first process of namespaces of its own.

Its root folder is bare: /usr is the machine's and read-only, /etc and the units in it are the lab's, so that nothing of
the machine is started or cleared up. Its cgroups are the lab's, and all of it goes with its first process.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from .network import enter
from .node import Node
from .processes import MARK, Process, descendants, kill, processes
from .sshd import Sshd

SYSTEMD = Path("/usr/lib/systemd/systemd")
PERSON, PERSON_ID = "carol", 4242
_UNITS = Path("/usr/lib/systemd/system")
_COPIED = (
    "basic.target", "sysinit.target", "sockets.target", "shutdown.target", "final.target", "multi-user.target",
    "slices.target", "paths.target", "timers.target", "local-fs.target", "local-fs-pre.target", "umount.target",
    "emergency.target", "nss-user-lookup.target", "remote-fs.target", "network.target", "user.slice",
    "systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket", "dbus.service",
    "dbus.socket", "systemd-logind.service", "systemd-user-sessions.service", "user@.service",
    "user-runtime-dir@.service",
)  # fmt: skip
_WANTED = {
    "sockets.target": ("systemd-journald.socket", "systemd-journald-dev-log.socket", "dbus.socket"),
    "sysinit.target": ("systemd-journald.service",),
    "multi-user.target": ("systemd-logind.service",),
}
_SSHD = """\
[Service]
ExecStart=/usr/sbin/sshd -D -e -f {folder}/sshd_config
StandardError=append:{folder}/sshd.log
KillMode=control-group
RuntimeDirectory=sshd
RuntimeDirectoryPreserve=yes
"""
_BOOT = r"""
set -eu
folder=$1 lab=$2 etc=$1/etc root=$1/root
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir usr proc sys dev run root home .old var
mkdir -m 1777 tmp
for name in bin sbin lib lib64; do [ ! -L "/$name" ] || ln -s "usr/$name" "$name"; done
mount --bind /usr usr
mount -o remount,bind,ro usr
mount -t tmpfs tmpfs usr/lib/systemd/system-generators
mount -t tmpfs tmpfs usr/lib/systemd/user-generators 2>/dev/null || true
cp -a "$etc" etc
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mount -t tmpfs -o mode=755 tmpfs run
# A journal that is kept, so that everybody may read what is theirs.
mkdir -p run/systemd/journal var/log/journal var/lib/systemd/linger
touch run/systemd/journal/flushed
mkdir -m 700 "home/$4"
chown "$5" "home/$4"
mkdir -p "$root$lab"
mount --rbind "$lab" "$root$lab"
pivot_root . .old
umount -l /.old
rmdir /.old
exec env -i container=lab SYSTEMD_UNIT_PATH=/etc/systemd/system PATH=/usr/sbin:/usr/bin "$3=$lab" \
  /usr/lib/systemd/systemd --log-target=console --show-status=no
"""


class SystemdNode(Node):
    """A node of a `Lab`, made by `Lab.add_systemd_node`. Beside root there is a person, with a home and no rights."""

    def boot(self, cgroup: str) -> None:
        """Start systemd and wait until it runs."""
        self._write_etc()
        groups = _make_cgroups(f"{cgroup}/{self.name}")
        self.dir.joinpath("root").mkdir()
        with self.dir.joinpath("systemd.log").open("wb") as log:
            self._init = subprocess.Popen(
                [
                    *enter(self._netns),
                    *("sh", "-c", f'for file in {" ".join(groups)}; do echo $$ > $file; done; exec "$@"', "sh"),
                    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc"),
                    *("sh", "-c", _BOOT, "sh", str(self.dir), str(self._lab), MARK, PERSON, str(PERSON_ID)),
                ],
                env={MARK: str(self._lab), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 60
        while self.sh("systemctl is-system-running --wait").stdout != "running\n":
            if self._init.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"systemd does not start: {self.dir.joinpath('systemd.log').read_text()[-2000:]}")
            time.sleep(0.02)
        self._sshd = _UnitSshd(self)

    def reboot(self, cgroup: str) -> None:
        """A power cut, and a boot: nothing that ran is left, and the kernel's boot has another id."""
        self.kill_docker()
        self._init.kill()
        self._init.wait()
        shutil.rmtree(self.dir / "etc")
        self.dir.joinpath("root").rmdir()
        self.boot(cgroup)
        boot = self.dir / "boot"
        boot.write_text(f"{uuid.uuid4()}\n")
        self.sh(f"mount --bind {boot} /proc/sys/kernel/random/boot_id").check_returncode()
        self.start_docker()
        self.start_sshd()

    @property
    def entered(self) -> list[str]:
        """The words before a command that is to run on this node."""
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text().split()
        return ["nsenter", f"--target={children[0] if children else 0}", "--mount", "--pid", "--uts", "--ipc", "--net"]

    def sh(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script on the node as root, not over SSH."""
        argv = [*self.entered, "sh", "-c", script]
        return subprocess.run(argv, check=False, env=self.env(), capture_output=True, text=True, timeout=60)

    def units(self) -> list[str]:
        """The names of all our units, whatever they do."""
        return self.sh("cd /run/systemd/transient && ls agentless-* 2>/dev/null").stdout.split()

    def reset(self) -> None:
        """As new: also no unit of ours."""
        self.sh("systemctl kill --signal=KILL 'agentless-*'; systemctl stop 'agentless-*'; systemctl reset-failed")
        super().reset()

    def reap(self) -> None:
        """Collect systemd as well."""
        super().reap()
        self._init.wait(30)

    def _write_etc(self) -> None:
        etc = self.dir / "etc"
        units = etc / "systemd" / "system"
        units.mkdir(parents=True)
        for name in ("nsswitch.conf", "ld.so.cache", "localtime"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(Path("/etc", name), etc / name)
        for name in ("pam.d", "security", "alternatives"):
            shutil.copytree(Path("/etc", name), etc / name, symlinks=True)
        person = f"{PERSON}:x:{PERSON_ID}:{PERSON_ID}::/home/{PERSON}:/bin/sh\n"
        etc.joinpath("passwd").write_text(Path("/etc/passwd").read_text() + person)
        etc.joinpath("group").write_text(Path("/etc/group").read_text() + f"{PERSON}:x:{PERSON_ID}:\n")
        names = [line.partition(":")[0] for line in etc.joinpath("passwd").read_text().splitlines()]
        etc.joinpath("shadow").write_text("".join(f"{name}:*:19000:0:99999:7:::\n" for name in names))
        etc.joinpath("machine-id").write_text("0123456789abcdef0123456789abcdef\n")
        etc.joinpath("hostname").write_text(f"{self.name}\n")
        for name in _COPIED:
            shutil.copy(_UNITS / name, units / name)
        for target, wanted in _WANTED.items():
            folder = units / f"{target}.wants"
            folder.mkdir()
            for name in wanted:
                folder.joinpath(name).symlink_to(f"../{name}")
        units.joinpath("default.target").symlink_to("multi-user.target")
        units.joinpath("dbus-org.freedesktop.login1.service").symlink_to("systemd-logind.service")
        units.joinpath("sshd.service").write_text(_SSHD.format(folder=self.dir))


class _UnitSshd(Sshd):
    """The node's sshd, with the configuration that it would have without systemd, as a service."""

    def __init__(self, node: SystemdNode) -> None:
        self._node, self._folder, self._key = node, node.dir, node.dir / "host_key"
        self._options: list[str] = []

    def start(self) -> None:
        log = self._folder / "sshd.log"
        before = log.stat().st_size if log.exists() else 0
        if self._node.sh("systemctl is-active sshd").stdout == "active\n":
            return
        self._node.sh("systemctl start sshd")
        deadline = time.monotonic() + 30
        while not log.exists() or b"Server listening" not in log.read_bytes()[before:]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"sshd does not start: {self._node.sh('systemctl status sshd').stdout}")
            time.sleep(0.01)

    def stop(self) -> None:
        self._node.sh("systemctl stop sshd")

    def kill_connections(self) -> None:
        everyone = processes()
        kill(pid for pid in self.descendants(everyone) if everyone[pid].name.startswith("sshd"))

    def descendants(self, among: Mapping[int, Process]) -> set[int]:
        return descendants([p.pid for p in among.values() if f"{self._folder}/sshd_config" in p.command], among)

    def reap(self) -> None:
        pass


def _make_cgroups(name: str) -> list[str]:
    """Make this group in each hierarchy; the files that take members."""
    hierarchies = [Path("/sys/fs/cgroup")]
    if not hierarchies[0].joinpath("cgroup.procs").exists():
        hierarchies = [each for each in hierarchies[0].iterdir() if each.joinpath("cgroup.procs").exists()]
    for top in hierarchies:
        folder = top
        for part in name.split("/"):
            with contextlib.suppress(OSError):  # of version 2: what is below may have these
                folder.joinpath("cgroup.subtree_control").write_text("+cpu +memory +pids")
            folder = folder / part
            folder.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):  # of version 1: empty ones take no member
                if top.name.startswith("cpuset") and folder.joinpath(setting).exists():
                    folder.joinpath(setting).write_text(folder.parent.joinpath(setting).read_text())
    return [f"{top}/{name}/cgroup.procs" for top in {each.resolve() for each in hierarchies}]
