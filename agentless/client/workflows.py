"""A workflow as a request: as short as it can be, since most of a spec is as usual."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from agentless.client.client import Client
from agentless.client.files.snapshot import sent
from agentless.model.tasks.spec import TaskSpec
from agentless.rules.workflows.workflow import Workflow, WorkflowJob

_USUAL = asdict(TaskSpec(()))


def uploaded(served: Client, workflow: Workflow, say: Callable[[str], None]) -> Workflow:
    """The workflow with snapshots of what its jobs upload, which the controller has received; each is sent once."""
    known: dict[object, WorkflowJob] = {}
    jobs = []
    for job in workflow.jobs:
        uploads = job.asked.spec.uploads
        if uploads not in known:
            known[uploads] = replace(job, asked=sent(served, job.asked, say))
        spec = replace(job.asked.spec, uploads=known[uploads].asked.spec.uploads)
        jobs.append(replace(job, asked=replace(job.asked, spec=spec)))
    return replace(workflow, jobs=tuple(jobs))


def request_of(workflow: Workflow, text: str, *, dry_run: bool = False) -> dict[str, Any]:
    """The body of `POST /v1/workflows`."""
    return {
        "name": workflow.name,
        "text": text,
        "on_failure": workflow.on_failure,
        "secrets": dict(workflow.secrets),
        "dry_run": dry_run,
        "jobs": [
            {
                "name": job.name,
                "spec": {"command": job.asked.spec.command, **_unusual(asdict(job.asked.spec), _USUAL)},
                "target": next(iter(job.asked.targets), None),
                "requires": [edge if edge.one_of else edge[:2] for edge in job.requires],
                "artifacts": job.artifacts,
            }
            for job in workflow.jobs
        ],
    }


def with_starts(workflow: Workflow, starts: Iterable[dict[str, Any]]) -> list[tuple[WorkflowJob, list[dict[str, Any]]]]:
    """Each job with what became of it: an answer for each of its nodes."""
    answers = iter(starts)
    return [(job, list(islice(answers, job.asked.spec.gang_size))) for job in workflow.jobs]


def _unusual(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What is not as usual."""
    found = {key: value for key, value in values.items() if value != usual[key]}
    for part in found.keys() & {"needs", "terms"}:
        found[part] = _unusual(values[part], usual[part])
    return found
