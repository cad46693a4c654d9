"""Arguments and options that several verbs have."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.errors import NotFound, UsageError


def path_words(words: Any) -> Any:
    """Check an argument whose words become parts of a URL path; raises NotFound for one that cannot.

    Duplicates are dropped.
    """
    for word in [words] if isinstance(words, str) else words or ():
        if not word or "/" in word:
            raise NotFound(f"No task or node named {word!r}. To list them: agentless ps --all, agentless nodes")
    return list(dict.fromkeys(words)) if isinstance(words, list) else words


Json = Annotated[bool, typer.Option("--json", help="Print JSON with stable field names")]
TaskArgument = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="Task id, unique prefix of an id, or task name",
        autocompletion=complete.tasks,
        callback=path_words,
    ),
]
TaskArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TASK]...",
        help="Task ids, id prefixes, or task names",
        autocompletion=complete.tasks,
        callback=path_words,
    ),
]

NodeArgument = Annotated[
    str, typer.Argument(metavar="NODE", help="Node name", autocompletion=complete.nodes, callback=path_words)
]
ManyNodes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NODE]...",
        help="Node names (default: all nodes)",
        autocompletion=complete.targets,  # also clusters, which most of these verbs take
        callback=path_words,
    ),
]
EnvVersionArgument = Annotated[
    str, typer.Argument(metavar="NAME[:N]", help="Env name, and version number", autocompletion=complete.envs)
]
EnvArgument = Annotated[str, typer.Argument(metavar="NAME", help="Env name", autocompletion=complete.envs)]


def moment(text: str, option: str) -> float:
    """Unix seconds of a duration ago, or of a date; a date without a zone is local time."""
    from agentless.model.moment import parse_past

    try:
        return parse_past(text, time.time())
    except UsageError as error:
        raise UsageError(f"{option} {error}") from None
