"""Removing a lab with nothing but its folder: at its end, for `down`, and by a guard.

There is one way for all three, the hard one, so that it is known to work when it is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from .podman import remove_cdi
from .processes import MARK, Process, descendants, kill, marked, processes

STATE = "lab.json"
CGROUPS = Path("/sys/fs/cgroup")
SUDOERS = Path("/etc/sudoers.d")


def remove(root: Path) -> None:
    """Remove the lab in the folder `root`; does nothing when there is none.

    Every step is tried, whatever became of the one before it; what failed is raised together at the end.
    """
    if not root.joinpath(STATE).exists():
        return
    failed: list[Exception] = []
    for step in (_end_processes, _remove_links, _unmount, _remove_cgroups, _remove_users, _remove_cdi):
        try:
            step(root)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next step is tried
            failed.append(error)
    shutil.rmtree(root, ignore_errors=True)
    if failed:
        raise ExceptionGroup(f"the lab in {root} was not removed as a whole", failed)


def _end_processes(root: Path) -> None:
    """Not the process that asks for it nor those above it, though they may be in the lab's environment."""
    for _ in range(1000):
        everyone = processes()
        _thaw(root)
        ours = marked(MARK, root, everyone) | _sshds(root, everyone) | _inside(root, everyone)
        ours = (ours | descendants(ours, everyone)) - _ancestors(everyone)
        if not ours:
            return
        kill(ours)
        time.sleep(0.02)
    raise TimeoutError(f"these do not end: {sorted(ours)}")


def _sshds(root: Path, everyone: Mapping[int, Process]) -> set[int]:
    """They write their title over their environment; the title of a listener names its configuration."""
    return {p.pid for p in everyone.values() if p.name.startswith("sshd") and f"{root}/" in p.command}


def _inside(root: Path, everyone: Mapping[int, Process]) -> set[int]:
    """Whoever is in a network namespace of the lab: the connections of an sshd that is gone, for one."""
    namespaces = {(s.st_dev, s.st_ino) for s in (file.stat() for file in root.glob("*/net"))}
    inside = set()
    for pid in everyone:
        with contextlib.suppress(OSError):
            at = os.stat(f"/proc/{pid}/ns/net")
            if (at.st_dev, at.st_ino) in namespaces:
                inside.add(pid)
    return inside


def _ancestors(everyone: Mapping[int, Process]) -> set[int]:
    spared, pid = set(), os.getpid()
    while pid in everyone:
        spared.add(pid)
        pid = everyone[pid].parent
    return spared


def _network(root: Path) -> str | None:
    name: str | None = json.loads(root.joinpath(STATE).read_text())["network"]
    return name


def _cgroups(root: Path) -> list[Path]:
    """The lab's cgroups, one per hierarchy, each with all that is below it, the deepest first."""
    name = _network(root)
    tops = [*CGROUPS.glob(f"{name}"), *CGROUPS.glob(f"*/{name}")] if name else []
    return [Path(folder) for top in tops for folder, _, _ in os.walk(top, topdown=False)]


def _thaw(root: Path) -> None:
    """A paused container does not die of a SIGKILL in a cgroup of version 1."""
    for folder in _cgroups(root):
        with contextlib.suppress(OSError):
            state = folder / "freezer.state"
            if state.exists():
                state.write_text("THAWED")


def _remove_links(root: Path) -> None:
    """The bridge and the machine's ends of the nodes' links; the other ends go with them."""
    name = _network(root)
    for link in os.listdir("/sys/class/net") if name else []:
        if link == name or link.startswith(f"{name}v"):
            subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)


def _unmount(root: Path) -> None:
    """What keeps the namespaces; the engines' own mounts went with their processes."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed(mounts):
        if f"{mount}/".startswith(f"{root}/"):
            subprocess.run(["umount", "--lazy", mount], check=True, capture_output=True)


def _remove_cgroups(root: Path) -> None:
    for _ in range(1000):
        for folder in _cgroups(root):
            with contextlib.suppress(OSError):  # a process of it is still on its way out
                folder.rmdir()
        if not _cgroups(root):
            return
        time.sleep(0.02)
    raise TimeoutError(f"these do not go: {_cgroups(root)}")


def _remove_cdi(root: Path) -> None:
    if name := _network(root):
        remove_cdi(name)


def _remove_users(root: Path) -> None:
    for user in pwd.getpwall():
        if user.pw_dir.startswith(f"{root}/"):
            SUDOERS.joinpath(user.pw_name).unlink(missing_ok=True)
            subprocess.run(["/usr/sbin/userdel", user.pw_name], check=True, capture_output=True)
