"""Who is preempted for whom, in words, and why nobody is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agentless.model.moment import format_moment
from agentless.model.nodes.cluster import Cluster, Node
from agentless.model.tasks.task import KeptPlace, Pending, Task
from agentless.model.text import enumerated, printable
from agentless.model.units import format_duration
from agentless.rules.explain.blockers import without_tasks
from agentless.rules.explain.obstacles import obstacles
from agentless.rules.scheduling.shape import shape_of
from agentless.rules.scheduling.timeline.promise import Promise
from agentless.rules.tasks.gangs.gangs import gang_key
from agentless.rules.tasks.preemptible import yields_of


def named(victims: Iterable[str], known: Mapping[str, Task]) -> str:
    """Tasks with names and owners: `task V (train) of bob and task W of eve`. A gang is one task."""
    return enumerated(dict.fromkeys(_named(known[each]) if each in known else f"task {each}" for each in victims))


def needs_its_place(task: Task) -> str:
    """Why others give way for this task."""
    return f"{_named(task)} needs its place"


def ended_before(asker: Task, victim: Task) -> str:
    """What becomes of a task that is stopping for one that has ended before it began."""
    then = "ends" if victim.spec.terms.on_preempt == "end" else "goes back to the queue"
    return f"{_named(asker)} ended before it started; its stop was already sent, so this one still stops, and {then}"


def _named(task: Task) -> str:
    name = f" ({printable(task.spec.name)})" if task.spec.name else ""
    return f"task {gang_key(task) or task.id}{name} of {task.owner}"


def preempting(place: KeptPlace, known: Mapping[str, Task]) -> str:
    """Why a place is kept: for its victims, or for a gang that has victims on other nodes."""
    return f"preempts {named(place.victims, known)}" if place.victims else "its gang preempts others"


def awaited(places: Sequence[KeptPlace], known: Mapping[str, Task]) -> str:
    """What a task waits for whose place is kept, or a gang."""
    going = [each for each in places if any(victim in known for victim in each.victims)]
    nodes, verb = enumerated(each.node for each in going or places), "is" if len(places) == 1 else "are"
    if not going:
        return f"its place{'s' * (len(places) > 1)} on {nodes} {verb} kept, and free any moment"
    left = dict.fromkeys(victim for each in going for victim in each.victims if victim in known)
    is_one = len({gang_key(known[each]) or each for each in left}) == 1
    return f"{named(left, known)} {'gives' if is_one else 'give'} way for it on {nodes}"


def as_one(gang: Sequence[Task], promises: Mapping[str, Promise | None]) -> tuple[Task, Promise | None]:
    """A task that stands for all of a gang, and its promise: with the victims of all members."""
    task, promise = gang[0], promises.get(gang[0].id)
    if promise:
        told = [its for each in gang if (its := promises.get(each.id))]
        promise = replace(promise, victims=_joined(each.victims for each in told))
    if (place := task.kept_place) and isinstance(task.status, Pending):
        whole = replace(place, victims=_joined(kept.victims for each in gang if (kept := each.kept_place)))
        task = replace(task, status=replace(task.status, place=whole))
    return replace(task, victims=_joined(each.victims for each in gang)), promise


def _joined(several: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for victims in several for each in victims))


def preempts(cluster: Cluster, task: Task, promise: Promise | None, known: Mapping[str, Task]) -> str:
    """Who is, or will be, preempted for a pending task, or why nobody is. Empty if there is nobody to preempt.

    Of a gang, task and promise are those of `as_one`.
    """
    if place := task.kept_place:
        return f"preempts {named(place.victims, known)}"
    if promise and promise.victims:
        return f"preempts {named(promise.victims, known)}{_when(promise, known, cluster.at)}"
    lenders = [node for node in cluster.nodes.values() if any(each.yields for each in node.allocations)]
    if task.victims:
        return f"preempts nobody else: it has preempted {named(task.victims, known)}" if lenders else ""
    if not lenders or task.spec.terms.preemptible:
        return ""
    shape = shape_of(task.spec, task.owner)
    lenders = [node for node in lenders if not shape.rules_out(node.config)]
    if not lenders:
        return "preempts nobody: no preemptible task runs on a node that it may use"
    nodes = cluster.nodes.values() if task.spec.gang else lenders
    fit = [node for node in nodes if not obstacles(_without_lent(node), task.spec, task.owner, cluster.at)]
    if len(fit) < (task.spec.gang.alike if task.spec.gang else 1):
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
