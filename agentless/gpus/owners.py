"""Who runs the processes on GPUs.

`process-owners.sh.j2` prints for any vendor:

@owner 4711 1000 alice         who runs that process,
@command 4711 python train.py  its command line
@cgroup 4711 0::/system.slice/docker-….scope      and each of its control groups
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from agentless.model.text import cut, printable

_UNIT = re.compile(r"/(agentless-[0-9a-zA-Z-]+\.service)(?:/|$)")
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_NAME = 64
"""Characters of a user's name that are shown."""


@dataclass(slots=True)
class Owner:
    """What is known of a process. `container` is the id of the container it runs in, or a service of ours."""

    user: str | None = None
    command: str | None = None
    container: str | None = None


def owners(lines: Iterable[str]) -> dict[str, Owner]:
    """By PID, who runs each process. Other lines are skipped."""
    found: dict[str, Owner] = {}
    for line in lines:
        kind, pid, text = (*line.split(" ", 2), "", "")[:3]
        if kind not in ("@owner", "@command", "@cgroup"):
            continue
        owner = found.setdefault(pid, Owner())
        if kind == "@owner":
            uid, _, user = text.partition(" ")
            owner.user = cut(printable(uid if user in ("", "UNKNOWN") else user).strip(), _NAME) or None
        elif kind == "@command":
            owner.command = printable(cut(text, 200)).strip() or None
        else:
            owner.container = container_of(text) or owner.container
    return found


@lru_cache(maxsize=4096)
def container_of(group: str) -> str | None:
    """The container of a control group, in the spelling of any engine; the outermost one, if one runs in another.

    A service of ours is as good as one: nobody but root, and the user whose processes they are, can put any there.
    """
    if unit := _UNIT.search(group):
        return unit[1]
    match = _CONTAINER.search(group)
    return match[0] if match else None
