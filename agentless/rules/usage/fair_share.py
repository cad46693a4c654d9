"""Recent GPU-hours of each owner, for fair share.

Past use decays with a half-life; the expected use of live tasks counts in full. The queue (`rules/scheduling/order`)
sorts by the sum, and counts pending tasks in front by the same measure. So the start of a task changes the order of no
other task.

What preemptible tasks use is lent: nobody else wanted it. It counts for the order of preemptible tasks only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from agentless.model.containers.job_id import job_number
from agentless.model.tasks.task import Assigning, Blocked, Ended, Lost, Pending, Scheduled, Submitted, Task
from agentless.model.usage.run import Run
from agentless.model.view import ShareView

HALF_LIFE = 7 * 86400.0
"""The default half-life of past use, in seconds."""
HALF_LIVES = 5
"""Use older than so many half-lives is ignored: it counts less than 1/30."""
CPU_ONLY = 0.1
"""The weight of a task without a GPU, in GPUs."""
TURN = 3600.0
"""The expected length of a task without a time limit, in seconds."""
AHEAD = 86400.0
"""The most seconds of expected use that count. A time limit of a year must not put its owner last."""


@dataclass(frozen=True, slots=True)
class Use:
    """GPUs held by an owner between two times (Unix seconds), which may be in the future.

    `lent`: by a preemptible task.
    """

    owner: str
    gpus: float
    begin: float
    end: float
    lent: bool = False


def weight(gpus: int) -> float:
    """The weight of a task, in GPUs."""
    return float(gpus) if gpus else CPU_ONLY


def expected(task: Task) -> float:
    """The GPU-hours for which a pending task counts: its time limit, at most a day, or an hour, times its GPUs."""
    return weight(task.spec.needs.gpus) * min(task.spec.terms.time_limit or TURN, AHEAD) / 3600


def used_hours(uses: Iterable[Use], now: float, half_life: float) -> dict[str, float]:
    """GPU-hours by owner. Use before `now` is decayed; use after it counts in full."""
    found: dict[str, float] = {}
    rate = math.log(2) / half_life
    for use in uses:
        used = math.exp(-rate * max(0.0, now - use.end)) - math.exp(-rate * max(0.0, now - use.begin))
        coming = max(0.0, use.end - max(now, use.begin))
        found[use.owner] = found.get(use.owner, 0.0) + use.gpus * (used / rate + coming) / 3600
    return found


def decayed(hours: Mapping[str, float], seconds: float, half_life: float) -> dict[str, float]:
    """The GPU-hours after so many more seconds of decay."""
    factor = 0.5 ** (max(0.0, seconds) / half_life)
    return {owner: used * factor for owner, used in hours.items()}


def sum_by_owner(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The sum of both, by owner."""
    return {owner: one.get(owner, 0.0) + other.get(owner, 0.0) for owner in {**one, **other}}


def use_of(run: Run) -> Use:
    """The use of an ended run."""
    return Use(run.owner, weight(run.gpus), run.begin, run.end, run.lent)


def live_uses(tasks: Iterable[Task], now: float) -> list[Use]:
    """The use of live tasks, up to their expected end.

    Tasks of other controllers do not count: their owner is whatever their labels say. Nor do jobs of clusters, which
    take no GPU of the nodes.
    """
    return [
        _use(task, len(held.gpu_uuids), _since(task, now), now)
        for task in tasks
        if (held := task.placement) and task.live and not job_number(task.container)
    ]


def shares(
    before: Mapping[str, float],
    live: Iterable[Use],
    tasks: Iterable[Task],
    now: float,
    half_life: float,
    lent_before: Mapping[str, float] = MappingProxyType({}),
) -> list[ShareView]:
    """The recent use, live and pending tasks of each owner. The owner who comes first at equal priority is first.

    `lent_before` is what preemptible tasks have used, which `before` does not have.
    """
    live = list(live)
    until_now = [replace(use, end=min(use.end, now)) for use in live]
    used = sum_by_owner(before, used_hours([use for use in until_now if not use.lent], now, half_life))
    lent = sum_by_owner(lent_before, used_hours([use for use in until_now if use.lent], now, half_life))
    counted = sum_by_owner(before, used_hours([use for use in live if not use.lent], now, half_life))
    waiting = [task.owner for task in tasks if isinstance(task.status, Pending)]
    found = []
    for owner in {**counted, **lent, **dict.fromkeys(waiting)}:
        held = [use.gpus for use in live if use.owner == owner]
        hours, borrowed = used.get(owner, 0.0), lent.get(owner, 0.0)
        if held or owner in waiting or max(hours, borrowed) >= 0.005:
            gpus = int(sum(n for n in held if n >= 1))
            counts, waits = round(counted.get(owner, 0.0), 3), waiting.count(owner)
            found.append(ShareView(owner, round(hours, 3), len(held), gpus, waits, counts, round(borrowed, 3)))
    return sorted(found, key=lambda share: (share.counted, share.owner))


def _use(task: Task, gpus: int, begin: float, now: float) -> Use:
    terms, begin = task.spec.terms, min(begin, now)  # the clock of the node may be ahead
    end = max(now, min(begin + (terms.time_limit or TURN), now + AHEAD))
    return Use(task.owner, weight(gpus), begin, end, terms.preemptible)


def _since(task: Task, now: float) -> float:
    match task.status:
        case Blocked() | Scheduled() | Pending() | Submitted() | Ended():
            return now
        case Assigning(since=since) | Lost(started_at=None, since=since):
            return since
        case Lost(started_at=float() as began):
            return began
        case status:
            return status.started_at or now
