"""What is kept of ended tasks: which logs to fetch, which containers to remove, what to keep of a long log."""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentless.model.containers.claim import named_task
from agentless.model.containers.container import Container
from agentless.model.tasks.retention import Keep
from agentless.model.tasks.task import Ended, Task, container_name
from agentless.model.units import format_size, thousands
from agentless.rules.tasks.reconcile import REAP_AFTER, is_forsaken

AT_ONCE = 4
"""The most tasks of a node whose outputs are fetched at a time."""
LARGE_AT_ONCE = 2
"""The most of these that may have large outputs, so that small ones never wait for them."""
LARGE = 64 << 20
"""Bytes from which on the outputs of a task count as large."""
ENDED = 2000
"""The most ended containers that stay on a node. With more, an engine takes seconds to list them."""
_NAMES = {1: "standard output", 2: "standard error"}


@dataclass(frozen=True, slots=True)
class Chores:
    """What to do on a node: logs to fetch, then containers to remove, oldest end first.

    `reap` are ids of containers that were never started and would claim their GPUs for ever. `due` is when (Unix
    seconds) the next container expires. `bring` are tasks whose outputs are to be fetched.
    """

    fetch: tuple[Task, ...] = ()
    remove: tuple[Task, ...] = ()
    reap: tuple[str, ...] = ()
    due: float = math.inf
    bring: tuple[Task, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.fetch or self.remove or self.reap or self.bring)


def chores(
    containers: Iterable[Container],
    live: abc.Container[str],
    ended: Mapping[str, Task],
    kept: abc.Container[str],
    now: float,
    keep: Keep,
    waited: abc.Container[str] = (),
) -> Chores:
    """What to do for the containers of a node.

    `live` are the ids of live tasks on it, `ended` its ended tasks by id, `kept` the ids of tasks whose log is stored,
    `waited` of those whose outputs are not fetched yet. A container that was started again is not removed. Of unknown
    containers, only those with the name of a launch that were never started are removed: a container made from an image
    with our labels belongs to its user.
    """
    containers = tuple(containers)
    reap, due = _never_started(containers, live, now)
    fetch, bring = list[tuple[float, Task]](), list[tuple[float, Task]]()
    remove, stay = list[tuple[float, Task]](), list[tuple[float, Task]]()
    for container in containers:
        task = ended.get(named_task(container) or "") if container.over else None
        if task is None or task.container != container.id or not isinstance(task.status, Ended):
            continue
        ended_at, run = task.status.ended_at, task.status.run
        if task.id in waited:
            bring.append((ended_at, task))
        if task.id not in kept:
            fetch.append((ended_at, task))
        elif task.id in waited:
            continue
        elif task.spec.traits.expires and run == container.started_at:
            if now - ended_at > keep.containers:
                remove.append((ended_at, task))
            else:
                stay.append((ended_at, task))
    stay.sort(key=lambda one: one[0])
    remove += stay[: max(0, len(stay) - ENDED)]
    due = min(due, *(ended_at + keep.containers for ended_at, _ in stay[-ENDED:]), math.inf)
    return Chores(_in_order(fetch), _in_order(remove), reap, due, _in_order(bring))


def _never_started(
    containers: Iterable[Container], live: abc.Container[str], now: float
) -> tuple[tuple[str, ...], float]:
    """The containers that a launch has left unstarted for too long, and when the next one will be."""
    reap, due = list[str](), math.inf
    for container in containers:
        named = named_task(container) if container.state == "created" else None
        if named is None or named in live:
            continue
        if not container.signed and container.name != container_name(named):
            continue
        if is_forsaken(container, now):
            reap.append(container.id)
        else:
            due = min(due, (container.here(container.created_at) or now) + REAP_AFTER)
    return tuple(reap), due


def fetched_now(waiting: Iterable[Task], fetching: abc.Collection[str], large: abc.Container[str]) -> tuple[Task, ...]:
    """The tasks whose outputs are fetched next, beside those in `fetching`. `large` are known to have large outputs.

    The size is only known during the transfer: each task counts as small until `LARGE` bytes were received.
    """
    free = AT_ONCE - len(fetching)
    free_for_large = LARGE_AT_ONCE - sum(task in large for task in fetching)
    others = [task for task in waiting if task.id not in fetching]
    chosen = [task for task in others if task.id not in large][: max(0, free)]
    much = [task for task in others if task.id in large]
    return (*chosen, *much[: max(0, min(free - len(chosen), free_for_large))])


def _in_order(dated: list[tuple[float, Task]]) -> tuple[Task, ...]:
    return tuple(task for _, task in sorted(dated, key=lambda one: one[0]))


def split_tail(left: Mapping[int, int], limit: int) -> dict[int, int]:
    """How many bytes to take of the end of each stream (1, 2) when `left` has more than `limit`.

    Each stream gets half. What one does not need goes to the other.
    """
    out = min(left[1], max(limit // 2, limit - left[2]))
    return {1: out, 2: min(left[2], limit - out)}


def cut_note(left_out: Mapping[int, int], cap: int) -> str:
    """The note within a log that was cut to `cap` bytes; `left_out` are the missing bytes by stream."""
    counts = " and ".join(
        f"{thousands(count, 'byte')} of {_NAMES[stream]}" for stream, count in left_out.items() if count
    )
    return f"{counts} omitted from the middle of this log; its limit is {format_size(cap)} (keep: log in the inventory)"
