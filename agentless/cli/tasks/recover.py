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
from agentless.cli.tasks.spec import in_full
from agentless.cli.workflows.go_on import go_on_by_hand, go_on_with, show_left
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
    go_on: Annotated[
        str | None,
        typer.Option(
            metavar="WORKFLOW[@DIGEST]",
            help="Start jobs of a workflow that do not go on by themselves; shows them, and asks",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every task with all its options")] = False,
    as_json: Json = False,
    output: Output = None,
) -> int:
    """Rebuild lost state from the containers on the nodes.

    Lists the tasks it found and asks, because without the state it cannot verify that they are yours. Recovered
    tasks are trusted, and may be retried on other nodes. Running tasks are not interrupted. Jobs of workflows that
    cannot have started go on, if the key in the configuration folder proves that the workflow is yours.
    """
    style = TASKS.format(as_json, output)
    served = client(context)
    with progress("Reading the tasks of all nodes"):
        found = served.get("/v1/recovery")
        left = served.get("/v1/recovery/workflows")
    for node, reason in found["silent"].items():
        say(f"{node} does not answer ({reason}). Run agentless recover again when it does")
    for name, number in found["envs"].items():
        say(assumed_words(name, number))
    if go_on is not None:
        return go_on_by_hand(served, left, found["specs"], go_on, yes=yes)
    chosen = _chosen(found["tasks"], tasks or [])
    if tasks:
        mine = {((found["specs"][task["id"]] or {}).get("job") or {}).get("workflow") for task in chosen}
        left = [workflow for workflow in left if workflow["id"] in mine]
    going = [workflow for workflow in left if any(job["decision"] == "goes_on" for job in workflow["jobs"])]
    if chosen and style.is_table:
        _show(chosen, found["specs"], verbose=verbose)
    show_left(left)
    if (chosen or going) and not yes:
        _confirm(len(chosen), len(going))
    taken = []
    if chosen:
        wanted = {"tasks": [task["id"] for task in chosen], "digests": found["digests"]}
        with progress("Recovering tasks"):
            taken = served.post("/v1/recovery", wanted)
    code = max((go_on_with(served, workflow) for workflow in going), default=0)
    if not style.is_table:
        style.print(taken)
    elif taken:
        say(f"Recovered {counted(len(taken), 'task')}. To list them: agentless ps --all")
    elif not left:
        say("Nothing to recover: all your tasks on the nodes are known here")
    return 4 if found["silent"] else code


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
            for line in in_full(task["id"], specs.get(task["id"], {})):
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


def _confirm(count: int, workflows: int) -> None:
    """Ask whether to take in what was shown; raises Refused unless a person says yes."""
    confirm(
        f"Recover {counted(count, 'task')}? From then on their options are trusted"
        if count
        else f"Go on with {counted(workflows, 'workflow')}?",
        "Nothing recovered. To recover only some: agentless recover TASK...",
        unattended=Refused(
            "Cannot ask for confirmation without a terminal. If all of these are yours: agentless recover --yes; "
            "if only some are: agentless recover --yes TASK..."
        ),
    )
