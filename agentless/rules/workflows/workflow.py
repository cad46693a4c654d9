"""A workflow that was read from its file: jobs, each one task, in an order in which they may start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agentless.model.tasks.job import OnFailure
from agentless.rules.submit.task_request import TaskRequest

Place = tuple[int, int]
"""Line and column in the file, both from 1."""

ENDS = ("completed", "failed", "all_failed", "ended")
"""How a job may be required to end."""


class Edge(NamedTuple):
    """A job that another one waits for, by its number, and how it has to end.

    Edges of a job with the same `one_of`, which is not 0, are met together: all have ended, and one of them so.
    """

    job: int
    state: str
    one_of: int = 0


def job_title(name: str, parameters: Mapping[str, str]) -> str:
    """The name of a job, with the values by which it differs from others of its name: `train[lr=0.1]`."""
    values = ",".join(f"{key}={value}" for key, value in parameters.items())
    return f"{name}[{values}]" if values else name


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """A job: one task, and the others that it `requires`.

    `place` is where it begins in the file. `artifacts` are paths that jobs which wait for it find in `/artifacts`.
    """

    name: str
    place: Place
    asked: TaskRequest
    requires: tuple[Edge, ...] = ()
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
