"""The verbs that change given tasks: retry, stop, kill, pause, resume, rm."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Annotated, Any

import typer

from agentless.cli.app import complain
from agentless.cli.arguments import Json, TaskArguments
from agentless.cli.client import client
from agentless.cli.confirm import Yes, confirm
from agentless.cli.output import Quiet, confirm_done, print_json, say
from agentless.cli.progress import Progress, progress
from agentless.cli.tasks.batch import BatchOption, chosen, members
from agentless.client.client import Client
from agentless.client.words import state
from agentless.errors import AgentlessError, UsageError
from agentless.model.tasks.task_id import first_try
from agentless.model.units import counted, format_duration, parse_duration

_AT_ONCE = 32
PATIENCE = 1.0
"""Seconds until a message says what the command waits for."""


def add_to(app: typer.Typer) -> None:
    app.command()(retry)
    app.command()(stop)
    app.command()(kill)
    app.command()(pause)
    app.command()(resume)
    app.command()(rm)


def retry(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    failed: Annotated[bool, typer.Option("--failed", help="With --batch: those of it that have failed.")] = False,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Try tasks again that have ended; each goes on as a new task, like ID-2."""
    served = client(context)
    if failed != (batch is not None):
        raise UsageError("--failed needs --batch, and --batch needs --failed: agentless retry --failed --batch TASK")
    if batch is None or tasks:
        wanted = chosen(served, tasks, batch)
    else:
        from agentless.model.tasks.task import FAILED

        wanted = [first_try(task["id"]) for task in members(served, batch) if task["state"] in FAILED]
        if not wanted:
            say("No failed tasks in the batch")
            return 0
    return _each(wanted, as_json, lambda task: served.post(f"/v1/tasks/{task}/retry"))


def stop(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    grace: Annotated[str | None, typer.Option(metavar="TIME", help="Between SIGTERM and SIGKILL.")] = None,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """End tasks gently: SIGTERM, a grace time, then SIGKILL."""
    seconds = None if grace is None else parse_duration(grace)
    served = client(context)
    return _each(
        chosen(served, tasks, batch, live=True),
        as_json,
        lambda task: served.post(f"/v1/tasks/{task}/stop", {"grace": seconds}),
        waiting=lambda left: _what_it_waits_for(served, left, seconds),
    )


def _what_it_waits_for(served: Client, tasks: list[str], grace: float | None) -> str:
    if len(tasks) > 1:
        return f"Sent SIGTERM. Waiting for {len(tasks)} tasks to end; SIGKILL follows after their grace time"
    found = served.get(f"/v1/tasks/{tasks[0]}")
    if found["node"] and served.get(f"/v1/nodes/{found['node']}")["state"] == "offline":
        return f"Waiting for {found['node']}, which does not answer"
    if grace is None:
        grace = served.get(f"/v1/tasks/{found['id']}/spec")["stop_grace"]
    return f"Sent SIGTERM. Waiting for task {found['id']} to end; SIGKILL follows after {format_duration(grace)}"


def kill(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    yes: Yes = False,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """End tasks at once: SIGKILL."""
    served = client(context)
    wanted = chosen(served, tasks, batch, live=True)
    if batch is not None and wanted and not yes:
        confirm(f"Kill {counted(len(wanted), 'task')} of batch {batch}; unsaved work is lost", "Nothing killed")
    return _each(wanted, as_json, lambda task: served.post(f"/v1/tasks/{task}/kill"))


def pause(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Freeze tasks; they keep their GPUs and what is in GPU memory."""
    served = client(context)
    return _each(chosen(served, tasks, batch, live=True), as_json, lambda task: served.post(f"/v1/tasks/{task}/pause"))


def resume(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Let paused tasks go on."""
    served = client(context)
    return _each(chosen(served, tasks, batch, live=True), as_json, lambda task: served.post(f"/v1/tasks/{task}/resume"))


def rm(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Kill live ones first.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Remove ended tasks with all their tries: the container on the node, its log, and the record here."""
    served = client(context)
    wanted = chosen(served, tasks, batch)
    if wanted and not (yes or force):
        what = f"task {wanted[0]}" if len(wanted) == 1 else f"{len(wanted)} tasks"
        confirm(f"Remove {what}, with containers, logs and records", "Nothing removed")
    return _each(
        wanted,
        as_json,
        lambda task: served.delete(f"/v1/tasks/{task}", force=force),
        "removed",
    )


def _show_wait(shown: Progress, late: list[str], waiting: Callable[[list[str]], str] | None) -> None:
    with contextlib.suppress(AgentlessError):
        if late and shown.is_shown:
            shown.update(waiting(late) if waiting else f"Waiting for {counted(len(late), 'task')}")
        elif late and waiting:
            say(waiting(late))


def _each(
    tasks: list[str],
    as_json: bool,
    act: Callable[[str], dict[str, Any]],
    word: str | None = None,
    waiting: Callable[[list[str]], str] | None = None,
) -> int:
    """Act on all tasks at the same time; each fails alone. `waiting` says what those that take longer wait for."""
    from concurrent.futures import ThreadPoolExecutor
    from concurrent.futures import wait as wait_for

    def one(task: str) -> dict[str, Any] | AgentlessError:
        try:
            return act(task)
        except AgentlessError as error:
            return error

    code, done = 0, []
    pool = ThreadPoolExecutor(min(_AT_ONCE, len(tasks) or 1))
    try:
        acts = {pool.submit(one, task): task for task in tasks}
        not_done = wait_for(acts, PATIENCE).not_done
        with progress() as shown:
            _show_wait(shown, [task for each, task in acts.items() if each in not_done], waiting)
            for result in (each.result() for each in acts):
                if isinstance(result, AgentlessError):
                    complain(str(result))
                    code = code or result.exit_code
                    continue
                done.append(result)
                if not as_json:
                    confirm_done(f"{result['id']}  {word or state(result)}")
    except KeyboardInterrupt:
        say("", "Interrupted. The request continues; to see it: agentless ps")
        raise
    finally:
        pool.shutdown(wait=False)
    if as_json:
        print_json(done)
    return code
