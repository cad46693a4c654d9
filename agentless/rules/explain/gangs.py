"""Why a gang does not start: how many nodes it could have now, what is wrong with the others, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agentless.model.nodes.cluster import Cluster, Node
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.units import counted
from agentless.model.view import ExplainView, ObstacleView
from agentless.rules.explain.ahead import Ahead
from agentless.rules.explain.blockers import Blocker, fewest, without
from agentless.rules.explain.obstacles import MAX_BRIEF, MAX_NODES, Obstacle, against, asked, obstacles
from agentless.rules.explain.remedy import MOST_AHEAD, changes
from agentless.rules.scheduling.shape import shape_of
from agentless.rules.scheduling.timeline.promise import Promise
from agentless.rules.tasks.gangs.gangs import would_be_members
from agentless.rules.views.publish import timestamp

MOST_TRIALS = 60
"""The most changes that are tried: each trial plans all tasks ahead."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Members that need the same, and the obstacles for them by node; none where one of them could start now."""

    members: Sequence[Task]
    obstacles: Mapping[str, Sequence[Obstacle]]

    @property
    def spec(self) -> TaskSpec:
        """What each of them needs."""
        return self.members[0].spec

    @property
    def ready(self) -> list[str]:
        """The nodes where one of them could start now."""
        return [name for name, each in self.obstacles.items() if not each]

    @property
    def blocked(self) -> list[str]:
        """The others, those with the fewest obstacles first."""
        return sorted(filter(self.obstacles.get, self.obstacles), key=lambda name: len(self.obstacles[name]))

    @property
    def missing(self) -> int:
        """How many more nodes they need than there are now."""
        return max(0, len(self.members) - len(self.ready))

    @property
    def words(self) -> str:
        """How many nodes they need, and how many there are; empty if there are enough."""
        if not self.missing:
            return ""
        able = [name for name, each in self.obstacles.items() if not any(one.lasting for one in each)]
        wanted = len(self.members)
        needs = f"needs {wanted} nodes for {asked(self.spec)}" if wanted > 1 else f"needs a node for {asked(self.spec)}"
        if not able:
            return f"{needs}; no node can ever run it"
        ever = f"only {counted(len(able), 'node')} can ever run it, and " * (len(able) < wanted)
        named = f" ({', '.join(self.ready)})" if 0 < len(self.ready) <= MAX_BRIEF else ""
        return f"{needs}; {ever}{len(self.ready) or 'none'} can start it now{named}"


def kinds(cluster: Cluster, members: Sequence[Task], ahead: Ahead) -> list[Kind]:
    """The members by what they need."""
    alike: list[list[Task]] = []
    for task in members:
        mine = _needs(task.spec)
        found = next((each for each in alike if _needs(each[0].spec) == mine), None)
        found.append(task) if found else alike.append([task])
    # One that is over soon may start on what is promised to others.
    fits = len(ahead.tasks) <= MOST_AHEAD and ahead.leave(cluster, *members)
    return [Kind(each, _obstacles(cluster, each[0], None if fits else ahead)) for each in alike]


def _needs(spec: TaskSpec) -> tuple[object, ...]:
    return shape_of(spec), spec.cores, spec.memory


def _obstacles(cluster: Cluster, task: Task, ahead: Ahead | None) -> Mapping[str, Sequence[Obstacle]]:
    found = against(cluster, task.spec, task.owner)
    if ahead is None:
        return found
    return {name: each or ahead.obstacles(cluster.nodes[name], task, cluster.at) for name, each in found.items()}


def explanation_of_gang(
    cluster: Cluster, members: Sequence[Task], summary: str, promise: Promise | None, ahead: Ahead
) -> ExplainView:
    """Why a gang does not start: the obstacles on each node, and the changes that would let all of it start."""
    several = kinds(cluster, members, ahead)
    short = [each for each in several if each.missing] or several
    seen = dict.fromkeys((name, one) for each in short for name, found in each.obstacles.items() for one in found)
    trial = _Trial(cluster, members, ahead)
    helps = () if len(ahead.tasks) > MOST_AHEAD or trial.succeeds(cluster, members) else tuple(_helps(trial, several))
    return ExplainView(
        members[0].id,
        "; ".join(filter(None, (summary, *(each.words for each in several)))),
        timestamp(promise.start) if promise else None,
        tuple(ObstacleView(name, one.text, one.details) for name, one in seen),
        {},
        helps=helps,
    )


# ---------------------------------------------------------------------- inside


@dataclass(slots=True)
class _Trial:
    """A gang that is to start, and the tasks ahead of it."""

    cluster: Cluster
    members: Sequence[Task]
    ahead: Ahead
    left: int = MOST_TRIALS

    def succeeds(self, cluster: Cluster, members: Sequence[Task]) -> bool:
        """Whether all of these members start on these nodes."""
        for task in {_needs(each.spec): each for each in members}.values():
            alike = sum(_needs(each.spec) == _needs(task.spec) for each in members)
            nodes = cluster.nodes.values()
            if sum(not obstacles(node, task.spec, task.owner, cluster.at) for node in nodes) < alike:
                return False
        self.left -= 1
        return self.left >= 0 and self.ahead.leave(cluster, *members)


def _helps(trial: _Trial, several: Sequence[Kind]) -> Iterator[str]:
    """The changes that let the whole gang start now, in words; each was tried."""
    if len(several) == 1 and trial.members[0].spec.gang:
        yield from _fewer(trial, several[0])
    yield from _options(trial, several)
    if blockers := _in_the_way(trial, several):
        yield f"when {' and '.join(each.words for each in blockers)}"


def _fewer(trial: _Trial, kind: Kind) -> Iterator[str]:
    """Fewer nodes."""
    for size in range(min(len(kind.ready), len(trial.members) - 1), 0, -1):
        if trial.succeeds(trial.cluster, _of_size(trial.members, size)):
            yield f"--nodes {size}" if size > 1 else "one node (without --nodes)"
            return


def _of_size(members: Sequence[Task], size: int) -> list[Task]:
    first = members[:size]
    if size == 1:
        return [replace(each, id="#", spec=replace(each.spec, gang=None)) for each in first]
    return would_be_members(
        [
            replace(each, spec=replace(each.spec, gang=replace(gang, size=size, alike=size, members=())))
            for each in first
            if (gang := each.spec.gang)
        ]
    )


def _options(trial: _Trial, several: Sequence[Kind]) -> Iterator[str]:
    """Other values of an option of all members that need the same."""
    for kind in several:
        found = set[str]()
        for name in kind.blocked[:MAX_NODES]:
            for words, spec in changes(trial.cluster.nodes[name], kind.spec, trial.ahead, trial.cluster.at):
                option = words.partition(" ")[0]
                if option not in found and trial.succeeds(trial.cluster, _changed(trial.members, kind, spec)):
                    found.add(option)
                    whose = "" if len(several) == 1 else f" for {asked(kind.spec)}"
                    yield f"{words}{whose}"


def _changed(members: Sequence[Task], kind: Kind, spec: TaskSpec) -> list[Task]:
    changed = {each.id for each in kind.members}
    return [replace(each, spec=replace(spec, gang=each.spec.gang)) if each.id in changed else each for each in members]


def _in_the_way(trial: _Trial, several: Sequence[Kind]) -> list[Blocker]:
    """What has to go on as many nodes as are missing, of those where the least has to; empty if that does not help."""
    nodes, gone = dict(trial.cluster.nodes), list[Blocker]()
    for kind in several:
        found = list[tuple[int, str, list[Blocker]]]()
        for name in kind.blocked[: kind.missing + MAX_NODES] if kind.missing else ():
            if blockers := fewest(nodes[name], _fits(trial, kind.members[0])):
                found.append((len(blockers), name, blockers))
        for _, name, blockers in sorted(found, key=lambda each: each[0])[: kind.missing]:
            nodes[name] = without(nodes[name], blockers)
            gone += blockers
    return gone if gone and trial.succeeds(replace(trial.cluster, nodes=nodes), trial.members) else []


def _fits(trial: _Trial, task: Task) -> Callable[[Node], bool]:
    now = trial.cluster.at

    def fits(node: Node) -> bool:
        return not obstacles(node, task.spec, task.owner, now) and not trial.ahead.obstacles(node, task, now)

    return fits
