"""The queue, to be read: which tasks wait, in which order, why, and until when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentless.controller import plugins
from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.overflows import Overflows
from agentless.controller.scheduling.run_history import RunHistory
from agentless.controller.state.prerequisites import Prerequisites, job_name
from agentless.controller.state.tasks import Tasks
from agentless.errors import Unreachable
from agentless.inventory.inventory import Inventory
from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node import unreachable
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Assigning, Blocked, Ended, Lost, Pending, Placement, Scheduled, Submitted, Task
from agentless.model.tasks.task_event import BlockedBy, GaveUp
from agentless.model.units import counted, format_duration
from agentless.model.view import ExplainView
from agentless.ports import Clock
from agentless.rules.explain.ahead import Ahead
from agentless.rules.explain.explanation import explanation, when
from agentless.rules.explain.gangs import explanation_of_gang
from agentless.rules.explain.obstacles import brief, never, no_node, refusal
from agentless.rules.explain.preemption import as_one, awaited, may_be_preempted, named, preempts
from agentless.rules.explain.repairs import repairs
from agentless.rules.explain.waits import (
    coming,
    goes_first,
    in_brackets,
    on_compute_nodes,
    progress,
    room,
    submitted_words,
    waits_for,
)
from agentless.rules.scheduling.batches import is_held_back, within_limits
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import PROMISES, Outlook, Plan, plan
from agentless.rules.scheduling.prerequisites import foreseeable
from agentless.rules.scheduling.search import Cost
from agentless.rules.scheduling.timeline.promise import Promise
from agentless.rules.submit.cluster_gpus import lacks
from agentless.rules.tasks.awaited_jobs import jobs_awaited
from agentless.rules.tasks.dependencies import first_event
from agentless.rules.tasks.gangs.gangs import (
    asked_together,
    is_held_by_last_try,
    members_together,
    unit_of,
    would_be_members,
)
from agentless.rules.views.publish import timestamp
from agentless.rules.workflows.workflow import job_title

EXPLAINED = 20
"""Tasks at the head of the queue whose obstacles are found out; the others get the number of tasks before them."""
AGAIN_AFTER = 2.0
"""Seconds before a task that a node has refused is tried again: whoever was there first is seen by then."""


class Queue:
    """The waiting tasks. `plan` is the result of the last look; before the first one, no outlook is given.

    `policy` is the inventory's. With `learn`, tasks without a time limit are expected to take as long as earlier
    ones of their kind.
    """

    def __init__(
        self,
        tasks: Tasks,
        nodes: Nodes,
        prerequisites: Prerequisites,
        run_history: RunHistory,
        overflows: Overflows,
        clock: Clock,
    ) -> None:
        self.policy = "pack"
        self.learn = False
        self.plan = Plan()
        self._tasks = tasks
        self._nodes = nodes
        self._prerequisites = prerequisites
        self._run_history = run_history
        self._overflows = overflows
        self._clock = clock
        self._used: Mapping[str, float] = {}
        self._lent: Mapping[str, float] = {}
        self._positions: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        self._seen: Cluster | None = None
        self._looked = False

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its policy."""
        self.policy = inventory.policy
        self.learn = inventory.learn

    @property
    def is_empty(self) -> bool:
        """Whether no task is pending."""
        return not self._waiting()

    @property
    def tasks(self) -> list[Task]:
        """The pending tasks in their order, then blocked and scheduled ones, then those in the queues of clusters."""
        away = [task for task in self._tasks.live.values() if isinstance(task.status, Submitted)]
        later = [
            (task.status.until, task.id, task)
            for task in self._tasks.live.values()
            if isinstance(task.status, Scheduled)
        ]
        blocked = [self._tasks.live[task_id] for task_id in self._tasks.waiters]
        return self.waiting() + blocked + [task for *_, task in sorted(later)] + away

    def look(self, others: Sequence[Task] = (), *, asking: Task | None = None) -> Plan:
        """Plan the pending tasks, and these others, as of now; `asking` is as in `Nodes.cluster`."""
        now = self._clock.now()
        waiting = [task for task in self._waiting() if not _was_refused_just_now(task, now)]
        handed, waiting, others = self._handed_over(waiting, others)
        cluster = self._nodes.cluster(asking=asking)
        self._used, self._lent = self._run_history.used(), self._run_history.lent()
        lengths = self._run_history.lengths(others) if self.learn else {}
        queue = order([*waiting, *self._blocked(), *others], self._used, self._lent)
        placed = (*self._tasks.live.values(), *handed)
        planned = plan(cluster, queue, now, self._policies, self.plan, lengths=lengths, placed=placed)
        starts = {task.id: place for task in handed if (place := task.placement)}
        return replace(planned, starts={**starts, **planned.starts}) if handed else planned

    def look_again(self) -> Plan:
        """Plan as of now, and keep the plan."""
        self._positions.clear()
        self._reasons.clear()
        self._seen, self._looked = None, True
        self.plan = Plan() if self.is_empty and not self._tasks.waiters else self.look()
        return self.plan

    def moved(self, task: Task) -> None:
        """A task was moved: like a new one, it is promised no start any more."""
        promises = {name: promise for name, promise in self.plan.promises.items() if name != task.id}
        self.plan = Plan(self.plan.starts, promises)
        self._positions.clear()
        self._reasons.clear()

    def outlook(self, task: Task) -> Outlook:
        """The position, reason and expected start of a waiting task."""
        if isinstance(task.status, Blocked):
            reason = task.status.reason or self._waits_for(task, task.status)
            return Outlook(None, reason, self.plan.promises.get(task.id))
        if away := self._nodes.cluster_of(task.spec.needs):
            return Outlook(None, unreachable(away.node.name, away.silence) if away.silence else self._held_back(task))
        if not self._looked:
            return Outlook()
        if task.id not in self._positions:
            units = enumerate(members_together(self.waiting()), 1)
            self._positions = {waiting.id: number for number, unit in units for waiting in unit}
        position = self._positions.get(task.id)
        if position is None:
            return Outlook()
        if position > EXPLAINED:
            return Outlook(position, f"{position - 1} tasks are ahead of it", self.plan.promises.get(task.id))
        if task.id not in self._reasons:
            refused = task.status.reason if isinstance(task.status, Pending) else ""
            self._seen = self._seen or self._nodes.cluster()  # a look at many nodes takes its time
            places = [place for each in self._mates(task) if (place := each.kept_place)]
            found = awaited(places, self._tasks.live) if places else self._held_back(task)
            found = found or self._brief(task, self._seen)
            fits = (
                "free resources are promised to tasks ahead of it"
                if position > 1 or self._tasks.waiters
                else "about to start"
            )
            self._reasons[task.id] = found or refused or fits
        return Outlook(position, self._reasons[task.id], self.plan.promises.get(task.id))

    def preempting(self, task: Task, looked: Plan) -> str:
        """Who gives way for a new task in this plan, and when it starts, in words; empty if nobody does."""
        if looked.promises.get(task.id) is None:
            return ""  # as most of a large sweep
        mates = self._mates(task)
        _, promise = as_one(mates, looked.promises)
        if promise is None or not promise.victims:
            return ""
        coming = when(promise, self._nodes.cluster(), task.spec, gang=_promised(mates, looked))
        return f"preempts {named(promise.victims, self._tasks.live)}; {coming}"

    def overflow(self, task: Task, looked: Plan) -> str:
        """Whether a new task goes to a cluster and when, in words; empty if it is for nodes only."""
        if task.id not in looked.promises:
            return ""
        promise = looked.promises[task.id]
        if promise is None and len(looked.promises) > EXPLAINED:
            return ""  # as most of a large sweep
        return self._overflows.words(task, promise)

    def explain(self, task: Task) -> ExplainView:
        """Why a task does not start, node by node."""
        if isinstance(task.status, Scheduled):
            left = format_duration(task.status.until - self._clock.now())
            then = self._then_goes(task)
            return ExplainView(task.id, f"task {task.id} enters the queue in {left}{then}", None, (), {})
        if isinstance(task.status, Blocked):
            return self._explain_blocked(task, task.status)
        if isinstance(task.status, Ended) and task.spec.traits.comes_back:
            name = task.spec.name
            words = (
                f"VPS {name} is {task.state}; to start it, or to hear who has its GPUs, run: agentless vps start {name}"
            )
            return ExplainView(task.id, words, None, (), {})
        if isinstance(task.status, Ended):
            code = "" if task.status.exit_code is None else f" with exit code {task.status.exit_code}"
            why = f": {task.status.reason}" if task.status.reason else ""
            words = f"task {task.id} has ended{on_compute_nodes(task)} ({task.state}{code}{why})"
            if task.status.container:
                words = f"{words}; to see its output, run: agentless logs {task.id}"
            return ExplainView(task.id, words, None, (), {})
        lent = may_be_preempted(task, self._clock.now())
        if isinstance(task.status, Submitted):
            status = replace(task.status, reason=self._waits_there(task) or task.status.reason)
            words = submitted_words(task, status, self._clock.now())
            return ExplainView(task.id, words, timestamp(status.expected), (), {})
        if not isinstance(task.status, Pending):
            words = f"task {task.id} is {task.state}{on_compute_nodes(task)}, not pending"
            away = self._nodes.clusters.get(task.node or "")
            if isinstance(task.status, Lost):
                words = f"task {task.id} is lost: {task.status.reason}"
            elif away and away.silence is not None:
                words = f"task {task.id} is {task.state}: {away.node.name} does not answer: {away.silence}"
            return ExplainView(task.id, "; ".join(filter(None, (words, lent))), None, (), {})
        if away := self._nodes.cluster_of(task.spec.needs):
            if not away.silence and (held_back := self._held_back(task)):
                return ExplainView(task.id, f"task {task.id} goes to {away.node.name} later: {held_back}", None, (), {})
            words = f"task {task.id} goes to {away.node.name} as soon as that answers"
            return ExplainView(task.id, f"{words}: {away.silence or 'about to start'}", None, (), {})
        cluster = self._nodes.cluster()
        mates = self._mates(task)
        task = mates[0]
        promise, position = self.plan.promises.get(task.id), self.outlook(mates[0]).position
        held_back = self._held_back(task)
        coming = when(promise, cluster, task.spec, held_back=bool(held_back), gang=_promised(mates, self.plan))
        summary = f"task {mates[0].id} ({asked_together(mates)}) is number {position} in the queue; "
        overflow = self._overflows.words(task, promise)
        sooner = goes_first(mates, self.waiting(), self.plan.promises)
        coming = "; ".join(filter(None, (coming, sooner, lent, overflow)))
        if len(mates) == 1 and never(cluster, task.spec, task.owner):
            summary = "; ".join(filter(None, (f"{summary}no node can run it", overflow)))
            return explanation(cluster, task, summary, None, Ahead())
        if held_back:
            start = timestamp(promise.start) if promise else None
            return ExplainView(task.id, f"{summary}{held_back}; {coming}", start, (), {})
        found = self._explained(cluster, mates, summary + coming, promise, self._ahead(task, self.plan))
        return replace(found, preemption=preempts(cluster, *as_one(mates, self.plan.promises), self._tasks.live))

    def what_if(self, spec: TaskSpec, owner: str, members: Sequence[TaskSpec] = ()) -> ExplainView:
        """What would happen to a task if it were submitted now; `members` are all specs of a gang."""
        if away := self._nodes.cluster_of(spec.needs):
            job = f"{spec.needs} on {spec.multinode.size} nodes" if spec.multinode else str(spec.needs)
            words = f"{job} would be a job of {away.node.name}, which decides when it starts{room(away.inside)}"
            if missing := lacks(spec.needs, away.node.name, away.inside):
                words = f"{job} would be refused: {missing}"
            words = unreachable(away.node.name, away.silence) if away.silence else words
            return ExplainView("", words, None, (), {})
        now, cluster = self._clock.now(), self._nodes.cluster()
        mates = would_be_members([Task("", each, "", owner, now) for each in members or (spec,)])
        for task in mates:
            asked = replace(task, spec=self._overflows.as_built(task.spec))
            if never(cluster, task.spec, owner):
                words = f"{asked_together(mates)} would be refused" if len(mates) > 1 else no_node(task.spec)
                words = "; ".join(filter(None, (words, self._overflows.words(asked, None))))
                return self._explained(cluster, mates, words, None, self._ahead(mates[0], self.plan))
            is_silent = isinstance(refusal(cluster, task.spec, owner), Unreachable)
            if is_silent and not self._overflows.may_go(asked.spec):
                words = f"{task.spec.needs} would be refused: cannot reach any matching node"
                return explanation(cluster, task, words, None, Ahead())
        if (waits := self._would_wait(mates, cluster)) is not None:
            return waits
        found = self.look(mates)
        task = mates[0]
        if all(each.id in found.starts for each in mates):
            words = " and ".join(str(found.starts[each.id]) for each in mates)
            return ExplainView("", f"{asked_together(mates)} would start now, on {words}", timestamp(now), (), {})
        units = members_together(self.waiting(*mates))
        place, promise = 1 + next(at for at, unit in enumerate(units) if task in unit), found.promises.get(task.id)
        coming = when(promise, cluster, task.spec, gang=_promised(mates, found))
        summary = f"{asked_together(mates)} would be number {place} in the queue; {coming}"
        built = replace(task, spec=self._overflows.as_built(task.spec))
        summary = "; ".join(filter(None, (summary, self._overflows.words(built, promise))))
        explained = self._explained(cluster, mates, summary, promise, self._ahead(task, found))
        return replace(explained, preemption=preempts(cluster, *as_one(mates, found.promises), self._tasks.live))

    def _would_wait(self, mates: Sequence[Task], cluster: Cluster) -> ExplainView | None:
        """What would happen to a task that requires others, if it could not go on at once."""
        task, asked = mates[0], asked_together(mates)
        event = first_event(task, task.spec.terms.requires, self._prerequisites.standing, cluster.at)
        if isinstance(event, GaveUp):
            return ExplainView("", f"{asked} would be cancelled: {event.reason}", None, (), {})
        if not isinstance(event, BlockedBy):
            return None
        status = Blocked(event.on, event.reason)
        if event.reason:
            words = f"{asked} would be blocked until a retry: {event.reason}"
            return ExplainView("", words, None, (), {})
        blocked = replace(task, status=status)
        known = len(mates) == 1 and foreseeable([blocked], self._last_live, 1)
        promise = self.look([blocked]).promises.get(task.id) if known else None
        summary, coming = f"{asked} would be blocked: it {self._waits_for(task, status, at_length=True)}", ""
        if promise:
            coming = f"; {'if that comes, it ' * _on_failure(event)}{when(promise, cluster, task.spec, why='')}"
        return ExplainView("", summary + coming, timestamp(promise.start) if promise else None, (), {})

    def waiting(self, *others: Task) -> list[Task]:
        """The pending tasks and these others, in their order."""
        return order([*self._waiting(), *others], self._used, self._lent)

    # ------------------------------------------------------------------ inside

    @staticmethod
    def _explained(
        cluster: Cluster, members: Sequence[Task], summary: str, promise: Promise | None, ahead: Ahead
    ) -> ExplainView:
        if len(members) > 1:
            return explanation_of_gang(cluster, members, summary, promise, ahead)
        return explanation(cluster, members[0], summary, promise, ahead)

    def _brief(self, task: Task, cluster: Cluster) -> str:
        """The most relevant reason why a task, or any member of its gang, does not start now.

        If nobody knows when it starts, also what it waits for.
        """
        mates = self._mates(task)
        found = next(filter(None, (brief(cluster, each.spec, each.owner) for each in mates)), "")
        promise, awaits = self.plan.promises.get(task.id), ""
        if found and promise is None:
            awaits = repairs(cluster, task.spec)
        elif found and promise and promise.start is None:
            awaits = when(promise, cluster, task.spec, gang=_promised(mates, self.plan))
        return "; ".join(filter(None, (found, awaits)))

    def _mates(self, task: Task) -> list[Task]:
        """The members of a task's gang that are live, by rank; of any other task itself."""
        return unit_of(task, self._tasks.live.get)

    def _ahead(self, task: Task, looked: Plan) -> Ahead:
        """The tasks before it in the queue."""
        others = [] if task.id in self._tasks.live else [task]
        queue = order([*self._waiting(), *self._blocked(), *others], self._used, self._lent)
        mates = task.spec.gang.of_try(task.id) if task.spec.gang else ()
        before = [each for each in queue[: [each.id for each in queue].index(task.id)] if each.id not in mates]
        promises = {key: promise for key, promise in looked.promises.items() if key in self._tasks.live}
        lengths = self._run_history.lengths([task]) if self.learn else {}
        return Ahead(before, promises, self._policies, lengths, tuple(self._tasks.live.values()))

    @property
    def _policies(self) -> Mapping[str | None, Cost]:
        return {name: POLICIES[name or self.policy] for name in (None, *POLICIES)}

    def _held_back(self, task: Task) -> str:
        if not is_held_back(task, self._tasks.live.values()):
            return ""
        most = task.spec.terms.max_parallel
        if task.spec.job:
            return f"{counted(most or 0, 'job')} of its workflow {'is' if most == 1 else 'are'} running (max_parallel)"
        return f"{counted(most or 0, 'task')} of its batch {'is' if most == 1 else 'are'} running (--max-parallel)"

    def _explain_blocked(self, task: Task, status: Blocked) -> ExplainView:
        cluster, promise = self._nodes.cluster(), self.plan.promises.get(task.id)
        if status.reason:
            words = f"task {task.id} {status.reason}; it stays blocked because of --if-impossible wait"
            return ExplainView(task.id, words, None, (), {})
        summary = f"task {task.id} ({task.spec.needs}) {self._waits_for(task, status, at_length=True)}"
        if then := self._then_goes(task):
            return ExplainView(task.id, summary + then, None, (), {})
        if never(cluster, task.spec, task.owner):
            return explanation(cluster, task, f"{summary}; no node can run it", None, Ahead())
        if promise and _on_failure(status):
            summary += f"; if that comes, it {when(promise, cluster, task.spec, why='')}"
        elif promise:
            summary += f"; {when(promise, cluster, task.spec)}"
        return ExplainView(task.id, summary, timestamp(promise.start) if promise else None, (), {})

    def _then_goes(self, task: Task) -> str:
        """To which cluster a task goes once it may, to go on with a sentence; empty for one that nodes run."""
        away = self._nodes.cluster_of(task.spec.needs)
        return f"; then it goes to {away.node.name}" if away else ""

    def _waits_for(self, task: Task, status: Blocked, *, at_length: bool = False) -> str:
        def about(requirement: Requirement) -> str:
            if requirement.batch:
                return progress(requirement, self._prerequisites.standing(requirement))
            if (words := self._prerequisites.arriving(requirement.on)) is not None:
                return f" (ended; its artifacts: {words})"
            before = self._last_live(requirement.on)
            promise = self.plan.promises.get(before.id) if before else None
            return coming(before, promise, self._clock.now()) if at_length else in_brackets(before)

        def job_of(requirement: Requirement) -> tuple[str, str] | None:
            if requirement.batch or not task.spec.job:
                return None
            name = job_name(self._last_live(requirement.on) or self._tasks.find(requirement.on))
            return (name[0], job_title(*name)) if name else None

        return waits_for(status.on, about, job_of)

    def _waits_there(self, task: Task) -> str:
        """What a cluster waits for in the place of a task, in words; empty if for nothing."""
        if not (task.placement and task.placement.after):
            return ""
        on = tuple(each for each in task.spec.terms.requires if self._last_live(each.on))
        return self._waits_for(task, Blocked(on), at_length=True) if on else ""

    def _blocked(self) -> list[Task]:
        """The blocked tasks that may be promised a place."""
        blocked = (self._tasks.live[task_id] for task_id in self._tasks.waiters)
        return foreseeable(blocked, self._last_live, PROMISES)

    def _handed_over(
        self, waiting: Sequence[Task], others: Sequence[Task]
    ) -> tuple[list[Task], list[Task], list[Task]]:
        """The tasks that go to clusters which answer, with their places, and those that are planned here."""
        if not self._nodes.clusters:
            return [], [*waiting], [*others]
        away, now = list[Task](), self._clock.now()
        for task in (*waiting, *others):
            if (place := self._nodes.cluster_of(task.spec.needs)) and place.silence is None:
                away.append(_handed(task, Placement(place.node.name), now))
        known = (*self._tasks.live.values(), *waiting, *others)
        handed = [*within_limits(away, known), *self._waiting_there(now)]

        def here(some: Sequence[Task]) -> list[Task]:
            return [task for task in some if not self._nodes.cluster_of(task.spec.needs)]

        return handed, here(waiting), here(others)

    def goes_with_its_wait(self, task_id: str) -> bool:
        """Whether the cluster of a blocked task answers, and waits in the place of our queue."""
        task = self._tasks.live.get(task_id)
        return task is not None and self._place_behind(task) is not None

    def _waiting_there(self, now: float) -> list[Task]:
        """The blocked tasks whose cluster can wait in their place, with their places."""
        blocked = map(self._tasks.live.__getitem__, self._tasks.waiters)
        return [_handed(task, place, now) for task in blocked if (place := self._place_behind(task))]

    def _place_behind(self, task: Task) -> Placement | None:
        """The place of a blocked task on its cluster behind the jobs that it waits for; None if it waits here."""
        link = self._nodes.cluster_of(task.spec.needs)
        if link is None or link.silence is not None:
            return None
        after = jobs_awaited(task, link.node.name, self._last_live)
        return Placement(link.node.name, after=after) if after else None

    def _last_live(self, first: str) -> Task | None:
        last = self._tasks.last_live(first)
        return self._tasks.live[last] if last else None

    def _waiting(self) -> list[Task]:
        live = self._tasks.live
        waiting = [t for t in live.values() if isinstance(t.status, Pending) and not t.stop]
        return [t for t in waiting if not is_held_by_last_try(t, live)]


def _handed(task: Task, place: Placement, now: float) -> Task:
    """A task as it is on its way to a cluster."""
    return replace(task, status=Assigning(place, now))


def _on_failure(waits: Blocked | BlockedBy) -> bool:
    """Whether a task waits for a failure, which may never come."""
    return any(each.state == "failed" for each in waits.on)


def _promised(members: Sequence[Task], looked: Plan) -> list[tuple[Promise, TaskSpec]]:
    """What the members of a gang are promised, with what they need."""
    return [(promise, each.spec) for each in members if (promise := looked.promises.get(each.id))]


def _was_refused_just_now(task: Task, now: float) -> bool:
    since = task.status.since if isinstance(task.status, Pending) else None
    return since is not None and now - since < AGAIN_AFTER


POLICIES: Mapping[str, Cost] = {
    name: plugins.load("rules.scheduling.policies", name).cost for name in plugins.names("rules.scheduling.policies")
}
"""All there are, by name."""
