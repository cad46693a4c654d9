"""A workflow that was read from its file: jobs, each one task, in an order in which they may start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.model.tasks.job import OnFailure
from agentless.rules.submit.task_request import TaskRequest

Place = tuple[int, int]
"""Line and column in the file, both from 1."""

ENDS = ("completed", "failed", "ended")
"""How a job may be required to end."""


def job_title(name: str, parameters: Mapping[str, str]) -> str:
    """The name of a job, with the values by which it differs from others of its name: `train[lr=0.1]`."""
    values = ",".join(f"{key}={value}" for key, value in parameters.items())
    return f"{name}[{values}]" if values else name


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """A job: one task. `requires` has the numbers of the jobs that it waits for, and how each has to end.

    `place` is where it begins in the file. `artifacts` are paths that jobs which wait for it find in `/artifacts`.
    """

    name: str
    place: Place
    asked: TaskRequest
    requires: tuple[tuple[int, str], ...] = ()
    artifacts: tuple[str, ...] = ()

    @property
    def parameters(self) -> Mapping[str, str]:
        """The values by which it differs from others of its name."""
        return self.asked.spec.parameters

    @property
    def title(self) -> str:
        """Its name, with these values."""
        return job_title(self.name, self.parameters)


@dataclass(frozen=True, slots=True)
class Workflow:
    """The jobs, each behind those that it waits for. `notes` are sentences about what the file asks for in vain."""

    name: str
    jobs: tuple[WorkflowJob, ...]
    on_failure: OnFailure = "continue"
    notes: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
