"""`agentless workflow logs`: the output of all jobs, each line with the name of its job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.client import client
from agentless.cli.tasks.logs import copy_many_logs
from agentless.cli.workflows.arguments import WorkflowArgument
from agentless.cli.workflows.show import check_jobs, title
from agentless.client.client import Client
from agentless.model.tasks.task_id import first_try
from agentless.model.text import printable


def logs(
    context: typer.Context,
    workflow: WorkflowArgument,
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB]...", help="Jobs (default: all)", autocompletion=complete.jobs)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the jobs end")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Show the last N lines")] = None,
) -> int:
    """Show the output of jobs; each line begins with the name of its job."""
    served = client(context)
    found = check_jobs(served.get(f"/v1/workflows/{workflow}"), jobs or ())
    return copy_logs(served, found, follow=follow, tail=tail)


def copy_logs(served: Client, jobs: Sequence[dict[str, Any]], *, follow: bool, tail: int | None = None) -> int:
    """Copy the logs of these jobs to stdout and stderr. Jobs that never started have none."""
    shown = [job for job in jobs if follow or job["task"]["container"] or job["task"]["started_at"]]
    labels = {first_try(job["task"]["id"]): printable(_label(job)) for job in shown}
    return copy_many_logs(served, labels, {"follow": follow, "tail": tail}, but_cancelled=True)


def _label(job: dict[str, Any]) -> str:
    """Its title; of a job on several nodes with the rank of the node."""
    gang = job["task"].get("gang")
    return f"{title(job)} {gang['rank']}" if gang else title(job)
