"""`agentless submit`: argv to a TaskSpec, one request, and what became of each target."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Unpack

import typer

from agentless.cli import complete
from agentless.cli.app import complain
from agentless.cli.client import client
from agentless.cli.command import WithCommand, command_of
from agentless.cli.output import be_quiet, say
from agentless.cli.progress import progress
from agentless.cli.submit.ports import take
from agentless.cli.submit.report import report
from agentless.cli.submit.steps import showing
from agentless.cli.submit.with_options import with_options
from agentless.client.client import Client
from agentless.client.files.span_files import read_lines
from agentless.errors import UsageError
from agentless.model.tasks.task_id import first_try
from agentless.paths import current_dir
from agentless.rules.submit.cluster import joined, may_be_joined
from agentless.rules.submit.options import OUTPUT, WHERE, Options, options_of
from agentless.rules.submit.task_request import Outside, TaskRequest, task_request


class Submitting(WithCommand):
    """Shows the most used options in its short help, and where some others are."""

    also = "--nodes and --preemptible"
    common: ClassVar[set[str]] = {
        *(option.name for option in options_of("task") if option.common),
        *("targets", "wait", "follow", "dry_run", "as_json"),
    }


def add_to(app: typer.Typer) -> None:
    app.command(cls=Submitting)(submit)


@with_options(wait=options_of("task"))
def submit(
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="GPUs of a node (node1::0,1) or Slurm cluster (hpc 2xA100), or any (2x, 2xA100:40G); node1 is no GPU",
            autocompletion=complete.targets,
        ),
    ] = None,
    more_targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="TARGET",
            help="Same as TARGET",
            autocompletion=complete.targets,
            rich_help_panel=WHERE,
        ),
    ] = None,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end, and return the exit code", rich_help_panel=OUTPUT)
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait, and show the output", rich_help_panel=OUTPUT)
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script for the node; start nothing", rich_help_panel=OUTPUT)
    ] = False,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Take command and options from this YAML or JSON file; those typed here win",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with stable field names", rich_help_panel=OUTPUT)
    ] = False,
    _: Annotated[
        bool,
        typer.Option("--quiet", "-q", callback=be_quiet, help="Print errors and warnings only", rich_help_panel=OUTPUT),
    ] = False,
    **options: Unpack[Options],
) -> int:
    """Run a command on GPUs, or queue it until they are free.

    Spans in the command start a sweep: one task for each combination of values.

    agentless submit node1::0 -- python train.py --lr 0.1
    agentless submit 2xA100:40G --time-limit 8h -- python train.py
    agentless submit --gpus 1 -- python train.py --lr 'span:[0.1,0.01]'
    """
    all_targets = targets_of(context, targets, more_targets)
    outside = Outside(time.time(), os.environ, read_lines, current_dir())
    if file is None:
        asked = task_request(command_of(context), all_targets, options, outside)
    else:
        asked = _in_file(context, file, all_targets, options, outside)
    if follow and (asked.count > asked.spec.gang_size or len(asked.sweep) > 1):
        raise UsageError("--follow works with one task only; use --wait, then agentless logs -f --batch TASK")
    return show(context, client(context), asked, wait=wait, follow=follow, as_json=as_json, dry_run=dry_run)


def _in_file(
    context: typer.Context, path: str, targets: Sequence[str], options: Options, outside: Outside
) -> TaskRequest:
    """The request of a file; what was typed is in place of what the file has."""
    from agentless.client.files.workflow_file import task_in

    found, typed = task_in(path), _typed(context, options)
    say(*(f"{path}: {note}" for note in found.notes))
    wanted = {name: value for name, value in found.options.items() if not targets or name not in _PLACES}
    if not targets and not typed.keys() & _PLACES:
        targets = found.targets
    words = command_of(context) or found.command
    return task_request(words, targets, {**wanted, **typed}, outside)  # type: ignore[typeddict-item]


def _typed(context: typer.Context, options: Options) -> dict[str, Any]:
    """The options without those that only have their default."""
    given = [(name, value, context.get_parameter_source(name)) for name, value in options.items()]
    return {name: value for name, value, source in given if source is not None and source.name == "COMMANDLINE"}


_PLACES = {"gpus", "gpu_type", "gpu_memory", "node", "exclude"}
"""Options in whose place a target can be given."""


def show(
    context: typer.Context,
    served: Client,
    asked: TaskRequest,
    *,
    wait: bool,
    follow: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Send it, forward its ports while it is followed, report what becomes of it, and return the exit code."""
    forward = take(context, asked.spec.ports if follow and not dry_run else ())
    starts = post(served, asked, dry_run=dry_run)
    for start in starts:
        if task := start["task"]:
            forward(first_try(task["id"]))
    return report(served, asked, starts, wait=wait, follow=follow, as_json=as_json, dry_run=dry_run)


def targets_of(context: typer.Context, *typed: Sequence[str] | None) -> list[str]:
    """The targets that were typed: `hpc 2xA100` is one if `hpc` is a cluster. Raises UsageError as `check_targets`."""
    targets = [target for each in typed for target in each or ()]
    check_targets(context, targets)
    if may_be_joined(targets):
        targets = [*joined(targets, {each["name"] for each in client(context).get("/v1/clusters")})]
    return targets


def check_targets(context: typer.Context, targets: Sequence[str]) -> None:
    """Raise UsageError for a command among the targets, with how to write it."""
    commands = [target for target in targets if len(target.split()) > 1]
    if commands and not command_of(context):
        others = " ".join(target for target in targets if target not in commands) or "..."
        words = commands[0]
        if not re.fullmatch(r"[\w\s@%+=:,./-]*", words):
            words = f"sh -c {shlex.quote(words)}"
        raise UsageError(f"Write the command after --: agentless {context.info_name} {others} -- {words}")


def post(served: Client, asked: TaskRequest, *, dry_run: bool) -> list[dict[str, Any]]:
    """Upload its files, send the request, and return what became of each task."""
    try:
        if asked.spec.uploads and not dry_run:
            from agentless.client.files.snapshot import sent

            with progress(f"Uploading {', '.join(each.source for each in asked.spec.uploads)}"):
                asked = sent(served, asked, complain)
        request = {**asked.request(dry_run=dry_run), "request": os.urandom(8).hex()}
        with showing(served, lambda event: event.get("request") == request["request"], time.time(), "Starting"):
            starts: list[dict[str, Any]] = served.submit(request)
    except KeyboardInterrupt:
        say("", "Interrupted while starting. The task may be running; to check: agentless ps")
        raise
    return starts
