"""`agentless workflow stop`, `retry` and `rm`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.confirm import Yes, confirm
from agentless.cli.output import Quiet, confirm_done, print_json
from agentless.cli.progress import progress
from agentless.cli.workflows.arguments import LiveWorkflowArgument, WorkflowArgument
from agentless.cli.workflows.show import summary
from agentless.client.client import Client
from agentless.errors import Refused, UsageError
from agentless.model.units import counted, parse_duration


def stop(
    context: typer.Context,
    workflow: LiveWorkflowArgument,
    grace: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between SIGTERM and SIGKILL (default: the jobs')")
    ] = None,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Stop all jobs of a workflow that have not ended."""
    seconds = None if grace is None else parse_duration(grace)
    with progress(f"Stopping {workflow}"):
        found = client(context).post(f"/v1/workflows/{workflow}/stop", {"grace": seconds})
    _print(found, as_json)


def retry(
    context: typer.Context,
    workflow: WorkflowArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Run again what did not complete (default)")] = False,
    job: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="JOB",
            help="Run this job again, and all that wait for it",
            autocompletion=complete.jobs,
        ),
    ] = None,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Run jobs again, each as a new try of its task.

    By default those that failed or were stopped, and those that wait for them.

    agentless workflow retry 4k7q
    agentless workflow retry 4k7q --from train
    agentless workflow retry 4k7q --from 'train[lr=0.1]'
    """
    if failed and job is not None:
        raise UsageError("--failed and --from cannot be combined; use one of them")
    _print(client(context).post(f"/v1/workflows/{workflow}/retry", {"job": job}), as_json)


def rm(
    context: typer.Context,
    workflow: WorkflowArgument,
    force: Annotated[bool, typer.Option("--force", "-f", help="Kill live jobs first")] = False,
    yes: Yes = False,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Remove a workflow with all its tasks, their containers and logs."""
    served = client(context)
    found = served.get(f"/v1/workflows/{workflow}")
    if workflow != found["id"]:
        _check_one(served, workflow)
    if not (yes or force):
        tasks = counted(len(found["jobs"]), "task")
        confirm(f"Remove workflow {found['id']} ({found['name']}) with {tasks}, containers and logs", "Nothing removed")
    removed = served.delete(f"/v1/workflows/{found['id']}", force=force)
    if as_json:
        print_json(removed)
    else:
        confirm_done(f"{removed['id']}  removed")


def _check_one(served: Client, name: str) -> None:
    """Raise Refused if several workflows have this name: each time, another one would be removed."""
    same = [each["id"] for each in served.get("/v1/workflows") if each["name"] == name]
    if len(same) > 1:
        raise Refused(
            f"{len(same)} workflows are named {name}; to remove the newest, run: agentless workflow rm {same[0]}; "
            "to list all, run: agentless workflow list"
        )


def _print(found: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        confirm_done(summary(found))
