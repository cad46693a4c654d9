"""`agentless workflow`: jobs that wait for each other."""

from __future__ import annotations

import typer

from agentless.cli.output import print_json, print_line, say
from agentless.cli.workflows.arguments import FileArgument, Runtime, Set
from agentless.cli.workflows.change import retry, rm, stop
from agentless.cli.workflows.logs import logs
from agentless.cli.workflows.run import run
from agentless.cli.workflows.show import show, show_list
from agentless.model.units import counted


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Run jobs that wait for each other, from a file.")
    group.command()(run)
    group.command()(validate)
    group.command("list")(show_list)
    group.command()(show)
    group.command()(logs)
    group.command()(stop)
    group.command()(retry)
    group.command()(rm)
    group.command()(schema)
    app.add_typer(group, name="workflow")


def validate(file: FileArgument, settings: Set = None, runtimes: Runtime = None) -> None:
    """Check the file of a workflow, without asking the controller.

    `agentless workflow run --dry-run` also checks whether the jobs fit the nodes.
    """
    from agentless.client.files.workflow_file import workflow_in

    found, _ = workflow_in(file, settings, runtimes)
    for note in found.notes:
        say(note)
    names = dict.fromkeys(job.name for job in found.jobs)
    tasks = f", {counted(len(found.jobs), 'task')}" if len(found.jobs) > len(names) else ""
    print_line(f"{file}: {counted(len(names), 'job')}{tasks}, no errors")


def schema() -> None:
    """Print the JSON Schema of the file, for editors."""
    from agentless.rules.workflows.schema import schema as of_file

    print_json(of_file())
