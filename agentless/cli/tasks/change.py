"""The verbs that change given tasks: retry, stop, kill, pause, resume, rm."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
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
from agentless.client.words import job_of, state
from agentless.errors import AgentlessError, Refused, UsageError
from agentless.model.tasks.task_id import first_try
from agentless.model.units import counted, format_duration, parse_duration

_AT_ONCE = 32
_IN_ONE = 500
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
    failed: Annotated[bool, typer.Option("--failed", help="With --batch: retry only failed tasks")] = False,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Run ended tasks again, each as a new try such as ID-2.

    agentless retry 4k7q
    agentless retry --failed --batch 4k7q
    """
    served = client(context)
    if failed != (batch is not None):
        lack = "--failed needs --batch" if failed else "--batch needs --failed"
        raise UsageError(f"{lack}: agentless retry --failed --batch {batch or 'TASK'}")
    if batch is None or tasks:
        wanted = chosen(served, tasks, batch)
    else:
        from agentless.model.tasks.task import FAILED

        failed_tasks = [task for task in members(served, batch) if task["state"] in FAILED]
        wanted = list(dict.fromkeys(first_try((task.get("gang") or task)["id"]) for task in failed_tasks))
        if not wanted:
            say("No failed tasks in the batch")
            return 0
    return _each(wanted, as_json, lambda task: served.post(f"/v1/tasks/{task}/retry"))


def stop(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Stop all live tasks; asks first")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="With --all: only your own tasks")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: do not ask")] = False,
    grace: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between SIGTERM and SIGKILL (default: the task's)")
    ] = None,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Stop tasks: SIGTERM, then SIGKILL after a grace period.

    Pending tasks leave the queue.

    agentless stop 4k7q train
    agentless stop --all --mine
    """
    seconds = None if grace is None else parse_duration(grace)
    if everything and (tasks or batch is not None):
        raise UsageError("--all stops all tasks; leave out the task ids and --batch")
    flag = "--mine" if mine else "--yes"
    if (mine or yes) and not everything:
        raise UsageError(f"{flag} needs --all: agentless stop --all {flag}")
    served = client(context)
    return _each(
        _all_live(served, mine=mine, yes=yes) if everything else chosen(served, tasks, batch, live=True),
        as_json,
        lambda task: served.post(f"/v1/tasks/{task}/stop", {"grace": seconds}),
        waiting=lambda left: _what_it_waits_for(served, left, seconds),
    )


def _all_live(served: Client, *, mine: bool, yes: bool) -> list[str]:
    """The live tasks, once somebody has agreed to stop them."""
    found = served.get("/v1/tasks", mine=mine)
    if not found:
        say("No live tasks")
    elif not yes:
        owners = Counter(task["owner"] + (" (you)" if task["mine"] else "") for task in found)
        whose = ", ".join(f"{count} of {owner}" for owner, count in owners.most_common())
        if not sys.stdin.isatty():
            raise UsageError(f"--all asks before it stops {counted(len(found), 'task')} ({whose}); to skip this: --yes")
        confirm(f"Stop {counted(len(found), 'task')} ({whose})", "Nothing stopped")
    return [first_try(task["id"]) for task in found]


def _what_it_waits_for(served: Client, tasks: list[str], grace: float | None) -> str:
    if len(tasks) > 1:
        return f"Stopping {len(tasks)} tasks: SIGTERM sent, SIGKILL after their grace period"
    found = served.get(f"/v1/tasks/{tasks[0]}")
    if job := job_of(found):
        return f"Stopping task {found['id']}, job {job} of {found['node']}"
    if found["node"] in [each["name"] for each in served.get("/v1/clusters")]:
        return f"Stopping task {found['id']} on its way to {found['node']}"
    if found["node"] and served.get(f"/v1/nodes/{found['node']}")["state"] == "offline":
        return f"{found['node']} does not answer; the stop is sent when it does"
    if grace is None:
        grace = served.get(f"/v1/tasks/{found['id']}/spec")["stop_grace"]
    return f"Stopping task {found['id']}: SIGTERM sent, SIGKILL after {format_duration(grace)}"


def kill(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    yes: Yes = False,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Kill tasks immediately with SIGKILL."""
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
    """Pause tasks; they keep their GPUs and GPU memory."""
    served = client(context)
    return _each(chosen(served, tasks, batch, live=True), as_json, lambda task: served.post(f"/v1/tasks/{task}/pause"))


def resume(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Resume paused tasks."""
    served = client(context)
    return _each(chosen(served, tasks, batch, live=True), as_json, lambda task: served.post(f"/v1/tasks/{task}/resume"))


def rm(
    context: typer.Context,
    tasks: TaskArguments = None,
    batch: BatchOption = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Kill live tasks first")] = False,
    yes: Yes = False,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Remove ended tasks, with their containers and logs.

    Removes all tries of a task, and its record.
    """
    served = client(context)
    wanted = chosen(served, tasks, batch)
    if wanted and not (yes or force) and sys.stdin.isatty():
        _confirm_removal(members(served, batch) if batch else [served.get(f"/v1/tasks/{task}") for task in wanted])
    if len(wanted) == 1:
        return _each(wanted, as_json, lambda task: served.delete(f"/v1/tasks/{task}", force=force), "removed")
    return _remove_all(served, wanted, as_json, force=force, part=batch is not None or len(wanted) > _IN_ONE)


def _remove_all(served: Client, tasks: list[str], as_json: bool, *, force: bool, part: bool) -> int:
    """Remove many tasks, so many in one request; each fails alone."""
    code, done = 0, []
    with progress() as shown:
        for at in range(0, len(tasks), _IN_ONE):
            shown.update(f"Removing {counted(len(tasks), 'task')}", done=at, total=len(tasks))
            some = {"tasks": tasks[at : at + _IN_ONE], "force": force, "part": part}
            for each in served.post("/v1/tasks/remove", some):
                if each["task"] is None:
                    complain(each["message"])
                    code = code or each["exit_code"]
                    continue
                done.append(each["task"])
                if not as_json:
                    confirm_done(f"{each['task']['id']}  removed")
    if as_json:
        print_json(done)
    return code


def _confirm_removal(tasks: list[dict[str, Any]]) -> None:
    """Ask, once it is certain that all words mean tasks that can be removed."""
    if live := next((task for task in tasks if task["ended_at"] is None), None):
        raise Refused(
            f"task {live['id']} is {live['state']}; first run: agentless stop {live['id']}, or use rm --force"
        )
    name = f" ({tasks[0]['name']})" if tasks[0]["name"] else ""
    what = f"task {first_try(tasks[0]['id'])}{name}" if len(tasks) == 1 else f"{len(tasks)} tasks"
    confirm(f"Remove {what}, with containers, logs and records", "Nothing removed")


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
