"""`agentless workflow run`: submits all jobs of a file, and shows what becomes of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.app import complain
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.output import Quiet, is_quiet, print_json, print_line, say
from agentless.cli.progress import progress
from agentless.cli.table import Column, show
from agentless.cli.tasks.batch import until_ended
from agentless.cli.workflows.arguments import FileArgument, Runtime, Set
from agentless.cli.workflows.logs import copy_logs
from agentless.cli.workflows.show import exit_code, print_jobs
from agentless.client.client import Client
from agentless.model.units import counted
from agentless.rules.workflows.workflow import Workflow, WorkflowJob

_NAMED = 20


def run(
    context: typer.Context,
    file: FileArgument,
    settings: Set = None,
    runtimes: Runtime = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--node",
            metavar="NODE",
            help="Run all jobs on this node or cluster, whatever the file says",
            autocompletion=complete.nodes,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, and return the exit code")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait, and show the output of all jobs")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check whether all jobs fit, and start nothing")] = False,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Run the jobs of a file: each starts when those that it requires have ended.

    All jobs are checked first; if one of them can never run, nothing is started.

    agentless workflow run train.yaml --set epochs=10
    agentless workflow run train.yaml --node hpc --wait
    """
    from agentless.client.files.workflow_file import workflow_in
    from agentless.client.workflows import request_of, uploaded, with_starts

    workflow, text = workflow_in(file, settings, runtimes, node)
    say(*(f"{file}: {note}" for note in workflow.notes))
    served = client(context)
    if not dry_run:
        with progress("Uploading files"):
            workflow = uploaded(served, workflow, complain)
    try:
        with progress(f"Starting {counted(len(workflow.jobs), 'job')}"):
            found = served.submit(request_of(workflow, text, dry_run=dry_run), "/v1/workflows")
    except KeyboardInterrupt:
        say("", "Interrupted while starting. The workflow may be running; to check: agentless workflow list")
        raise
    starts = with_starts(workflow, found["starts"])
    problems = [(*job.place, job.title, start) for job, its in starts for start in its if start["exit_code"]]
    _complain_of(file, problems)
    code = max((each[-1]["exit_code"] for each in problems), default=0)
    if dry_run:
        return code or _show_plan(workflow, starts, as_json=as_json)
    if found["workflow"] is None:
        say("Nothing was started")
        return code or 1
    return _report(served, found["workflow"], code, wait=wait, follow=follow, as_json=as_json)


def _complain_of(file: str, problems: Sequence[tuple[int, int, str, dict[str, Any]]]) -> None:
    """Print for each job why it was refused, with its place in the file."""
    told = dict.fromkeys(
        f"{file}:{line}:{column}: {name}: {start['message']}"
        for line, column, name, start in problems
        if start["message"]
    )
    for message in list(told)[:_NAMED]:
        complain(message)
    if len(told) > _NAMED:
        complain(f"and {len(told) - _NAMED} more jobs")


def _show_plan(
    workflow: Workflow, starts: Sequence[tuple[WorkflowJob, Sequence[dict[str, Any]]]], *, as_json: bool
) -> int:
    """What a dry run found, job by job."""
    rows = []
    for job, its in starts:
        names = dict.fromkeys(workflow.jobs[number].name for number, *_ in job.requires)
        message = next((start["message"] for start in its if start["message"]), "would start now")
        where = ", ".join(start["place"] for start in its if start["place"])
        rows.append({"job": job.title, "where": where, "then": f"waits for {', '.join(names)}" if names else message})
    if as_json:
        print_json(rows)
        return 0
    columns = [
        Column("JOB", lambda row: row["job"], flexible=True),
        Column("WHERE", lambda row: row["where"]),
        Column("THEN", lambda row: row["then"], wraps=True),
    ]
    show(columns, rows)
    return 0


def _report(served: Client, workflow: dict[str, Any], code: int, *, wait: bool, follow: bool, as_json: bool) -> int:
    """Print the id, wait for the end if asked to, and return the exit code."""
    key = workflow["id"]
    if workflow["not_carried"]:
        say(f"If the state is lost, recover cannot go on with this workflow: {workflow['not_carried']}")
    if not as_json:
        jobs = sum(workflow["counts"].values())
        if sys.stdout.isatty() and not is_quiet():
            print_line(f"{key}  {workflow['name']}: {counted(jobs, 'job')} submitted")
            if not (wait or follow):
                say(f"See how far it is: agentless workflow show {key}    Stop it: agentless workflow stop {key}")
        elif not follow:
            print_line(key, flush=True)
    if not (wait or follow):
        if as_json:
            print_json(workflow)
        return code
    try:
        if follow:
            shown = served.get(f"/v1/workflows/{key}")
            copy_logs(served, shown["jobs"], follow=True)
        until_ended(served, key)
    except KeyboardInterrupt:
        say("", f"The workflow keeps running. To stop it: agentless workflow stop {key}")
        raise
    ended = served.get(f"/v1/workflows/{key}")
    if as_json:
        print_json(ended)
    elif not is_quiet() and (sys.stdout.isatty() or not follow):  # a pipe gets the output of the jobs, and nothing else
        print_jobs(ended)
    return code or exit_code(ended)
