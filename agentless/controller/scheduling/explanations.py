"""Why tasks wait and until when, in words; and what would happen to new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.overflows import Overflows
from agentless.controller.scheduling.queue import Queue
from agentless.controller.state.prerequisites import Prerequisites, job_name
from agentless.controller.state.tasks import Tasks
from agentless.errors import Unreachable
from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node import unreachable
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Blocked, Ended, Lost, Pending, Scheduled, Submitted, Task
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
from agentless.rules.scheduling.batches import is_held_back
from agentless.rules.scheduling.plan import Outlook, Plan
from agentless.rules.scheduling.prerequisites import foreseeable
from agentless.rules.scheduling.timeline.promise import Promise
from agentless.rules.submit.cluster_gpus import lacks
from agentless.rules.tasks.dependencies import first_event
from agentless.rules.tasks.gangs.gangs import (
    asked_together,
    members_together,
    unit_of,
    would_be_members,
)
from agentless.rules.views.publish import timestamp
from agentless.rules.workflows.workflow import job_title

EXPLAINED = 20
"""Tasks at the head of the queue whose obstacles are found out; the others get the number of tasks before them."""


class Explanations:
    """Says of waiting tasks, and of those that are not submitted yet, when they start and why not now.

    Before the first look at the queue, no outlook is given.
    """

    def __init__(
        self,
        queue: Queue,
        tasks: Tasks,
        nodes: Nodes,
        prerequisites: Prerequisites,
        overflows: Overflows,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._tasks = tasks
        self._nodes = nodes
        self._prerequisites = prerequisites
        self._overflows = overflows
        self._clock = clock
        self._plan = queue.plan
        self._positions: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        self._seen: Cluster | None = None

    def outlook(self, task: Task) -> Outlook:
        """The position, reason and expected start of a waiting task."""
        if isinstance(task.status, Blocked):
            reason = task.status.reason or self._waits_for(task, task.status)
            return Outlook(None, reason, self._queue.plan.promises.get(task.id))
        if away := self._nodes.cluster_of(task.spec.needs):
            return Outlook(None, unreachable(away.node.name, away.silence) if away.silence else self._held_back(task))
        if not self._queue.has_looked:
            return Outlook()
        if self._plan is not self._queue.plan:
            self._plan, self._seen = self._queue.plan, None
            self._positions.clear()
            self._reasons.clear()
        if task.id not in self._positions:
            units = enumerate(members_together(self._queue.waiting()), 1)
            self._positions = {waiting.id: number for number, unit in units for waiting in unit}
        position, promise = self._positions.get(task.id), self._plan.promises.get(task.id)
        if position is None:
            return Outlook()
        if position > EXPLAINED:
            return Outlook(position, f"{position - 1} tasks are ahead of it", promise)
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
        return Outlook(position, self._reasons[task.id], promise)

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
        if isinstance(task.status, Ended):
            return ExplainView(task.id, _how_it_ended(task, task.status), None, (), {})
        lent = may_be_preempted(task, self._clock.now())
        if isinstance(task.status, Submitted):
            status = replace(task.status, reason=self._waits_there(task) or task.status.reason)
            words = submitted_words(task, status, self._clock.now())
            return ExplainView(task.id, words, timestamp(status.expected), (), {})
        if not isinstance(task.status, Pending):
            return ExplainView(task.id, "; ".join(filter(None, (self._where_it_is(task), lent))), None, (), {})
        if away := self._nodes.cluster_of(task.spec.needs):
            if not away.silence and (held_back := self._held_back(task)):
                return ExplainView(task.id, f"task {task.id} goes to {away.node.name} later: {held_back}", None, (), {})
            words = f"task {task.id} goes to {away.node.name} as soon as that answers"
            return ExplainView(task.id, f"{words}: {away.silence or 'about to start'}", None, (), {})
        return self._explain_pending(task, lent)

    def what_if(self, spec: TaskSpec, owner: str, members: Sequence[TaskSpec] = ()) -> ExplainView:
        """What would happen to a task if it were submitted now; `members` are all specs of a gang."""
        if away := self._nodes.cluster_of(spec.needs):
            job = f"{spec.needs} on {spec.multinode.size} nodes" if spec.multinode else str(spec.needs)
            free = room(away.inside, spec.needs.gpu_types)
            words = f"{job} would be a job of {away.node.name}, which decides when it starts{free}"
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
                return self._explained(cluster, mates, words, None, self._queue.ahead(mates[0], self._queue.plan))
            is_silent = isinstance(refusal(cluster, task.spec, owner), Unreachable)
            if is_silent and not self._overflows.may_go(asked.spec):
                words = f"{task.spec.needs} would be refused: cannot reach any matching node"
                return explanation(cluster, task, words, None, Ahead())
        if (waits := self._would_wait(mates, cluster)) is not None:
            return waits
        found = self._queue.look(mates)
        task = mates[0]
        if all(each.id in found.starts for each in mates):
            words = " and ".join(str(found.starts[each.id]) for each in mates)
            return ExplainView("", f"{asked_together(mates)} would start now, on {words}", timestamp(now), (), {})
        units = members_together(self._queue.waiting(*mates))
        place, promise = 1 + next(at for at, unit in enumerate(units) if task in unit), found.promises.get(task.id)
        coming = when(promise, cluster, task.spec, gang=_promised(mates, found))
        summary = f"{asked_together(mates)} would be number {place} in the queue; {coming}"
        built = replace(task, spec=self._overflows.as_built(task.spec))
        summary = "; ".join(filter(None, (summary, self._overflows.words(built, promise))))
        explained = self._explained(cluster, mates, summary, promise, self._queue.ahead(task, found))
        return replace(explained, preemption=preempts(cluster, *as_one(mates, found.promises), self._tasks.live))

    # ------------------------------------------------------------------ inside

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
        known = len(mates) == 1 and foreseeable([blocked], self._queue.last_live, 1)
        promise = self._queue.look([blocked]).promises.get(task.id) if known else None
        summary, coming = f"{asked} would be blocked: it {self._waits_for(task, status, at_length=True)}", ""
        if promise:
            coming = f"; {'if that comes, it ' * _on_failure(event)}{when(promise, cluster, task.spec, why='')}"
        return ExplainView("", summary + coming, timestamp(promise.start) if promise else None, (), {})

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
        promise, awaits = self._queue.plan.promises.get(task.id), ""
        if found and promise is None:
            awaits = repairs(cluster, task.spec)
        elif found and promise and promise.start is None:
            awaits = when(promise, cluster, task.spec, gang=_promised(mates, self._queue.plan))
        return "; ".join(filter(None, (found, awaits)))

    def _mates(self, task: Task) -> list[Task]:
        """The members of a task's gang that are live, by rank; of any other task itself."""
        return unit_of(task, self._tasks.live.get)

    def _held_back(self, task: Task) -> str:
        if not is_held_back(task, self._tasks.live.values()):
            return ""
        most = task.spec.terms.max_parallel
        if task.spec.job:
            return f"{counted(most or 0, 'job')} of its workflow {'is' if most == 1 else 'are'} running (max_parallel)"
        return f"{counted(most or 0, 'task')} of its batch {'is' if most == 1 else 'are'} running (--max-parallel)"

    def _explain_pending(self, task: Task, lent: str) -> ExplainView:
        """Why a task does not start on the nodes; `lent` says who may preempt it."""
        cluster = self._nodes.cluster()
        mates = self._mates(task)
        task = mates[0]
        promise, position = self._queue.plan.promises.get(task.id), self.outlook(mates[0]).position
        held_back = self._held_back(task)
        coming = when(promise, cluster, task.spec, held_back=bool(held_back), gang=_promised(mates, self._queue.plan))
        summary = f"task {mates[0].id} ({asked_together(mates)}) is number {position} in the queue; "
        overflow = self._overflows.words(task, promise)
        sooner = goes_first(mates, self._queue.waiting(), self._queue.plan.promises)
        coming = "; ".join(filter(None, (coming, sooner, lent, overflow)))
        if len(mates) == 1 and never(cluster, task.spec, task.owner):
            summary = "; ".join(filter(None, (f"{summary}no node can run it", overflow)))
            return explanation(cluster, task, summary, None, Ahead())
        if held_back:
            start = timestamp(promise.start) if promise else None
            return ExplainView(task.id, f"{summary}{held_back}; {coming}", start, (), {})
        found = self._explained(cluster, mates, summary + coming, promise, self._queue.ahead(task, self._queue.plan))
        return replace(found, preemption=preempts(cluster, *as_one(mates, self._queue.plan.promises), self._tasks.live))

    def _where_it_is(self, task: Task) -> str:
        """What has become of a task that neither waits nor has ended."""
        away = self._nodes.clusters.get(task.node or "")
        if isinstance(task.status, Lost):
            return f"task {task.id} is lost: {task.status.reason}"
        if away and away.silence is not None:
            return f"task {task.id} is {task.state}: {away.node.name} does not answer: {away.silence}"
        return f"task {task.id} is {task.state}{on_compute_nodes(task)}, not pending"

    def _explain_blocked(self, task: Task, status: Blocked) -> ExplainView:
        cluster, promise = self._nodes.cluster(), self._queue.plan.promises.get(task.id)
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
            before = self._queue.last_live(requirement.on)
            promise = self._queue.plan.promises.get(before.id) if before else None
            return coming(before, promise, self._clock.now()) if at_length else in_brackets(before)

        def job_of(requirement: Requirement) -> tuple[str, str] | None:
            if requirement.batch or not task.spec.job:
                return None
            name = job_name(self._queue.last_live(requirement.on) or self._tasks.find(requirement.on))
            return (name[0], job_title(*name)) if name else None

        return waits_for(status.on, about, job_of)

    def _waits_there(self, task: Task) -> str:
        """What a cluster waits for in the place of a task, in words; empty if for nothing."""
        if not (task.placement and task.placement.after):
            return ""
        on = tuple(each for each in task.spec.terms.requires if self._queue.last_live(each.on))
        return self._waits_for(task, Blocked(on), at_length=True) if on else ""


def _how_it_ended(task: Task, status: Ended) -> str:
    if task.spec.traits.comes_back:
        name = task.spec.name
        return f"VPS {name} is {task.state}; to start it, or to hear who has its GPUs, run: agentless vps start {name}"
    code = "" if status.exit_code is None else f" with exit code {status.exit_code}"
    why = f": {status.reason}" if status.reason else ""
    output = f"; to see its output, run: agentless logs {task.id}" if status.container else ""
    return f"task {task.id} has ended{on_compute_nodes(task)} ({task.state}{code}{why}){output}"


def _on_failure(waits: Blocked | BlockedBy) -> bool:
    """Whether a task waits for a failure, which may never come."""
    return any(each.state == "failed" for each in waits.on)


def _promised(members: Sequence[Task], looked: Plan) -> list[tuple[Promise, TaskSpec]]:
    """What the members of a gang are promised, with what they need."""
    return [(promise, each.spec) for each in members if (promise := looked.promises.get(each.id))]
