"""`agentless recover`: take back tasks that are on the nodes and not in the state."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Annotated, Any

import typer

from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.confirm import confirm
from agentless.cli.formats import TASKS, Output
from agentless.cli.output import say
from agentless.cli.pager import paged
from agentless.cli.progress import progress
from agentless.cli.tasks.ps import columns_for
from agentless.errors import Refused, UsageError
from agentless.model.units import counted
from agentless.rules.images.envs import assumed_words

_LISTED = 20
"""Maximum number of tasks that are listed without --verbose."""


def add_to(app: typer.Typer) -> None:
    app.command()(recover)


def recover(
    context: typer.Context,
    tasks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TASK]...", help="Task ids or id prefixes (default: all tasks found)"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every task with all its options")] = False,
    as_json: Json = False,
    output: Output = None,
) -> int:
    """Rebuild lost state from the containers on the nodes.

    Lists the tasks it found and asks, because without the state it cannot verify that they are yours. Recovered
    tasks are trusted, and may be retried on other nodes. Running tasks are not interrupted.
    """
    style = TASKS.format(as_json, output)
    served = client(context)
    with progress("Reading the tasks of all nodes"):
        found = served.get("/v1/recovery")
    for node, reason in found["silent"].items():
        say(f"{node} does not answer ({reason}). Run agentless recover again when it does")
    for name, number in found["envs"].items():
        say(assumed_words(name, number))
    chosen = _chosen(found["tasks"], tasks or [])
    if chosen and style.is_table:
        _show(chosen, found["specs"], verbose=verbose)
    if chosen and not yes:
        _confirm(len(chosen))
    taken = []
    if chosen:
        wanted = {"tasks": [task["id"] for task in chosen], "digests": found["digests"]}
        with progress("Recovering tasks"):
            taken = served.post("/v1/recovery", wanted)
    if not style.is_table:
        style.print(taken)
    elif taken:
        say(f"Recovered {counted(len(taken), 'task')}. To list them: agentless ps --all")
    else:
        say("Nothing to recover: all your tasks on the nodes are known here")
    return 4 if found["silent"] else 0


def _chosen(found: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """The named tasks, or all if none is named; raises UsageError for a name of none or several."""
    chosen = dict[str, dict[str, Any]]()
    for name in names:
        meant = [task for task in found if task["id"] == name] or [t for t in found if t["id"].startswith(name)]
        if len(meant) != 1:
            several = f"{name} matches {len(meant)} tasks" if meant else f"No task {name} to recover"
            raise UsageError(f"{several}. To list them: agentless recover")
        chosen[meant[0]["id"]] = meant[0]
    return list(chosen.values()) if names else found


def _show(chosen: list[dict[str, Any]], specs: dict[str, Any], *, verbose: bool) -> None:
    """Show the tasks: live ones first, ended ones only as far as a screen has room, unless `verbose`."""
    with paged() if verbose else contextlib.nullcontext():
        listed = chosen if verbose else sorted(chosen, key=lambda task: task["ended_at"] is not None)[:_LISTED]
        TASKS.format(as_json=False, output=None).show(listed, columns_for(listed), "")
        for task in chosen if verbose else ():
            for line in _in_full(task["id"], specs.get(task["id"], {})):
                say(line)
        if left := len(chosen) - len(listed):
            say(f"and {left} more; to see all, with all their options: agentless recover --verbose")
        _say_summary(chosen, [specs.get(task["id"], {}) for task in chosen])


def _say_summary(chosen: list[dict[str, Any]], specs: list[dict[str, Any]]) -> None:
    """Count the tasks by what decides whether they are yours, and whether they may be trusted."""
    for title, values in (
        ("States", [task["state"] for task in chosen]),
        ("Nodes", [task["node"] for task in chosen]),
        ("Owners", [task["owner"] for task in chosen]),
        ("Images", [task["image"] for task in chosen]),
        ("Mounted folders", [mount["source"] for spec in specs for mount in spec.get("mounts") or ()]),
    ):
        most = Counter(map(str, values)).most_common(_LISTED)
        if most:
            say(f"{title}: {', '.join(f'{word} ({count})' for word, count in most)}")


def _confirm(count: int) -> None:
    """Ask whether to take in what was shown; raises Refused unless a person says yes."""
    confirm(
        f"Recover {counted(count, 'task')}? From then on their options are trusted",
        "Nothing recovered. To recover only some: agentless recover TASK...",
        unattended=Refused(
            "Cannot ask for confirmation without a terminal. If all of these are yours: agentless recover --yes; "
            "if only some are: agentless recover --yes TASK..."
        ),
    )


def _in_full(task: str, spec: dict[str, Any]) -> list[str]:
    """All fields of a spec that are not defaults, as YAML, whose quotes escape control characters."""
    import yaml
    from pydantic import TypeAdapter

    from agentless.model.tasks.spec import TaskSpec

    plain = TypeAdapter(TaskSpec).dump_python(TaskSpec(("",)), mode="json")
    given = {key: value for key, value in spec.items() if value != plain.get(key)}
    for part in ("needs", "terms"):
        if part in given:
            given[part] = {key: value for key, value in given[part].items() if value != plain[part].get(key)}
    return str(yaml.safe_dump({task: given}, sort_keys=False, width=120)).splitlines()
