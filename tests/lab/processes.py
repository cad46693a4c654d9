"""Which processes belong to a lab: those with a mark in their environment.

A process that has left its parent (setsid, a killed sshd) keeps nothing else that tells where it came from.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MARK = "AGENTLESS_LAB"  # = the lab's folder: everything that the lab or an `agentless` of its tests starts
SESSION_MARK = "AGENTLESS_LAB_SESSION"  # = the node's folder: everything that came in over SSH


@dataclass(frozen=True)
class Process:
    """One living process, as /proc shows it; `name` is the kernel's, cut to 15 characters."""

    pid: int
    parent: int
    name: str
    command: str
    environ: frozenset[str]


def processes() -> dict[int, Process]:
    """Every process of this machine by PID, without zombies: they have ended and wait to be collected."""
    found = (_read(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return {process.pid: process for process in found if process}


def descendants(roots: Iterable[int], among: Mapping[int, Process]) -> set[int]:
    """The PIDs below `roots`, without the roots."""
    below: set[int] = set()
    level = set(roots)
    while level:
        level = {p.pid for p in among.values() if p.parent in level} - below
        below |= level
    return below


def marked(mark: str, value: Path, among: Mapping[int, Process]) -> set[int]:
    """The PIDs whose environment says `mark=value`."""
    return {p.pid for p in among.values() if f"{mark}={value}" in p.environ}


def kill(pids: Iterable[int], signal_number: int = signal.SIGKILL) -> None:
    """Signal each; one that has just ended is as good as killed."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def _read(pid: int) -> Process | None:
    folder = Path("/proc", str(pid))
    try:
        stat = folder.joinpath("stat").read_text(errors="replace")
        command = folder.joinpath("cmdline").read_bytes()
        environ = folder.joinpath("environ").read_bytes()
    except OSError:
        return None
    state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
    if state in "ZX":
        return None
    return Process(
        pid=pid,
        parent=int(parent),
        name=stat[stat.index("(") + 1 : stat.rindex(")")],
        command=command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace"),
        environ=frozenset(environ.decode(errors="replace").split("\0")),
    )
