"""`agentless logs`: the stdout and stderr of a task, to ours."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Container, Iterator, Mapping
from threading import Lock
from typing import Annotated, Any, BinaryIO

import typer

from agentless.cli.app import complain, warn
from agentless.cli.arguments import TaskArguments, moment
from agentless.cli.client import client
from agentless.cli.output import has_colours, say
from agentless.cli.table import width
from agentless.cli.tasks.batch import BatchOption, chosen, members
from agentless.cli.tasks.gang import RankOption, members_of, with_rank
from agentless.cli.tasks.interrupted import saying_what_stays
from agentless.client.client import Client
from agentless.client.words import WAITING
from agentless.errors import AgentlessError
from agentless.model.tasks.task_id import first_try
from agentless.model.text import printable


def add_to(app: typer.Typer) -> None:
    app.command()(logs)


def logs(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    rank: RankOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the task ends")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Show the last N lines")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Show lines newer than 10min, 2h or 2026-05-01T12:00")
    ] = None,
    only_stdout: Annotated[bool, typer.Option("--stdout", help="Show standard output only")] = False,
    only_stderr: Annotated[bool, typer.Option("--stderr", help="Show standard error only")] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Begin each line with its timestamp (clock of the node)")
    ] = False,
) -> int:
    """Show the output of tasks.

    With several tasks, each line begins with the id of its task; in a batch, with the parameters of its task; of a
    task on several nodes, with the rank of the node.

    agentless logs -f 4k7q
    agentless logs --batch 4k7q --tail 5
    """
    streams = {1, 2} if only_stdout == only_stderr else {1} if only_stdout else {2}
    query = {
        "follow": follow,
        "tail": tail,
        "since": None if since is None else moment(since, "--since"),
        "timestamps": timestamps or None,
    }
    served = client(context)
    if batch is not None and not tasks:
        labels = {first_try(task["id"]): _label(task) for task in members(served, batch)}
        return copy_many_logs(served, labels, query, streams)
    wanted = chosen(served, tasks, batch)
    if len(wanted) > 1:
        return copy_many_logs(served, {task: task for task in wanted}, query, streams)
    wanted = [with_rank(served, wanted[0], rank)]
    with saying_what_stays(served, wanted[0]) if follow else contextlib.nullcontext():
        if follow and sys.stderr.isatty():
            _say_that_it_waits(served, wanted[0])
        if rank is None and (ranks := members_of(served, wanted[0])):
            return copy_many_logs(served, ranks, query, streams)
        copy_log(served, wanted[0], query, streams)
    return 0


def _say_that_it_waits(served: Client, name: str) -> None:
    task = served.get(f"/v1/tasks/{name}")
    if task["state"] in WAITING:
        why = f" ({task['reason']})" if task["reason"] else ""
        say(f"task {task['id']} is {task['state']}{why}; its output appears here once it starts")


def copy_log(
    served: Client, task: str, query: Mapping[str, Any], streams: Container[int] = (1, 2), *, patient: bool = False
) -> None:
    """Copy a log to stdout and stderr as it arrives; notes of the controller go to stderr.

    `patient`: with `follow`, wait for a node that does not answer.
    """
    for fd, data in _frames(served, task, query, patient=patient):
        if fd == 3:
            warn(data.decode(errors="replace"))
        elif fd in streams:
            _out(fd).write(data)
            _out(fd).flush()


def _frames(
    served: Client, task: str, query: Mapping[str, Any], *, patient: bool = False
) -> Iterator[tuple[int, bytes]]:
    path, part = f"/v1/tasks/{task}/logs", {key: value for key, value in query.items() if key != "follow"}
    return served.followed(path, patient=patient, **part) if query.get("follow") else served.frames(path, **part)


def copy_many_logs(
    served: Client,
    labels: Mapping[str, str],
    query: Mapping[str, Any],
    streams: Container[int] = (1, 2),
    *,
    but_cancelled: bool = False,
) -> int:
    """Copy several logs at the same time, line by line; with `but_cancelled`, a cancelled task need not have one.

    On a terminal the labels are in columns and in colours.
    """
    from concurrent.futures import ThreadPoolExecutor

    marks = {fd: _marks(labels, coloured=has_colours() and _out(fd).isatty()) for fd in (1, 2)}

    def copy(task: str) -> int:
        rest = {1: b"", 2: b""}
        try:
            for fd, data in _frames(served, task, query):
                if fd == 3:
                    warn(f"{labels[task]}: {data.decode(errors='replace')}")
                elif fd in streams:
                    *lines, rest[fd] = (rest[fd] + data).split(b"\n")
                    _write(fd, b"".join(marks[fd][task] + line + b"\n" for line in lines))
        except AgentlessError as error:
            if but_cancelled and served.get(f"/v1/tasks/{task}")["state"] == "cancelled":
                return 0
            complain(f"{labels[task]}: {error}")
            return error.exit_code
        finally:
            for fd, line in rest.items():
                _write(fd, marks[fd][task] + line + b"\n" if line else b"")
        return 0

    pool = ThreadPoolExecutor(_AT_ONCE if query["follow"] else 1)
    try:
        return next(filter(None, pool.map(copy, labels)), 0)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _marks(labels: Mapping[str, str], *, coloured: bool) -> dict[str, bytes]:
    """What stands in front of the lines of each log."""
    if not coloured:
        return {task: f"{label} | ".encode() for task, label in labels.items()}
    wide = max(map(width, labels.values()), default=0)
    colours = {label: _COLOURS[number % len(_COLOURS)] for number, label in enumerate(dict.fromkeys(labels.values()))}
    return {
        task: f"\033[{colours[label]}m{label}{' ' * (wide - width(label))} |\033[0m ".encode()
        for task, label in labels.items()
    }


def _out(fd: int) -> BinaryIO:
    return (sys.stdout if fd == 1 else sys.stderr).buffer


def _write(fd: int, data: bytes) -> None:
    with _lock:
        _out(fd).write(data)
        _out(fd).flush()


def _label(task: dict[str, Any]) -> str:
    return printable(" ".join(f"{name}={value}" for name, value in task["parameters"].items()) or task["id"])


_AT_ONCE = 256
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
_lock = Lock()
"""Held while a whole line is written."""
