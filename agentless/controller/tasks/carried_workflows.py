"""Puts workflows into the labels of what they start, and records which were recovered, and which jobs were stopped."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.controller.state.event_bus import EventBus, TaskAdopted, TaskChanged, TaskForgotten
from agentless.controller.state.tasks import Tasks
from agentless.errors import StateError
from agentless.model.containers.claim import labels_of
from agentless.model.tasks import task as states
from agentless.model.tasks.task import Ended, Task, Waiting
from agentless.model.tasks.task_id import first_try, is_task_id, numbered
from agentless.model.workflows.record import WorkflowRecord
from agentless.ports import Clock
from agentless.rules.workflows import carried
from agentless.rules.workflows.carried import Carried, Head
from agentless.rules.workflows.progress import last_tries
from agentless.stores.files.workflows import WorkflowStore
from agentless.stores.workflow_proof import WorkflowProof

_KEPT = 20
"""Workflows whose labels are kept: to pack a thousand jobs takes longer than to start one."""


@dataclass(slots=True)
class _Workflow:
    """What the labels of a workflow have: its jobs, and a letter for each, in the order of their ids.

    `why_not` it is not carried.
    """

    why_not: str
    jobs: str
    digest: str
    letters: dict[str, str]


class CarriedWorkflows:
    """Gives a container that is started the whole workflow that it belongs to."""

    def __init__(self, tasks: Tasks, store: WorkflowStore, proof: WorkflowProof, bus: EventBus, clock: Clock) -> None:
        self._tasks = tasks
        self._store = store
        self._proof = proof
        self._clock = clock
        self._known: dict[str, _Workflow] = {}
        bus.subscribe(TaskChanged, self._changed)
        bus.subscribe(TaskForgotten, self._forgotten)
        bus.subscribe(TaskAdopted, self._adopted)

    def labels(self, task: Task) -> dict[str, str]:
        """More labels for the container of a task that is launched now; none if it carries nothing."""
        job, placement = task.spec.job, task.placement
        if job is None or not job.workflow or placement is None:
            return {}
        workflow = self._workflow(job.workflow)
        if workflow.why_not:
            return {}
        try:
            key = self._proof.make()
        except StateError:
            return {}
        head = Head(
            job.workflow,
            job.of,
            task.owner,
            self._tasks.controller,
            self._clock.now(),
            "".join(workflow.letters.values()),
            workflow.digest,
            self._proof.recorded or 0,
        )
        others = labels_of(task, placement, self._tasks.controller)
        label = carried.sign(key, head, others, placement.node)
        return {carried.HEAD: label, carried.JOBS: workflow.jobs}

    def why_not(self, workflow: str) -> str:
        """Why the containers of a workflow do not carry it; empty if they do."""
        if why := self._workflow(workflow).why_not:
            return why
        try:
            self._proof.make()
        except StateError as error:
            return str(error)
        return ""

    # ------------------------------------------------------------------ inside

    def _workflow(self, workflow: str) -> _Workflow:
        if workflow not in self._known:
            tasks, record = self._of(workflow), self._store.get(workflow)
            specs = {task.id: task.spec for task in tasks if task.attempt == 1}
            label = carried.pack(Carried(specs, record.text if record else ""))
            letters = {key: _letter(task) for key, task in last_tries(tasks).items() if key in specs}
            why = "" if label else "it has more jobs, or longer ones, than labels can hold"
            if all(spec.on_node_itself for spec in specs.values()):
                why = "its jobs run without a container"
            while len(self._known) >= _KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[workflow] = _Workflow(why, label, carried.digest_of_jobs(label), letters)
        return self._known[workflow]

    def _of(self, workflow: str) -> list[Task]:
        every = (*self._tasks.history.batch(workflow), *self._tasks.in_batch(workflow))
        return [task for task in every if task.spec.job]

    def _changed(self, event: TaskChanged) -> None:
        before, task = event.before, event.after
        if task.spec.job is None or not task.spec.job.workflow:
            return
        key = first_try(task.id)
        last = self._tasks.live.get(self._tasks.last_live(key) or "", task)
        if known := self._known.get(task.spec.job.workflow):
            if key in known.letters:
                known.letters[key] = _letter(last)
            else:  # it goes on after its state was lost
                del self._known[task.spec.job.workflow]
        never_ran = isinstance(task.status, Ended) and task.status.container is None
        if (task.stop in ("stop", "kill") and task.stop != before.stop) or never_ran:
            self._proof.record([key])
        if task.stop == "preempt" != before.stop:
            self._proof.record([numbered(task.id)])  # only this try: the next one runs as usual

    def _adopted(self, event: TaskAdopted) -> None:
        """A workflow comes back with its first task, so that it is listed also after its end."""
        job, batch = event.task.spec.job, event.task.batch
        if job and is_task_id(batch) and job.workflow == batch and self._store.get(batch) is None:
            self._store.put(WorkflowRecord(batch, job.of))

    def _forgotten(self, event: TaskForgotten) -> None:
        job = event.task.spec.job
        if job is None or not job.workflow:
            return
        key = first_try(event.task.id)
        if (known := self._known.get(job.workflow)) and key in known.letters:
            known.letters[key] = carried.OTHER
        self._proof.record([key])


def _letter(task: Task) -> str:
    """What a head says of a job whose last try this is. Another try has begun, whatever it waits for."""
    if isinstance(task.status, Waiting):
        return carried.WAITING if task.attempt == 1 else carried.BEGUN
    if not isinstance(task.status, Ended):
        return carried.BEGUN
    if task.state == "completed":
        return carried.COMPLETED
    return carried.FAILED if task.state in states.FAILED else carried.OTHER
