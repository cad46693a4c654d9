"""Who may enter a container by ssh."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.errors import Refused, UsageError
from agentless.model.containers.claim import DAMAGED
from agentless.model.tasks.public_key import parse_public_keys
from agentless.model.tasks.task import Task
from agentless.model.text import cut, printable

_LONGEST = 80
_ASK = "its owner lists yours with: agentless vps create … --public-key-file"


@dataclass(frozen=True, slots=True)
class Gate:
    """One of these keys has to be proved. `unlisted` is what others are told, `no_port` who asks for a mere port."""

    keys: frozenset[bytes]
    unlisted: str
    no_port: str


def gate_of(task: Task, *, ours: bool) -> Gate | None:
    """What is asked of somebody who wants to enter, None if nothing. Raises Refused if nobody may.

    `ours`: the task belongs to this controller, to which the kernel lets only its own user.
    """
    spec = task.spec
    title = f"VPS {cut(printable(spec.name or task.id), _LONGEST)}"
    if spec.no_ssh:
        raise Refused(
            f"{title} has no ssh and no forwarded ports (--no-ssh); for a shell, run: agentless shell {task.id}"
        )
    if not ours and spec.command == (DAMAGED,):
        raise Refused(f"the labels of {title.removeprefix('VPS ')} cannot be read, so it is not known who may enter it")
    if ours or spec.workload != "vps":
        return None
    title += f" of {cut(printable(task.owner), _LONGEST)}"
    try:
        keys = parse_public_keys(spec.public_keys)
    except UsageError:  # somebody else has written this label
        keys = ()
    if not keys:
        raise Refused(f"{title} admits nobody else by ssh; {_ASK}")
    return Gate(
        frozenset(key.blob for key in keys),
        f"{title} admits only listed keys, and yours is not listed; {_ASK}",
        f"{title} asks for your ssh key; use: ssh -N -L PORT:localhost:PORT {task.id}.agentless",
    )
