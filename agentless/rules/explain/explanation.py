"""What `explain` answers: the reasons, what would help, and when it starts."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.device import parts_of
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.text import enumerated
from agentless.model.units import format_duration, format_indices
from agentless.model.view import ExplainView, ObstacleView
from agentless.rules.explain.ahead import Ahead
from agentless.rules.explain.obstacles import MAX_NODES, Obstacle, against
from agentless.rules.explain.remedy import remedies
from agentless.rules.explain.repairs import repairs
from agentless.rules.scheduling.timeline.promise import Promise
from agentless.rules.views.publish import timestamp

MAX_ENDS = 3
"""The most tasks named that have to end first."""


def explanation(cluster: Cluster, task: Task, summary: str, promise: Promise | None, ahead: Ahead) -> ExplainView:
    """Why a task does not start: the obstacles on each node, and the changes that would help.

    With tasks ahead, remedies are only tried on the nodes with the fewest obstacles: each trial plans all these tasks.
    """
    found = against(cluster, task.spec, task.owner)
    obstacles: dict[str, Sequence[Obstacle]] = {
        name: each or ahead.obstacles(cluster.nodes[name], task, cluster.at) for name, each in found.items()
    }
    nearest = sorted(obstacles, key=lambda name: len(found[name]))[: MAX_NODES if ahead.tasks else None]
    start = promise.start if promise else None
    helps = {
        name: tuple(each.text for each in remedies(cluster, name, task, ahead) if each.helps(start))
        for name in obstacles
        if name in nearest
    }
    return ExplainView(
        task.id,
        summary,
        timestamp(start),
        tuple(ObstacleView(name, each.text, each.details) for name, several in obstacles.items() for each in several),
        {name: words for name, words in helps.items() if words},
    )


def when(
    promise: Promise | None,
    cluster: Cluster,
    spec: TaskSpec,
    *,
    held_back: bool = False,
    gang: Sequence[tuple[Promise, TaskSpec]] = (),
    why: str = " (an estimate: tasks ahead may take longer, or not give way)",
) -> str:
    """When the task starts, in words. `held_back`: `--max-parallel` of its batch is reached.

    `gang` are the promises of all members of its gang, with what they need; `why` says how an estimate was made.
    """
    if promise is None:
        return repairs(cluster, spec) or "start time not known yet"
    gang = gang or [(promise, spec)]
    node = enumerated(dict.fromkeys(each.node for each, _ in gang))
    if promise.start is None:
        whose = "a task of its batch ends" if held_back else _endless(gang, cluster)
        return f"starts on {node} when {whose} (no time limit, so no estimate)"
    left = promise.start - cluster.at
    if left < 1:
        words = f"may start any moment on {node}"
    elif promise.about:
        words = f"starts in about {format_duration(left)} on {node}"
    else:
        words = f"starts within {format_duration(left)} on {node}"
    return words + (why if promise.about else "")


def _endless(gang: Sequence[tuple[Promise, TaskSpec]], cluster: Cluster) -> str:
    """The tasks without a known end that promises wait for, in words, with `ends` or `end`."""
    whose, are_several = list[str](), False
    for promise, spec in gang:
        found, several = _in_the_way(promise, cluster, spec, alone=len(gang) == 1)
        whose += found
        are_several = are_several or several
    if not whose:
        whose = ["a task ahead of it in the queue"]
    if len(whose) > MAX_ENDS:
        whose[MAX_ENDS:] = [f"{len(whose) - MAX_ENDS} more"]
    return f"{' and '.join(whose)} {'end' if len(whose) > 1 or are_several else 'ends'}"


def _in_the_way(promise: Promise, cluster: Cluster, spec: TaskSpec, *, alone: bool) -> tuple[list[str], bool]:
    """What one promise waits for, and whether the words are plural. `alone`: it names its node in other words."""
    node = cluster.nodes.get(promise.node)
    gpus = [gpu for gpu in node.gpus if gpu.reading.uuid in promise.gpu_uuids] if node else []
    endless = [each for each in node.allocations if each.ends_at is None] if node else []
    foreign = [] if spec.share else sorted((gpu.reading.number for gpu in gpus if gpu.strangers), key=parts_of)
    held = {holder.task for gpu in gpus for holder in gpu.holders}
    whose = [str(each) for each in endless if each.task in held or each.exclusive or spec.needs.exclusive]
    on = "" if alone else f" of {promise.node}"
    if foreign:
        processes, number = ("process", "GPU") if len(foreign) == 1 else ("processes", "GPUs")
        whose.insert(0, f"the foreign {processes} on {number} {format_indices(foreign)}{on}")
    if whose:
        return whose, len(foreign) > 1
    rivals = [str(each) for each in endless if (spec.cores and each.cores) or (spec.memory and each.memory)]
    if len(rivals) > 1:
        return [f"enough of the {len(rivals)} tasks {'there' if alone else f'on {promise.node}'}"], True
    return rivals, False
