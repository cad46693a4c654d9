"""The tasks of one batch: its members, its progress, its results."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import path_words
from agentless.cli.output import say
from agentless.cli.progress import progress
from agentless.cli.table import Column, show
from agentless.cli.tasks.gang import one_of_each
from agentless.client.client import Client, is_over
from agentless.client.words import ran, state, where, why
from agentless.errors import UsageError
from agentless.model.tasks.task_id import first_try
from agentless.model.text import printable

TURN = 1.0
"""Seconds between two requests while a batch is awaited."""
_LONGEST_TURN = 10.0
_PART = 0.2
"""The most of the time in which a large batch is asked for, until a turn is that long."""

BatchOption = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="TASK",
        help="All tasks in the batch of this task",
        autocompletion=complete.tasks,
        callback=path_words,
    ),
]


def members(served: Client, batch: str) -> list[dict[str, Any]]:
    """The tasks of the batch that this task is in; of a retried one the last try."""
    found: list[dict[str, Any]] = served.asked("/v1/tasks", ended=True, batch=batch, limit=0)
    return [task for task in found if task["retried_as"] is None]


def chosen(served: Client, tasks: list[str] | None, batch: str | None, *, live: bool = False) -> list[str]:
    """The named tasks, or all of a batch; with `live` only those of it that have not ended."""
    if bool(tasks) == bool(batch):
        raise UsageError("Which task? Give ids or names, or --batch NAME; to list tasks, run: agentless ps --all")
    if batch is None:
        return tasks or []
    # Without the number of a try, since another one may run by now.
    found = one_of_each(members(served, batch))
    return [first_try(task["id"]) for task in found if not live or task["ended_at"] is None]


def wait_for_batch(served: Client, batch: str) -> list[dict[str, Any]]:
    """The tasks of a batch once all have ended; shows the progress on a terminal, and at the end how they ended."""
    try:
        tasks = until_ended(served, batch)
    except KeyboardInterrupt:
        say("", f"The batch keeps running. To stop it: agentless stop --batch {batch}")
        raise
    if sys.stderr.isatty():
        say(summary(tasks))
    return tasks


def until_ended(served: Client, batch: str) -> list[dict[str, Any]]:
    """The tasks of a batch once all have ended; shows the progress on a terminal."""
    with progress() as shown:
        while True:
            began = time.monotonic()
            tasks = members(served, batch)
            turn = min(max(TURN, (time.monotonic() - began) / _PART), _LONGEST_TURN)
            live = [task for task in tasks if not is_over(task)]
            if not live:
                return tasks
            shown.update(summary(tasks), done=len(tasks) - len(live), total=len(tasks))
            # The last one: most often it ends last.
            served.asked(f"/v1/tasks/{live[-1]['id']}/wait", within=turn)


def summary(tasks: Sequence[dict[str, Any]]) -> str:
    """`4 of 6 done: 3 completed, 1 failed; 2 running`."""
    ended = Counter(task["state"] for task in tasks if task["ended_at"] is not None)
    live = Counter(task["state"] for task in tasks if task["ended_at"] is None)
    parts = [", ".join(f"{count} {word}" for word, count in each.items()) for each in (ended, live)]
    head = f"{ended.total()} of {len(tasks)} done"
    return head + (f": {parts[0]}" if parts[0] else "") + (f"; {parts[1]}" if parts[1] else "")


def show_results(tasks: Sequence[dict[str, Any]]) -> None:
    """Print how each task ended, beside the parameters by which it differs from the others."""
    from agentless.model.tasks.task import FAILED

    show([Column("ID", lambda task: task["id"]), *parameters_of(tasks), *_RESULTS], tasks)
    if sys.stderr.isatty() and (failed := next((task for task in tasks if task["state"] in FAILED), None)):
        say(
            f"Output of the first that failed: agentless logs {failed['id']}",
            f"Retry all that failed: agentless retry --failed --batch {failed['batch']}",
        )


def parameters_of(tasks: Sequence[dict[str, Any]]) -> list[Column]:
    """A column for each parameter."""
    names = dict.fromkeys(name for task in tasks for name in task["parameters"])
    return [Column(printable(name), _value(name)) for name in names]


def announce_batch(tasks: Sequence[dict[str, Any]]) -> None:
    """Print the id and the progress of a batch that was started, and the next commands."""
    batch = tasks[0]["batch"]
    say(f"Batch {batch}: {summary(tasks)}")
    say(f"List its tasks: agentless ps --batch {batch}    Wait for it: agentless wait --batch {batch}")


def _value(name: str) -> Any:
    return lambda task: str(task["parameters"].get(name, ""))


_RESULTS = [
    Column("STATE", state),
    Column("WHERE", where),
    Column("TIME", ran, right=True),
    Column("REASON", why, wraps=True),
]
