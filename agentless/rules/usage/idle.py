"""GPUs that their tasks leave idle, and what follows: a report, a warning, and a stop if the policy says so.

A GPU is idle while its utilization is 0 % in every sample. An unknown reading is not idle: the time begins anew after
an unreadable sample, a node that did not answer, a pause of the task, and a restart of the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from agentless.model.nodes.cluster import Observation
from agentless.model.tasks.task import Placement
from agentless.model.units import format_duration
from agentless.model.usage.idle import IdleGpus, IdlePolicy
from agentless.rules.nodes.survey import STALE_AFTER


@dataclass(frozen=True, slots=True)
class Still:
    """The GPUs of a node, by UUID, with the time since when they are at 0 %, and the time of the last sample."""

    since: Mapping[str, float] = field(default_factory=dict)
    sampled_at: float | None = None


@dataclass(frozen=True, slots=True)
class IdleReport:
    """The last report of a task: the GPUs, the policy, and the time."""

    gpus: frozenset[str]
    policy: IdlePolicy
    at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about a task now. `idle` is shown with the task; `report` is kept for the next call."""

    what: Literal["nothing", "report", "busy again", "stop"]
    idle: IdleGpus | None = None
    report: IdleReport | None = None


def follow(before: Still, seen: Observation) -> Still:
    """The idle GPUs of a node after one more observation."""
    sample, at = seen.sample, seen.sampled_at
    if seen.error is not None or sample is None or sample.error is not None or at is None:
        return Still()
    gap = before.sampled_at is None or not 0 <= at - before.sampled_at <= STALE_AFTER
    known = {} if gap else before.since
    return Still({gpu.uuid: known.get(gpu.uuid, at) for gpu in sample.gpus if gpu.utilization_pct == 0}, at)


def idle_since(still: Still, held: Placement, running_since: float, now: float) -> Mapping[str, float] | None:
    """The idle GPUs of a task, each with the time since when. None if nothing is known."""
    if still.sampled_at is None or now - still.sampled_at > STALE_AFTER:
        return None
    return {uuid: max(still.since[uuid], running_since) for uuid in held.gpu_uuids if uuid in still.since}


def judge(
    found: Mapping[str, float] | None, held: Placement, policy: IdlePolicy, report: IdleReport | None, now: float
) -> Verdict:
    """What follows from the idle GPUs of a task. It is stopped only if all are idle, some time after a warning."""
    if found is None:
        return Verdict("nothing")
    long = {uuid: since for uuid, since in found.items() if now - since >= policy.report}
    if not long:
        return Verdict("busy again" if report else "nothing")
    all_since = max(long.values()) if len(long) == len(held.gpu_uuids) else None
    if report is None or report.policy != policy or not report.gpus.issuperset(long):
        report, what = IdleReport(frozenset(long), policy, now), "report"
    else:
        report, what = replace(report, gpus=report.gpus.intersection(long)), "nothing"
    stop_at, lent_at = (_due(all_since, report, after) for after in (policy.stop, policy.preempt))
    idle = IdleGpus(long, all_since, stop_at, lent_at)
    if stop_at is not None and now >= stop_at:
        return Verdict("stop", idle, report)
    return Verdict("report" if what == "report" else "nothing", idle, report)


def _due(all_since: float | None, report: IdleReport, after: float | None) -> float | None:
    """When something follows that the policy has after so many seconds. The report was as long before as it says.

    Even if the policy is new.
    """
    if all_since is None or after is None:
        return None
    return max(all_since + after, report.at + after - report.policy.report)


def words(idle: IdleGpus, held: Placement, now: float) -> str:
    """`idle for 45m 0s, stops in 1h 15m`; of some of several GPUs `GPU 1 idle for 45m 0s`."""
    if idle.all_since is not None:
        text = f"idle for {format_duration(now - idle.all_since)}"
        if idle.lent_at is not None:
            left = idle.lent_at - now
            text += f", may be preempted in {format_duration(left)}" if left > 0 else ", may be preempted"
        return text if idle.stop_at is None else f"{text}, stops in {format_duration(idle.stop_at - now)}"
    gpus = [pair for pair in zip(held.gpus, held.gpu_uuids, strict=False) if pair[1] in idle.since]
    return "; ".join(f"GPU {index} idle for {format_duration(now - idle.since[uuid])}" for index, uuid in gpus)


def lent_by(idle: Mapping[str, IdleGpus], now: float) -> dict[str, float]:
    """The tasks that give way now because their GPUs are idle, with the time from which on they do."""
    return {task: each.lent_at for task, each in idle.items() if each.lent_at is not None and each.lent_at <= now}


def farewell(idle: IdleGpus, now: float) -> str:
    """The cause of the stop, in words."""
    return f"its GPUs were idle for {format_duration(now - (idle.all_since or now))} (idle: stop)"
