"""Submits tasks: build, admit, launch, and answer when the outcome is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from agentless.controller.files.uploads import Uploads
from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.explanations import Explanations
from agentless.controller.scheduling.queue import Queue
from agentless.controller.submit.admission import Admission
from agentless.controller.submit.answers import Answers
from agentless.controller.submit.builder import TaskBuilder
from agentless.controller.submit.request import Submit
from agentless.errors import AgentlessError, Refused, UsageError
from agentless.model.tasks.spec import TaskSpec, check_secrets
from agentless.model.tasks.task import Task
from agentless.model.view import StartView
from agentless.rules.explain.obstacles import never, refusal
from agentless.rules.scheduling.plan import Plan

CLUSTER_WITHIN = 8.0
"""Seconds for which a submit waits for the answer of a cluster."""


class Submission:
    """Submits tasks."""

    def __init__(
        self,
        builder: TaskBuilder,
        admission: Admission,
        answers: Answers,
        queue: Queue,
        explanations: Explanations,
        nodes: Nodes,
        uploads: Uploads,
    ) -> None:
        self._builder = builder
        self._admission = admission
        self._answers = answers
        self._queue = queue
        self._explanations = explanations
        self._nodes = nodes
        self._uploads = uploads

    async def submit(
        self, request: Submit, begin: Callable[[Sequence[Task]], None] = lambda _: None
    ) -> list[StartView]:
        """Start or queue each task; each succeeds or fails alone. An invalid request fails as a whole.

        `begin` is called with the tasks just before they are stored.
        """
        if not request.specs:
            raise UsageError("no target; specify GPUs, such as node1::0; to see free GPUs, run: agentless gpus")
        check_secrets(request.secrets)
        request = replace(request, specs=self._builder.jobs_of(request.specs))
        if request.repeated and (answered := await self._answers.repeated(request)):
            return answered
        if request.whole and any(wrong := await self._builder.problems(request.specs)):
            return _none_begun(request.specs, [each or self._never(request, at) for at, each in enumerate(wrong)])
        self._builder.check_request(request)
        tasks = await self._builder.build(request)
        notice = self._builder.notice(request.specs)
        if not request.dry_run:
            self._uploads.check(tasks)
        await asyncio.gather(*(self._wait_for_nodes(task) for task in tasks))
        # No await from here until the allocations are on disk: nobody else can be given these GPUs in between.
        looked = self._queue.look(self._admission.may_start(tasks))
        placements = looked.starts
        if request.dry_run:
            rehearsed = zip(tasks, self._admission.rehearse(tasks, placements, request.secrets), strict=True)
            return _noticed([self._with_overflow(start, task, looked) for task, start in rehearsed], notice)
        if request.whole and any(found := self._admission.turned_away(tasks, placements)):
            return _none_begun([task.spec for task in tasks], found)
        begin(tasks)
        refused = self._admission.admit(tasks, placements, request.secrets, request.by)
        # Nor until it is told who waits: the next look may start them, and those launches are not waited for here.
        starts = [
            None
            if task.id in placements and not error
            else self._answers.not_begun(
                task, error, self._explanations.preempting(task, looked), self._explanations.overflow(task, looked)
            )
            for task, error in zip(tasks, refused, strict=True)
        ]
        handed = [at for at, task in enumerate(tasks) if starts[at] and self._queue.goes_with_its_wait(task.id)]
        begun = [task for task, start in zip(tasks, starts, strict=True) if start is None]
        launched = iter(await asyncio.gather(*(self._answers.launched(task, self._patience(task)) for task in begun)))
        answers = [start or next(launched) for start in starts]
        # Those that are blocked only until their cluster has them, and waits in the place of our queue.
        later = [self._answers.handed_over(tasks[at], answers[at], self._patience(tasks[at])) for at in handed]
        for at, answer in zip(handed, await asyncio.gather(*later), strict=True):
            answers[at] = answer
        return _noticed(answers, notice)

    async def replace(self, request: Submit, old: Task, *, same: bool) -> StartView:
        """Start one task now in place of another, whose allocation is kept for it; `same`: on just those GPUs.

        Raises what is in the way.
        """
        self._builder.check_request(request)
        [task] = await self._builder.build(request)
        await self._wait_for_nodes(task)
        # No await from here until the allocation is on disk.
        self.check_room(task.spec, old)
        found = old.placement if same else self._queue.look([task], asking=old).starts.get(task.id)
        if found is None:
            raise Refused(f"{task.spec.needs}: free resources are promised to tasks in the queue")
        [refused] = self._admission.admit([task], {task.id: found}, {}, request.by)
        if refused:
            raise refused
        return await self._answers.launched(task)

    def check_room(self, spec: TaskSpec, old: Task) -> None:
        """Raise what is in the way of a task with this spec, in place of another."""
        if error := refusal(self._nodes.cluster(asking=old), spec, old.owner):
            raise error

    def _never(self, request: Submit, number: int) -> AgentlessError | None:
        """Why one of the tasks fits no node that has answered; the others are wrong in another way."""
        words = never(self._nodes.cluster(), request.specs[number], request.owner or request.by.name)
        return Refused(words) if words else None

    def _with_overflow(self, start: StartView, task: Task, looked: Plan) -> StartView:
        """What would happen to a task, with the cluster that it would go to."""
        if start.exit_code or not (words := self._explanations.overflow(task, looked)):
            return start
        return replace(start, message="; ".join(filter(None, (start.message, words))))

    def _patience(self, task: Task) -> float | None:
        """How long whoever submits a task waits for its launch, in seconds: a cluster may be busy with others."""
        return CLUSTER_WITHIN if self._nodes.cluster_of(task.spec.needs) else None

    async def _wait_for_nodes(self, task: Task) -> None:
        """Wait until the nodes that a task may run on have answered or failed to."""
        if task.spec.needs.nodes:
            await asyncio.gather(*(self._nodes.place(node).ready() for node in task.spec.needs.nodes))
        else:
            await self._nodes.heard()


def _none_begun(specs: Sequence[TaskSpec], wrong: Sequence[AgentlessError | None]) -> list[StartView]:
    """The answer to a request that is refused as a whole, because of these."""
    return [
        StartView(str(spec.needs), None, error.exit_code if error else 0, str(error or ""))
        for spec, error in zip(specs, wrong, strict=True)
    ]


def _noticed(starts: list[StartView], notice: str) -> list[StartView]:
    """Add a notice about all tasks to the first answer, in lines of its own."""
    if not notice or not starts:
        return starts
    return [replace(starts[0], message="\n".join(filter(None, (starts[0].message, notice)))), *starts[1:]]
