"""Who has used how much lately: GPU-hours that count less the longer they are ago.

What an owner has used decays with a half-life; what its tasks will still use is expected and counts in full. The order
of the queue (`rules/scheduling/order`) goes by the sum, so that whoever has used little comes first, and by the same
measure for each task that is in front: a start moves hours from one to the other, and changes nothing for the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agentless.model.tasks.task import Assigning, Ended, Lost, Pending, Scheduled, Task
from agentless.model.usage.run import Run
from agentless.model.view import ShareView

HALF_LIFE = 7 * 86400.0
"""Seconds after which what was used counts half, unless the inventory says otherwise."""
HALF_LIVES = 5
"""So many half-lives back is looked: what is older counts less than a thirtieth."""
CPU_ONLY = 0.1
"""What a task without a GPU counts as, in GPUs, whatever its cores."""
TURN = 3600.0
"""Seconds that a task is expected to run of which nobody has said how long."""
AHEAD = 86400.0
"""Seconds of what is expected that count at most: a service with a limit of a year must not put its owner last."""


@dataclass(frozen=True, slots=True)
class Use:
    """So many GPUs of an owner from one time to another (Unix seconds), which may be in the future."""

    owner: str
    gpus: float
    begin: float
    end: float


def weight(gpus: int) -> float:
    """What a task with so many GPUs counts as, in GPUs."""
    return float(gpus) if gpus else CPU_ONLY


def expected(task: Task) -> float:
    """The GPU-hours that a task that waits counts as: its time limit, a day at most, else an hour, times its GPUs."""
    return weight(task.spec.needs.gpus) * min(task.spec.terms.time_limit or TURN, AHEAD) / 3600


def used_hours(uses: Iterable[Use], now: float, half_life: float) -> dict[str, float]:
    """GPU-hours by owner: what was used before `now` has decayed since, what is to come counts in full."""
    found: dict[str, float] = {}
    rate = math.log(2) / half_life
    for use in uses:
        used = math.exp(-rate * max(0.0, now - use.end)) - math.exp(-rate * max(0.0, now - use.begin))
        coming = max(0.0, use.end - max(now, use.begin))
        found[use.owner] = found.get(use.owner, 0.0) + use.gpus * (used / rate + coming) / 3600
    return found


def decayed(hours: Mapping[str, float], seconds: float, half_life: float) -> dict[str, float]:
    """What these GPU-hours count so many seconds later."""
    factor = 0.5 ** (max(0.0, seconds) / half_life)
    return {owner: used * factor for owner, used in hours.items()}


def sum_by_owner(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The sums by owner."""
    return {owner: one.get(owner, 0.0) + other.get(owner, 0.0) for owner in {**one, **other}}


def use_of(run: Run) -> Use:
    """What was used by a run that is over."""
    return Use(run.owner, weight(run.gpus), run.begin, run.end)


def live_uses(tasks: Iterable[Task], now: float) -> list[Use]:
    """What these tasks hold now, to the end that is expected.

    What else runs on the nodes counts for nobody: its owner is a word that whoever started it has chosen.
    """
    return [
        _use(task.owner, len(held.gpu_uuids), _since(task, now), task.spec.terms.time_limit, now)
        for task in tasks
        if (held := task.placement) and task.live
    ]


def shares(
    before: Mapping[str, float], live: Iterable[Use], tasks: Iterable[Task], now: float, half_life: float
) -> list[ShareView]:
    """What each owner has used lately, holds and waits for; those first that come first at equal priority."""
    live = list(live)
    until_now = [replace(use, end=min(use.end, now)) for use in live]
    used = sum_by_owner(before, used_hours(until_now, now, half_life))
    counted = sum_by_owner(before, used_hours(live, now, half_life))
    waiting = [task.owner for task in tasks if isinstance(task.status, Pending)]
    found = []
    for owner in {**counted, **dict.fromkeys(waiting)}:
        held = [use.gpus for use in live if use.owner == owner]
        hours = used.get(owner, 0.0)
        if held or owner in waiting or hours >= 0.005:
            gpus = int(sum(n for n in held if n >= 1))
            counts = round(counted.get(owner, 0.0), 3)
            found.append(ShareView(owner, round(hours, 3), len(held), gpus, waiting.count(owner), counts))
    return sorted(found, key=lambda share: (share.counted, share.owner))


def _use(owner: str, gpus: int, begin: float, limit: float | None, now: float) -> Use:
    begin = min(begin, now)  # another node's clock may be ahead
    return Use(owner, weight(gpus), begin, max(now, min(begin + (limit or TURN), now + AHEAD)))


def _since(task: Task, now: float) -> float:
    match task.status:
        case Scheduled() | Pending() | Ended():
            return now
        case Assigning(since=since) | Lost(started_at=None, since=since):
            return since
        case Lost(started_at=float() as began):
            return began
        case status:
            return status.started_at or now
