"""Checks of the machine itself: PATH, clock, memory, lock, control groups, folders."""

from __future__ import annotations

from collections.abc import Iterator

from agentless.model.nodes.check import Check, ok
from agentless.model.nodes.checkup import Folder, Machine
from agentless.model.text import shell_word
from agentless.model.units import format_duration, format_size
from agentless.rules.nodes.checks import remedies

NAMES = ("path", "clock", "memory", "flock", "cgroups")
_AHEAD_WARNING, _AHEAD_FAILED = 5.0, 300.0
"""Seconds that a clock may be off. TLS and signatures of packages fail from some minutes on."""
_LITTLE = 512 << 20
"""Bytes of memory, below which a container hardly starts."""
_PACKAGES = {"grep": "grep", "sed": "sed"}
"""Of programs that are not in coreutils."""


def checks(machine: Machine) -> Iterator[Check]:
    """All of them."""
    yield _path(machine)
    yield _clock(machine)
    yield _memory(machine)
    yield _flock(machine)
    yield _cgroups(machine)
    for folder in machine.folders:
        yield _folder(machine, folder)


def _path(machine: Machine) -> Check:
    if not machine.lacks:
        return ok("path", machine.path)
    missing = ", ".join(machine.lacks)
    packages = dict.fromkeys(_PACKAGES.get(program, "coreutils") for program in machine.lacks)
    fix = f"{remedies.install(machine.system, *packages)}\n"
    fix += "# If they are installed, put their folder into PATH for logins without a terminal (/etc/environment)."
    why = "Scripts of agentless call these programs on the node."
    return Check("path", "failed", machine.path, f"not on PATH: {missing}", fix, why)


def _clock(machine: Machine) -> Check:
    ahead = machine.ahead or 0.0
    off = max(0.0, abs(ahead) - machine.unsure)
    if off < _AHEAD_WARNING:
        return ok("clock", "like ours" + (", synchronized" if machine.synchronized else ""))
    words = f"the clock is {format_duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} ours"
    root = remedies.sudo(machine.system)
    fix = f"{root}timedatectl set-ntp true"
    if machine.system.manager == "apk" or not machine.system.has_systemd:
        fix = f"{remedies.install(machine.system, 'chrony')}\n{root}chronyd -q"
    why = "Registries and package sources refuse a clock that is far off, and times in logs mislead."
    return Check("clock", "failed" if off >= _AHEAD_FAILED else "warning", words, words, fix, why)


def _memory(machine: Machine) -> Check:
    total, left = machine.memory, machine.memory_available
    if total is None or left is None:
        return ok("memory", "not reported")
    seen = f"{format_size(left)} of {format_size(total)} available"
    if left >= min(_LITTLE, total // 10):
        return ok("memory", seen)
    fix = "ps -eo pid,user,rss,args --sort=-rss | head  # what uses it"
    why = "A container that starts now is likely to be killed by the kernel."
    return Check("memory", "warning", seen, f"only {format_size(left)} of memory are available", fix, why)


def _flock(machine: Machine) -> Check:
    if machine.has_flock is not False:
        return ok("flock", "locks")
    fix = remedies.install(machine.system, "util-linux")
    why = "Launches lock the node, so that no GPU is given twice. Without a lock nothing is started."
    return Check("flock", "failed", "no such program", "there is no flock command", fix, why)


def _cgroups(machine: Machine) -> Check:
    if machine.cgroups:
        return ok("cgroups", {"hybrid": "version 1, with version 2 beside it"}.get(machine.cgroups, machine.cgroups))
    root = remedies.sudo(machine.system)
    fix = f"{root}mount -t cgroup2 none /sys/fs/cgroup"
    why = "Engines put every container into a control group."
    return Check("cgroups", "warning", "none mounted", "no control groups are mounted at /sys/fs/cgroup", fix, why)


def _folder(machine: Machine, folder: Folder) -> Check:
    if not folder.problem:
        return ok(folder.key, f"{folder.path} is writable")
    path, user, root = shell_word(folder.path), shell_word(machine.user), remedies.sudo(machine.system)
    fixes = {
        "missing": f"{root}mkdir -p {path} && {root}chown {user} {path}",
        "not writable": f"{root}chown {user} {path} && {root}chmod u+rwx {path}",
        "full": f"du -xh --max-depth=1 {path} | sort -h | tail  # what fills it",
    }
    words = {"missing": "does not exist", "not writable": "is not writable for the login", "full": "is full"}
    fix = fixes[folder.problem]
    if folder.problem == "missing":
        fix = f"# If it is a network mount, mount it first: {root}mount {path}\n{fix}"
    wrong = f"{folder.path} ({folder.key} in the inventory) {words[folder.problem]}"
    return Check(folder.key, "failed", folder.problem, wrong, fix, "Tasks on this node get this folder.")
