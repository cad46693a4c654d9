"""`agentless recover`: take back tasks that are on the nodes and not in the state."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.output import print_json, say
from agentless.cli.table import show
from agentless.cli.tasks.ps import columns_for
from agentless.errors import Refused, UsageError
from agentless.rules.images.envs import assumed_words


def add_to(app: typer.Typer) -> None:
    app.command()(recover)


def recover(
    context: typer.Context,
    tasks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TASK]...", help="Task ids, or beginnings of ids (default: all tasks found)"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    as_json: Json = False,
) -> int:
    """Rebuild lost state from the containers on the nodes.

    Shows each task in full, then asks: without the state, nothing proves that a task is yours. Recovered tasks are
    trusted, and may be retried on other nodes. Running tasks are not interrupted.
    """
    served = client(context)
    found = served.get("/v1/recovery")
    for node, reason in found["silent"].items():
        say(f"{node} does not tell its tasks ({reason}); run agentless recover again when it does")
    for name, number in found["envs"].items():
        say(assumed_words(name, number))
    chosen = _chosen(found["tasks"], tasks or [])
    if chosen and not as_json:
        show(columns_for(chosen), chosen)
        for task in chosen:
            for line in _in_full(task["id"], found["specs"].get(task["id"], {})):
                say(line)
    if chosen and not yes:
        _confirm(len(chosen))
    taken = []
    if chosen:
        wanted = {"tasks": [task["id"] for task in chosen], "digests": found["digests"]}
        taken = served.post("/v1/recovery", wanted)
    if as_json:
        print_json(taken)
    elif taken:
        say(f"recovered {len(taken)}; agentless ps --all lists them")
    else:
        say("nothing to recover: every task of yours on the nodes is remembered here")
    return 4 if found["silent"] else 0


def _chosen(found: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """The named tasks, or all if none is named; raises UsageError for a name of none or several."""
    chosen = dict[str, dict[str, Any]]()
    for name in names:
        meant = [task for task in found if task["id"] == name] or [t for t in found if t["id"].startswith(name)]
        if len(meant) != 1:
            several = f"means {len(meant)} tasks" if meant else "is nothing to recover"
            raise UsageError(f"{name} {several}; agentless recover without a name shows what there is, and asks")
        chosen[meant[0]["id"]] = meant[0]
    return list(chosen.values()) if names else found


def _confirm(count: int) -> None:
    """Ask whether to take in what was shown; raises Refused unless a person says yes."""
    if not sys.stdin.isatty():
        raise Refused(
            "nothing was written, since there is no terminal to ask at; if all of these are yours: "
            "agentless recover --yes; if only some are: agentless recover --yes TASK..."
        )
    question = f"Take in {'these' if count > 1 else 'this'} {count}? What is shown above is trusted from then on"
    if not typer.confirm(question, default=False, err=True):
        raise Refused("nothing was written; agentless recover TASK... takes in only those that you name")


def _in_full(task: str, spec: dict[str, Any]) -> list[str]:
    """All fields of a spec that are not defaults, as YAML, whose quotes escape control characters."""
    import yaml
    from pydantic import TypeAdapter

    from agentless.model.tasks.spec import TaskSpec

    plain = TypeAdapter(TaskSpec).dump_python(TaskSpec(("",)), mode="json")
    said = {key: value for key, value in spec.items() if value != plain.get(key)}
    for part in ("needs", "terms"):
        if part in said:
            said[part] = {key: value for key, value in said[part].items() if value != plain[part].get(key)}
    return str(yaml.safe_dump({task: said}, sort_keys=False, width=120)).splitlines()
