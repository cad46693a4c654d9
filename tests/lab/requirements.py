"""What a machine lacks for a lab, in words that a skipped test can show."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .engine import SBIN
from .roots import missing_for

_SSH = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "bash": "bash",
}
_DOCKER = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "containerd": "containerd",
    "busybox": "busybox-static",
}
_TRY = "ip link add a0 type bridge && ip link add a1 type veth peer name a2 && mount -t tmpfs tmpfs /run"


_SYSTEMD = {"/usr/lib/systemd/systemd": "systemd", "dbus-daemon": "dbus-daemon", "loginctl": "systemd"}
_SERVERS = {
    "dropbear": "dropbear-bin",
    "tinysshd": "tinysshd",
    "systemd-socket-activate": "systemd",
    "fish": "fish",
    "tcsh": "tcsh",
    "zsh": "zsh",
}
_PODMAN = {"podman": "podman", "conmon": "conmon", "runc": "runc"}


def requirements(
    docker: bool = True, systemd: bool = False, podman: bool = False, suite: str = "", servers: bool = False
) -> list[str]:
    """What is missing, nothing when a lab can run; without `docker`, a lab of nodes that have no engine.

    With `suite`, also what the root of that Debian release lacks; see `roots`. `servers` are other SSH servers and
    login shells.
    """
    if os.geteuid() != 0:
        return ["not root"]
    wanted = {"docker": docker, "systemd": systemd, "podman": podman, "servers": servers}
    sets = {"docker": _DOCKER, "systemd": _SYSTEMD, "podman": _PODMAN, "servers": _SERVERS}
    programs = _SSH | {program: name for key, each in sets.items() if wanted[key] for program, name in each.items()}
    missing = [
        f"no {program} (Debian's package {package})"
        for program, package in programs.items()
        if not shutil.which(program, path=SBIN)
    ]
    missing += missing_for(suite) if suite else []
    if missing:
        return missing
    trial = ["unshare", "--net", "--mount", "sh", "-c", _TRY]
    tried = subprocess.run(trial, check=False, capture_output=True, text=True)
    if tried.returncode != 0:
        missing.append(f"cannot make a network namespace, a bridge or a mount here: {tried.stderr.strip()}")
    if docker:
        with Path(str(shutil.which("busybox", path=SBIN))).open("rb") as program:
            if b"/ld-" in program.read(4096):
                missing.append("busybox is not static (Debian's package busybox-static)")
        mounts = [line.split()[2:4] for line in Path("/proc/self/mounts").read_text().splitlines()]
        if not any(kind == "cgroup2" or "devices" in options.split(",") for kind, options in mounts):
            missing.append("no cgroups are mounted")
    return missing
