"""Checks of the machine itself: PATH, clock, memory, lock, control groups, folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentless.model.nodes.check import Check, Verdict, ok
from agentless.model.nodes.checkup import Folder, Machine, Problem
from agentless.model.nodes.node import NodeConfig
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
_WORDS: Mapping[Problem, str] = {
    "missing": "does not exist",
    "not writable": "is not writable for the login",
    "full": "is full",
    "hangs": "does not answer, as a network mount whose server is away",
}
_MATTERS: Mapping[str, tuple[Verdict, str]] = {
    "local_temp": ("failed", "Tasks on this node get this folder."),
    "shared_dir": ("failed", "Every container on this node gets this folder as /shared, so none starts."),
    "mounts": ("failed", "Every container on this node gets these mounts, so none starts."),
    "cuda": ("warning", "Tasks without a container are started with this CUDA."),
}
"""By the key in the inventory: whether a task without that can run, and why it matters."""
_STARTS: tuple[Verdict, str] = (
    "warning",
    "Tasks start, but what this login writes there fails, such as images that nodes share.",
)
"""Of a shared folder that is there: the engine mounts it, whoever may write to it."""
KEYS = tuple(_MATTERS)
"""The checks of what the inventory names."""


def checks(machine: Machine) -> Iterator[Check]:
    """All of them."""
    yield _path(machine)
    yield _clock(machine)
    yield _memory(machine)
    yield _flock(machine)
    yield _cgroups(machine)
    for key in dict.fromkeys(folder.key for folder in machine.folders):
        yield _folders(machine, key, [folder for folder in machine.folders if folder.key == key])


def named_folders(node: NodeConfig) -> tuple[Folder, ...]:
    """What the inventory names of a node and tasks need."""
    found = [Folder(key, path) for key in ("local_temp", "shared_dir") if (path := getattr(node, key))]
    found += [Folder("mounts", mount.source, writable=False) for mount in node.mounts]
    if node.cuda:
        found.append(Folder("cuda", f"{node.cuda}/.", writable=False))  # a file is none
    return tuple(found)


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
    fix = "ps -eo pid,user,rss,args --sort=-rss | head  # shows what uses it"
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


def _folders(machine: Machine, key: str, folders: Sequence[Folder]) -> Check:
    """The check of those that the inventory names under one key."""
    bad = [folder for folder in folders if folder.problem]
    if not bad:
        word = "writable" if folders[0].writable else "there"
        return ok(key, f"{', '.join(_path_of(each) for each in folders)} {'is' if len(folders) == 1 else 'are'} {word}")
    words = [f"{_path_of(folder)} {_WORDS[folder.problem]}" for folder in bad]
    wrong = f"{', '.join(words)} ({key} in the inventory)"
    fix = "\n".join(dict.fromkeys(_fix(machine, folder) for folder in bad))
    verdict, why = _MATTERS[key]
    if key == "shared_dir" and bad[0].problem in ("not writable", "full"):
        verdict, why = _STARTS
    return Check(key, verdict, ", ".join(words), wrong, fix, why)


def _fix(machine: Machine, folder: Folder) -> str:
    path, root = shell_word(_path_of(folder)), remedies.sudo(machine.system)
    user = shell_word(machine.user)
    if folder.problem == "full":
        return f"du -xh --max-depth=1 {path} | sort -h | tail  # shows what fills it"
    if folder.problem == "hangs":
        return f"{root}umount --force --lazy {path}\n{root}mount {path}"
    if folder.problem == "not writable":
        return f"{root}chown {user} {path}\n{root}chmod u+rwx {path}"
    if folder.key == "cuda":
        return "ls -d /usr/local/cuda*  # shows what is there\n# Correct 'cuda:' in the inventory, or remove it."
    if folder.key == "local_temp":
        return (
            f"# If it is a mount, mount it first: {root}mount {path}\n{root}mkdir -p {path}\n{root}chown {user} {path}"
        )
    owner = f" && {root}chown {user} {path}" if folder.writable else ""
    return (
        f"# Mount it:\n# {root}mount {path}\n# Or let tasks start with an empty folder:\n# {root}mkdir -p {path}{owner}"
    )


def _path_of(folder: Folder) -> str:
    return folder.path.removesuffix("/.")
