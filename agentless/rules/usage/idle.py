"""Which GPUs their tasks leave idle, and what follows: a report, a warning, in the end a stop where the policy says so.

Idle is a GPU whose load is 0 % in every sample. What is not known is not idle: the time begins anew after a sample that
could not be read, a node that did not answer, a pause of the task, and a restart of the controller.
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
    """The GPUs of a node, by UUID, that were at 0 % in every sample since then, and when the last sample was taken."""

    since: Mapping[str, float] = field(default_factory=dict)
    sampled_at: float | None = None


@dataclass(frozen=True, slots=True)
class IdleReport:
    """What was reported of a task last: which GPUs, under which policy, and when."""

    gpus: frozenset[str]
    policy: IdlePolicy
    at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about a task now; `idle` is what is to be shown of it, `report` what is to be remembered."""

    what: Literal["nothing", "report", "busy again", "stop"]
    idle: IdleGpus | None = None
    report: IdleReport | None = None


def follow(before: Still, seen: Observation) -> Still:
    """What is known of a node's GPUs after one more look at it."""
    sample, at = seen.sample, seen.sampled_at
    if seen.error is not None or sample is None or sample.error is not None or at is None:
        return Still()
    gap = before.sampled_at is None or not 0 <= at - before.sampled_at <= STALE_AFTER
    known = {} if gap else before.since
    return Still({gpu.uuid: known.get(gpu.uuid, at) for gpu in sample.gpus if gpu.utilization_pct == 0}, at)


def idle_since(still: Still, held: Placement, running_since: float, now: float) -> Mapping[str, float] | None:
    """The idle GPUs of a task that has run since then, each with the time since when; None: nothing is known."""
    if still.sampled_at is None or now - still.sampled_at > STALE_AFTER:
        return None
    return {uuid: max(still.since[uuid], running_since) for uuid in held.gpu_uuids if uuid in still.since}


def judge(
    found: Mapping[str, float] | None, held: Placement, policy: IdlePolicy, report: IdleReport | None, now: float
) -> Verdict:
    """What follows from the idle GPUs of a task. It is stopped only when all are, and some time after a warning."""
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
    stop_at = None
    if all_since is not None and policy.stop is not None:
        # The warning comes as long before the stop as the policy says, also when the policy is new.
        stop_at = max(all_since + policy.stop, report.at + policy.stop - policy.report)
    if stop_at is not None and now >= stop_at:
        return Verdict("stop", IdleGpus(long, all_since, stop_at), report)
    return Verdict("report" if what == "report" else "nothing", IdleGpus(long, all_since, stop_at), report)


def words(idle: IdleGpus, held: Placement, now: float) -> str:
    """`idle for 45m 0s, to be stopped in 1h 15m`; of some of several GPUs `GPU 1 idle for 45m 0s`."""
    if idle.all_since is not None:
        text = f"idle for {format_duration(now - idle.all_since)}"
        return text if idle.stop_at is None else f"{text}, to be stopped in {format_duration(idle.stop_at - now)}"
    gpus = [pair for pair in zip(held.gpus, held.gpu_uuids, strict=False) if pair[1] in idle.since]
    return "; ".join(f"GPU {index} idle for {format_duration(now - idle.since[uuid])}" for index, uuid in gpus)


def farewell(idle: IdleGpus, now: float) -> str:
    """Why a task was stopped."""
    return f"its GPUs were idle for {format_duration(now - (idle.all_since or now))} (idle: stop)"
