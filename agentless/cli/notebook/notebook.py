"""`agentless notebook`: Jupyter on a GPU, with the current folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Unpack

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.command import Command
from agentless.cli.formats import TASKS
from agentless.cli.submit.with_options import with_options
from agentless.cli.tasks.ps import columns_for
from agentless.client.client import Client
from agentless.errors import UsageError
from agentless.rules.submit.options import OPTIONS, Options, options_of

_NOT_OFFERED = ("max_parallel", "zipped", "retries", "retry_on", "backoff")
_OFFERED = [option for option in options_of("task") if option.name not in _NOT_OFFERED]


class _Notebook(Command):
    common: ClassVar[set[str]] = {
        *("words", "listed", "no_browser"),
        *(option.name for option in _OFFERED if option.common),
    }


def add_to(app: typer.Typer) -> None:
    app.command(cls=_Notebook)(notebook)


@with_options(as_json=_OFFERED)
def notebook(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] [TARGET] [PATH]",
            help="A notebook or VPS that exists; or GPUs (1x:40G, node1::0) and a folder (default: the current one)",
            autocompletion=complete.tasks,
        ),
    ] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="List the notebooks that run")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address")] = False,
    as_json: Json = False,
    **options: Unpack[Options],
) -> int:
    """Open Jupyter on a GPU, with the current folder.

    Uploads the folder as agentless run does, prints the address with its token, and opens it in your browser. Ctrl-C
    asks whether to stop it. New and changed files come back when it ends. In a VPS it uses the files there.

    agentless notebook --container jupyter
    agentless notebook 1x:40G --container jupyter ~/project
    agentless notebook dev
    agentless notebook --list
    """
    served = client(context)
    if listed:
        return _list(served, words, as_json=as_json)
    if as_json:
        raise UsageError("--json needs --list")
    from agentless.cli.notebook.session import Session
    from agentless.cli.notebook.start import existing, new, read

    targets, folder, name = read(served, words or ())
    if not name:
        shown, listeners = new(served, targets, folder, options)
    elif given := [OPTIONS[key].flag for key, value in options.items() if value and value != OPTIONS[key].default]:
        raise UsageError(f"{name} exists already, so {given[0]} cannot be set; omit it")
    else:
        shown, listeners = existing(served, name)
    return Session(context, served, shown, listeners, browser=not no_browser).run()


def _list(served: Client, words: Sequence[str] | None, *, as_json: bool) -> int:
    from agentless.client.notebook import is_notebook

    if words:
        raise UsageError("--list lists all notebooks; omit the other words")
    found = [task for task in served.get("/v1/tasks") if is_notebook(task)]
    columns = [each for each in columns_for(found) if each.title != "COMMAND"]
    TASKS.format(as_json, None).show(found, columns, "No notebooks. To start one: agentless notebook")
    return 0
