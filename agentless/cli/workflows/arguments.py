"""Arguments and options that several verbs about workflows have."""

from __future__ import annotations

from typing import Annotated

import typer

from agentless.cli import complete
from agentless.cli.arguments import path_words

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="File of the workflow, such as train.yaml")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a parameter of the file; may be repeated"),
]
Runtime = Annotated[
    list[str] | None,
    typer.Option("--runtime", metavar="NAME=ENV", help="Env for a runtime that the file names; may be repeated"),
]
LiveWorkflowArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW",
        help="Workflow id, unique prefix of an id, or name",
        autocompletion=complete.live_workflows,
        callback=path_words,
    ),
]
WorkflowArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW",
        help="Workflow id, unique prefix of an id, or name",
        autocompletion=complete.workflows,
        callback=path_words,
    ),
]
