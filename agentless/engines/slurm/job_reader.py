"""The jobs of Slurm as containers: which task is whose, its state and its end."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from agentless.engines.slurm.jobs import MAX_JOBS, Job, parse_jobs
from agentless.engines.slurm.reasons import reason_words
from agentless.errors import TooMuch
from agentless.model.command import Result
from agentless.model.containers.claim import CONTROLLER, TASK
from agentless.model.containers.container import Container, ContainerState
from agentless.model.containers.signature import SIGNATURE, Signer
from agentless.model.tasks.task import Outcome

_NAME = re.compile(r"agentless-([0-9a-z-]{4,40})")
_COMMENT = re.compile(r"agentless ([0-9a-z-]{4,40}) ([0-9A-Za-z-]{1,64}) (1:[0-9a-f]{64})")
_FOLDER = re.compile(
    r"(agentless-[0-9a-z-]{4,40})\|([0-9]{1,10}(?:_[0-9]{1,10})?) ([0-9]{1,3}) ([0-9]{1,11}) ([0-9]{1,11}) "
    r"(told |oom )?(.{1,300})"
)
_YEAR = 180 * 86400.0
"""Slurm takes a job without a time limit for one of a year, from its start: who waits for it starts no sooner than this
after it was submitted, unless that job had run for half a year by then."""
_OUTCOMES: Mapping[str, Outcome] = {
    "TIMEOUT": "timeout", "DEADLINE": "timeout", "CANCELLED": "killed", "PREEMPTED": "preempted",
}  # fmt: skip
"""How a job ended that nobody here has stopped."""
_IN_VAIN = "waited for a job that did not end as required"
_OOM = "OUT_OF_MEMORY"
_NO_NODES = "known"
"""The compute nodes of a job of which only its script has said that it began."""
_TOLD = "TOLD"
"""The state of a job of which only its script has said that Slurm told it to end."""
_ENDS = {
    _TOLD: "its job was ended by Slurm: cancelled, preempted, or at its time limit",
    "NODE_FAIL": "a node of its job failed",
    "BOOT_FAIL": "a node of its job did not boot",
    "CANCELLED": "its job was cancelled on the cluster, outside agentless",
    "PREEMPTED": "its job was preempted by Slurm",
    "TIMEOUT": "reached the time limit of its job",
    "DEADLINE": "reached the deadline of its job",
}


class JobReader:
    """Reads the jobs in the answers of one cluster, `node` by name. `partition` is None for Slurm's own choice."""

    def __init__(self, node: str, partition: str | None, signer: Signer) -> None:
        self._node = node
        self._partition = partition
        self._signer = signer
        # Most jobs are as in the look before.
        self._known = functools.lru_cache(MAX_JOBS)(self._container)

    def read(self, answer: Result) -> Iterable[Container]:
        """The jobs in an answer. Raises TooMuch if it is cut off: what it lacks is not gone."""
        listed, mark, rest = f"\n{answer.out}\n".partition("\nended:\n")
        ended, whole, _ = rest.rpartition("whole\n")
        if not (mark and whole) or max(listed.count("\n"), ended.count("\n")) > MAX_JOBS:
            raise TooMuch(f"{self._node}: too many jobs of agentless in the answer of squeue; remove some")
        # What Slurm says of a job counts more than what its script wrote at its end.
        noted = [job for line in ended.splitlines() if (job := _ended_job(line))]
        found = [*noted, *parse_jobs(ended), *parse_jobs(listed)]
        oom = {job.id for job in noted if job.state == _OOM}
        found = [replace(job, state=_OOM) if job.id in oom and job.state == "FAILED" else job for job in found]
        jobs = {each.id: each for job in found if (each := self._known(job))}
        for job in found:
            if (key := f"{job.id}:{job.noted}") not in jobs and _NAME.fullmatch(job.noted):
                jobs[key] = self._as_container(job, job.noted, {}, signed=False, doubtful=True)
        return jobs.values()

    # ------------------------------------------------------------------ inside

    def _container(self, job: Job) -> Container | None:
        """A job of a task. By its signed comment, if it has one: its owner may have changed the name."""
        comment, name = _COMMENT.match(job.comment), _NAME.fullmatch(job.name)
        labels = {}
        if comment:
            labels = {TASK: comment[1], CONTROLLER: comment[2], SIGNATURE: comment[3]}
        signed = self._signer.has_signed(labels, self._node)
        if not signed and name is None:
            return None
        task = comment[1] if signed and comment else name[1] if name else ""
        return self._as_container(job, f"agentless-{task}", labels if signed else {TASK: task}, signed=signed)

    def _as_container(
        self, job: Job, name: str, labels: Mapping[str, str], *, signed: bool, doubtful: bool = False
    ) -> Container:
        state, words = _state(job, self._partition)
        in_vain = job.state == "CANCELLED" and job.reason.startswith("DependencyNeverSatisfied")
        return Container(
            id=f"{job.id}:{name}",
            name=name,
            state=state,
            labels=labels,
            exit_code=job.code,
            oom_killed=job.state == _OOM,
            error=_IN_VAIN if in_vain else words,
            outcome="cancelled" if in_vain else _OUTCOMES.get(job.state),
            created_at=job.submitted,
            started_at=job.start if job.started else None,
            finished_at=job.end if job.over and job.started else None,
            expected_at=_expected(job),
            awaits=job.awaits,
            compute_nodes=job.nodes if job.started and job.nodes != _NO_NODES else "",
            signed=signed,
            doubtful=doubtful,
        )


def _ended_job(line: str) -> Job | None:
    """A job that Slurm may have forgotten, by what its script wrote at its end."""
    if (match := _FOLDER.fullmatch(line)) is None:
        return None
    name, number, code, began, ended, told, comment = match.groups()
    state = {"told ": _TOLD, "oom ": _OOM}.get(told or "") or ("FAILED" if int(code) else "COMPLETED")
    known = int(code) if int(code) < 256 else None
    return Job(number, state, "", known, 0, None, float(began), float(ended), _NO_NODES, name, comment)


def _expected(job: Job) -> float | None:
    """When a job that waits starts, if Slurm knows it."""
    return job.start if job.waits and not (job.is_held or _is_behind_endless(job)) else None


def _is_behind_endless(job: Job) -> bool:
    """Whether it starts when a job without a time limit ends."""
    far = job.start is not None and (job.submitted is None or job.start - job.submitted > _YEAR)
    return far and job.reason != "BeginTime"


def _state(job: Job, partition: str | None) -> tuple[ContainerState, str]:
    """The state of a job as that of a container, and why."""
    if job.waits:
        words = reason_words(job.reason, job.id, partition)
        return "queued", f"{words}; no time limit ahead of it, so no estimate" if _is_behind_endless(job) else words
    if job.is_paused:
        return "paused", ""
    if job.runs:
        return "running", ""
    if not job.started and job.state == "FAILED":
        return "exited", reason_words(job.reason, job.id, partition)
    return "exited", _ENDS.get(job.state, "")
