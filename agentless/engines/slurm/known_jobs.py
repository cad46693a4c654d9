"""Jobs that were seen with the name or the comment of their task: somebody may change both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agentless.model.containers.container import Container


class KnownJobs:
    """The jobs of the last look. Number and time of submission are those of one job, also after Slurm counts anew."""

    def __init__(self) -> None:
        self._seen: dict[str, Container] = {}

    def recognized(self, found: Iterable[Container], *, whole: bool) -> tuple[Container, ...]:
        """These jobs, without doubt about those that were known before; `whole`: there are no others."""
        jobs = {each.id: self._recognized(each) for each in found}
        known = {key: each for key, each in jobs.items() if not each.doubtful}
        self._seen = known if whole else {**self._seen, **known}
        return tuple(jobs.values())

    def know(self, job: Container) -> None:
        """Have seen this job."""
        self._seen[job.id] = replace(job, doubtful=False)

    def submitted(self, job: str) -> str:
        """When a job was submitted, in Unix seconds; empty if that is unknown."""
        seen = self._seen.get(job)
        return f"{seen.created_at:.0f}" if seen and seen.created_at else ""

    def _recognized(self, job: Container) -> Container:
        seen = self._seen.get(job.id)
        if not job.doubtful or seen is None or job.created_at is None or seen.created_at != job.created_at:
            return job
        return replace(job, labels=seen.labels, signed=seen.signed, doubtful=False)
