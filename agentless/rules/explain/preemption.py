"""Who is preempted for whom, in words, and why nobody is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentless.model.moment import format_moment
from agentless.model.nodes.cluster import Cluster, Node
from agentless.model.tasks.task import KeptPlace, Task
from agentless.model.units import format_duration
from agentless.rules.explain.blockers import without_tasks
from agentless.rules.explain.obstacles import obstacles
from agentless.rules.scheduling.promise import Promise
from agentless.rules.scheduling.shape import shape_of
from agentless.rules.tasks.preemptible import yields_of


def named(victims: Iterable[str], known: Mapping[str, Task]) -> str:
    """Tasks with their owners: `task V of bob and task W of eve`."""
    words = [f"task {each} of {known[each].owner}" if each in known else f"task {each}" for each in victims]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def needs_its_place(task: Task) -> str:
    """Why others give way for this task."""
    return f"task {task.id} of {task.owner} needs its place"


def awaited(place: KeptPlace, known: Mapping[str, Task]) -> str:
    """What a task waits for whose place is kept."""
    left = [each for each in place.victims if each in known]
    if not left:
        return f"its place on {place.node} is kept, and free any moment"
    verb = "gives" if len(left) == 1 else "give"
    return f"{named(left, known)} {verb} way for it on {place.node}"


def preempts(cluster: Cluster, task: Task, promise: Promise | None, known: Mapping[str, Task]) -> str:
    """Who is, or will be, preempted for a pending task, or why nobody is. Empty if there is nobody to preempt."""
    if place := task.kept_place:
        return f"preempts {named(place.victims, known)}"
    if promise and promise.victims:
        return f"preempts {named(promise.victims, known)}{_when(promise, known, cluster.at)}"
    lenders = [node for node in cluster.nodes.values() if any(each.yields for each in node.allocations)]
    if task.victims:
        return f"preempts nobody else: it has preempted {named(task.victims, known)}" if lenders else ""
    if not lenders or task.spec.terms.preemptible:
        return ""
    if task.spec.gang:
        return "preempts nobody: a gang waits until preemptible tasks end by themselves"
    shape = shape_of(task.spec, task.owner)
    lenders = [node for node in lenders if not shape.rules_out(node.config)]
    if not lenders:
        return "preempts nobody: no preemptible task runs on a node that it may use"
    if all(obstacles(_without_lent(node), task.spec, task.owner, cluster.at) for node in lenders):
        return "preempts nobody: it would not start without the preemptible tasks either"
    return "preempts nobody: that would not let it start sooner, because of the tasks ahead of it or those that end"


def may_be_preempted(task: Task, now: float) -> str:
    """What a preemptible task has to expect, or one that leaves its GPUs idle. Empty for others."""
    terms, after = task.spec.terms, "then it goes back to the queue"
    if not terms.preemptible:
        return ""
    if terms.on_preempt == "end":
        after = "then it ends"
    if not task.placement:
        return "it is preemptible: it comes after all others, and preempts nobody"
    found = yields_of(task)
    when = f", but not before {format_moment(found.since)} (--min-run)" if found and found.since > now else ""
    return f"it is preemptible: it gives way to any task that needs its place{when}; {after}"


def _when(promise: Promise, known: Mapping[str, Task], now: float) -> str:
    terms = [yields_of(known[each]) for each in promise.victims if each in known]
    wait = max((each.since for each in terms if each), default=now) - now
    return f" in {format_duration(wait)}, when --min-run is over" if wait >= 1 else ""


def _without_lent(node: Node) -> Node:
    return without_tasks(node, [each for each in node.allocations if each.yields])
