"""A workflow at the time of a request, and what can be done to it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from agentless.api.parse import parse
from agentless.api.task import Task, task
from agentless.api.verb import StreamVerb, Verb
from agentless.client.client import Client, is_over
from agentless.client.workflow_graph import text as graph_of
from agentless.errors import AgentlessError, UsageError
from agentless.model.tasks.requirement import Requirement
from agentless.rules.submit.kinds import parse_seconds, texts
from agentless.rules.workflows.workflow import job_title

_TURN = 30.0
"""Seconds that one request waits for the end of a task at most."""


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """A task of a workflow, by its last try. It waits for the tasks that it `requires`, by the ids of first tries.

    `parameters` distinguish it from other tasks of the same `job`, which has a matrix.
    """

    job: str
    parameters: dict[str, str]
    requires: tuple[Requirement, ...]
    task: Task

    @property
    def title(self) -> str:
        """Its name, with the values by which it differs from others of its name: `train[lr=0.1]`."""
        return job_title(self.job, self.parameters)


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow. Its fields are those at the time of the request; methods that act return it anew.

    `state` is `pending`, `running`, `stopping`, `completed`, `failed` (a job has failed), `stopped`, `preempted`,
    `incomplete` (jobs are missing) or `cancelled`. `counts` has the number of its tasks by state, `missing` how many
    are not known here, `not_needed` how many of the cancelled ones wait for a failure that did not happen. `text` is
    that of its file. In a list, `jobs` and `text` are empty.

    Each method can also be awaited, as `await workflow.wait.aio()`. They raise what is in `agentless.errors`.
    """

    id: str
    name: str
    state: str
    owner: str
    mine: bool
    created_at: str
    ended_at: str | None
    on_failure: str
    counts: dict[str, int]
    missing: int
    not_needed: int
    text: str = field(repr=False)
    jobs: tuple[WorkflowJob, ...] = field(kw_only=True, repr=False)
    _client: Client = field(kw_only=True, repr=False, compare=False)

    def __hash__(self) -> int:
        return hash(self.id)

    @Verb
    def refresh(self) -> Workflow:
        """The workflow as it is now."""
        return workflow(self._client, self._client.get(self._path()))

    @Verb
    def wait(self, timeout: float | str | timedelta | None = None) -> Workflow:
        """The workflow once all its jobs have ended. Raises TimeoutError if they have not by then; they go on."""
        until = None if timeout is None else time.monotonic() + parse_seconds(timeout, "timeout")
        while True:
            found = self._client.asked(self._path())
            tasks = [job["task"] for job in found["jobs"]]
            live = [task for task in tasks if not is_over(task)]
            if not live:
                return workflow(self._client, found)
            left = _TURN if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"workflow {self.id} is {found['state']} and has not ended within {timeout}")
            self._client.asked(f"/v1/tasks/{live[0]['id']}/wait", within=min(_TURN, left))

    @StreamVerb
    def logs(
        self, jobs: Iterable[str] | None = None, *, follow: bool = False, tail: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """Each line of output as the title of its job, and the text; job after job, in the order of `jobs`.

        `jobs`: only these, by name or title. `follow`: each until its end. To see jobs while others run, follow the
        logs of their tasks.
        """
        wanted = None if jobs is None else set(texts(jobs, "jobs"))
        shown = workflow(self._client, self._client.get(self._path())).jobs
        known = {name for job in shown for name in (job.job, job.title)}
        if missing := sorted((wanted or set()) - known):
            raise UsageError(f"the workflow has no job {missing[0][:60]!r}")
        for job in shown:
            if wanted is None or wanted & {job.job, job.title}:
                yield from ((job.title, line) for line in _lines(job.task, follow=follow, tail=tail))

    @Verb
    def stop(self, grace: float | str | timedelta | None = None) -> Workflow:
        """Stop all jobs that have not ended. Returns it when they have."""
        body = {"grace": None if grace is None else parse_seconds(grace, "grace")}
        self._client.post(self._path("/stop"), body)
        return workflow(self._client, self._client.get(self._path()))

    @Verb
    def retry(self, job: str | None = None) -> Workflow:
        """Run again what did not complete, and what was cancelled because of it; or a job and all that wait for it."""
        self._client.post(self._path("/retry"), {"job": job})
        return workflow(self._client, self._client.get(self._path()))

    @Verb
    def remove(self, *, force: bool = False) -> Workflow:
        """Remove it with all its tasks, containers and logs; returns it for the last time. `force` kills them first."""
        return workflow(self._client, self._client.delete(self._path(), force=force))

    @Verb
    def graph(self) -> str:
        """What waits for what, and how far it is, as the text of `agentless workflow show --graph`."""
        return graph_of(self._client.get(self._path())["jobs"])

    def _path(self, rest: str = "") -> str:
        return f"/v1/workflows/{self.id}{rest}"


def workflow(client: Client, found: Any) -> Workflow:
    """The workflow that is `found` as JSON."""
    jobs = tuple(parse(WorkflowJob, job, task=task(client, job["task"])) for job in found["jobs"])
    return parse(Workflow, found, jobs=jobs, _client=client)


def _lines(one: Task, *, follow: bool, tail: int | None) -> Iterator[str]:
    """The lines of a task; one that never started has none."""
    if not follow and one.started_at is None and one.container is None:
        return
    try:
        yield from one.logs(follow=follow, tail=tail, rank=one.gang.rank if one.gang else None)
    except AgentlessError:
        if one.refresh().state != "cancelled":
            raise
