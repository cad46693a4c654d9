"""`agentless explain`: why a task is pending, what would help, and what would happen to a new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Unpack

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.command import Command
from agentless.cli.output import print_json, print_line
from agentless.cli.pager import paged
from agentless.cli.submit.with_options import with_options
from agentless.cli.table import wrapped
from agentless.client.client import Client
from agentless.client.http import RequestFailed
from agentless.client.words import explained
from agentless.errors import AgentlessError, UsageError
from agentless.model.nodes.node import all_named, naming
from agentless.model.scheduling.needs import is_counted
from agentless.rules.submit.cluster import is_place_alone
from agentless.rules.submit.options import OPTIONS, Option, Options
from agentless.rules.submit.task_request import Outside, task_request

_NEEDS = (
    "gang", "gpus", "gpu_memory", "gpu_type", "gpu_share", "node", "exclude", "on", "cores", "memory", "exclusive",
    "share", "policy", "priority", "owner", "time_limit", "signal_before", "stop_grace", "preemptible",
    "requires", "after_batch", "if_impossible", "overflow", "image", "container",
)  # fmt: skip
"""The options of a submit that decide where and when a task starts."""


def _of_explain(name: str) -> Option:
    """The option without the default of `submit`: `explain` asks only for what is given."""
    option = OPTIONS[name]
    return replace(option, default=None if option.argument_type is not bool else False)


def add_to(app: typer.Typer) -> None:
    app.command(cls=_Explaining)(explain)


class _Explaining(Command):
    """Shows the most used options in its short help."""

    common: ClassVar[set[str]] = {
        *(name for name in _NEEDS if OPTIONS[name].common),
        "task",
        "there",
        "target",
        "as_json",
    }


@with_options(as_json=[_of_explain(name) for name in OPTIONS if name in _NEEDS])
def explain(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK|TARGET]",
            help="A pending task, or a request such as 2xA100:40G, node1::0 or node1::0/1",
            autocompletion=complete.tasks,
            show_default=False,
        ),
    ] = None,
    there: Annotated[
        str | None,
        typer.Argument(metavar="[COUNTxTYPE]", help="GPUs there, as in explain hpc 8x", show_default=False),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", metavar="TARGET", help="A target, even if a task has that name")
    ] = None,
    *,
    as_json: Json = False,
    **options: Unpack[Options],
) -> None:
    """Explain why a task is pending, and what would help.

    Shows the obstacle on each node, and when the task is expected to start. With a request instead of a task, predicts
    what would happen if you submitted it.

    agentless explain 4k7q
    agentless explain 2x:40G --time-limit 2h
    """
    if there is not None:
        if target is not None or not task or not is_place_alone(task) or not is_counted(there):
            raise UsageError(
                f"unexpected argument {there!r}; to explain GPUs of a cluster, use: agentless explain hpc 8x"
            )
        task, target = None, f"{task} {there}"
    found = _found(client(context), task, target, options)
    if as_json:
        print_json(found)
    else:
        with paged():
            _print(found)


def _print(found: Any) -> None:
    _print_wrapped(0, found["summary"])
    if preemption := found.get("preemption"):
        _print_wrapped(2, preemption)
    if helps := found.get("helps"):
        _print_wrapped(2, f"would help: {'; or '.join(helps)}")
    for nodes, obstacles, helps in explained(found):
        for text, details in obstacles:
            _print_wrapped(2, naming(all_named(nodes), text))
            for line in details:
                _print_wrapped(4, line)
        if helps:
            _print_wrapped(4, f"would help: {'; or '.join(helps)}")


def _print_wrapped(indent: int, text: str) -> None:
    """Print a text in lines that fit the terminal; those after the first stand two columns further in."""
    first, *others = wrapped(text, indent + 2)
    print_line(" " * indent + first)
    for line in others:
        print_line(" " * (indent + 2) + line)


def _found(served: Client, word: str | None, target: str | None, options: Options) -> Any:
    """The answer about a task, or about one that could be submitted."""
    asked = any(value is not None and value is not False for value in options.values())
    if word is None and target is None and not asked:
        raise UsageError("Specify a pending task, or a request such as: agentless explain 2x:40G")
    # A slice, like node1::0/1, is no path of a URL.
    if not word or asked or "/" in word:
        return _what_if(served, tuple(filter(None, (word, target))), options)
    if target is not None:
        raise UsageError("Specify a task or --target, not both")
    try:
        return served.get(f"/v1/tasks/{word}/explain")
    except RequestFailed as error:
        # Any word may be the name of a node: it is a target if it looks like one, or if there is one.
        if error.error != "NotFound":
            raise
        try:
            return _what_if(served, (word,), options)
        except AgentlessError as other:
            raise (other if ":" in word or not isinstance(other, RequestFailed) else error) from None


def _what_if(served: Client, targets: tuple[str, ...], options: Options) -> Any:
    wanted = task_request(("true",), targets, options, Outside(0.0, {}, lambda _: ()))
    return served.post("/v1/explain", wanted.request())
