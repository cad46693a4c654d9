"""What `explain` answers: the reasons, what would help, and when it starts."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.model.cluster import Cluster
from agentless.model.task import Task
from agentless.model.units import format_duration
from agentless.model.view import ExplainView, ObstacleView
from agentless.rules.ahead import Ahead
from agentless.rules.explain import MAX_NODES, Obstacle, against
from agentless.rules.plan import Promise
from agentless.rules.publish import timestamp
from agentless.rules.remedy import remedies


def explanation(cluster: Cluster, task: Task, summary: str, promise: Promise | None, ahead: Ahead) -> ExplainView:
    """Why a task does not start, node by node: of each what stands in the way there, and what would help.

    Behind others, help is sought on the nodes where the least is in the way: each try is a look at all of them.
    """
    found = against(cluster, task.spec, task.owner)
    told: dict[str, Sequence[Obstacle]] = {
        name: each or ahead.obstacles(cluster.nodes[name], task, cluster.at) for name, each in found.items()
    }
    nearest = sorted(told, key=lambda name: len(found[name]))[: MAX_NODES if ahead.tasks else None]
    helps = {
        name: tuple(each.text for each in remedies(cluster, name, task, ahead)) for name in told if name in nearest
    }
    return ExplainView(
        task.id,
        summary,
        timestamp(promise.start) if promise else None,
        tuple(ObstacleView(name, each.text, each.details) for name, several in told.items() for each in several),
        {name: words for name, words in helps.items() if words},
    )


def when(promise: Promise | None, cluster: Cluster) -> str:
    """When it starts, in words."""
    if promise is None:
        return "when it starts is not known yet"
    if promise.start is None:
        node = cluster.nodes.get(promise.node)
        held = any(each.ends_at is None for each in node.allocations) if node else False
        whose = "something" if held else "a task before it"
        return f"it starts on {promise.node} when {whose} ends there that has no time limit"
    left = promise.start - cluster.at
    if left < 1:
        words = f"it may start any moment, on {promise.node}"
    elif promise.about:
        words = f"it starts in about {format_duration(left)}, on {promise.node}"
    else:
        words = f"it starts in {format_duration(left)} at the latest, on {promise.node}"
    return words + (", as far as earlier tasks tell" if promise.about else "")
