"""The verbs about tasks: ps, show, wait, stop, kill, pause, resume, rm."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import typer

from agentless.cli.common import Json, TaskArgument, TaskArguments, client, print_json, say, warn
from agentless.cli.table import Column, or_dash, show
from agentless.errors import AgentlessError
from agentless.model.units import format_duration, format_size, parse_duration


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(ps)
    app.command("show")(show_task)
    app.command()(wait)
    app.command()(stop)
    app.command()(kill)
    app.command()(pause)
    app.command()(resume)
    app.command()(rm)


def ps(
    context: typer.Context,
    ended: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own.")] = False,
    batch: Annotated[str | None, typer.Option(metavar="TASK", help="Only the batch that this task is in.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="With --all: this many ended ones.")] = 100,
    as_json: Json = False,
) -> None:
    """List tasks: what is live on the nodes, whoever started it."""
    served = client(context)
    found = served.get("/v1/tasks", ended=ended, mine=mine, batch=batch, limit=limit)
    warn(served)
    if as_json:
        print_json(found)
        return
    if not found:
        say("no live task" + ("" if ended else "; agentless ps --all lists those that have ended"))
        return
    columns = [
        Column("ID", lambda task: task["id"]),
        Column("STATE", _state),
        Column("TARGET", lambda task: task["target"]),
        Column("TIME", _time, right=True),
        Column("NAME", lambda task: task["name"] or ""),
        Column("OWNER", lambda task: task["owner"]),
        Column("COMMAND", _what, flexible=True),
    ]
    if not any(task["name"] for task in found):
        columns = [column for column in columns if column.title != "NAME"]
    if all(task["mine"] for task in found):
        columns = [column for column in columns if column.title != "OWNER"]
    show(columns, found)


def show_task(context: typer.Context, task: TaskArgument, as_json: Json = False) -> None:
    """Show all that is known of one task, and what happened to it."""
    served = client(context)
    found = served.get(f"/v1/tasks/{task}")
    warn(served)
    if as_json:
        print_json(found)
        return
    memory = found["memory_bytes"]
    lines = {
        "id": found["id"],
        "name": found["name"],
        "state": _state(found),
        "reason": found["reason"],
        "target": found["target"],
        "gpus": ", ".join(found["gpu_uuids"]),
        "image": found["image"],
        "command": _words(found),
        "cores": found["cores"],
        "memory": format_size(memory) if memory else None,
        "variables": ", ".join(found["env_names"]),
        "labels": ", ".join(f"{key}={value}" for key, value in found["labels"].items()),
        "batch": found["batch"] if found["batch"] != found["id"] else None,
        "owner": found["owner"],
        "created": _local(found["created_at"]),
        "started": _local(found["started_at"]),
        "ended": _local(found["ended_at"]),
        "ran": _time(found) if found["started_at"] else None,
        "exit code": found["exit_code"],
        "container": found["container"] and found["container"][:12],
    }
    for key, value in lines.items():
        if value not in (None, ""):
            print(f"{key:>10}  {value}")
    for event in served.get(f"/v1/tasks/{found['id']}/events"):
        when = datetime.fromtimestamp(event["at"]).strftime("%H:%M:%S")
        then = event["task"]
        print(f"{when:>10}  {event['event']} → {then['state']}" + (f": {then['reason']}" if then["reason"] else ""))


def wait(context: typer.Context, tasks: TaskArguments, as_json: Json = False) -> int:
    """Wait until tasks have ended. The exit code is the task's own; of several, the first that is not 0."""
    served = client(context)
    ended = []
    for task in tasks:
        try:
            ended.append(served.get(f"/v1/tasks/{task}/wait"))
        except KeyboardInterrupt:
            say(f"\nThe task goes on. End it: agentless stop {task}")
            raise
    warn(served)
    if as_json:
        print_json(ended)
    codes = [t["exit_code"] if t["exit_code"] is not None else int(t["state"] != "completed") for t in ended]
    return next((code for code in codes if code), 0)


def stop(
    context: typer.Context,
    tasks: TaskArguments,
    grace: Annotated[str | None, typer.Option(metavar="TIME", help="Between SIGTERM and SIGKILL.")] = None,
    as_json: Json = False,
) -> int:
    """End tasks gently: SIGTERM, a grace time, then SIGKILL."""
    seconds = None if grace is None else parse_duration(grace)
    served = client(context)
    return _each(tasks, as_json, lambda task: served.post(f"/v1/tasks/{task}/stop", {"grace": seconds}))


def kill(context: typer.Context, tasks: TaskArguments, as_json: Json = False) -> int:
    """End tasks at once: SIGKILL."""
    served = client(context)
    return _each(tasks, as_json, lambda task: served.post(f"/v1/tasks/{task}/kill"))


def pause(context: typer.Context, tasks: TaskArguments, as_json: Json = False) -> int:
    """Freeze tasks; they keep their GPUs and what is in GPU memory."""
    served = client(context)
    return _each(tasks, as_json, lambda task: served.post(f"/v1/tasks/{task}/pause"))


def resume(context: typer.Context, tasks: TaskArguments, as_json: Json = False) -> int:
    """Let paused tasks go on."""
    served = client(context)
    return _each(tasks, as_json, lambda task: served.post(f"/v1/tasks/{task}/resume"))


def rm(
    context: typer.Context,
    tasks: TaskArguments,
    force: Annotated[bool, typer.Option("--force", "-f", help="Kill live ones first.")] = False,
    as_json: Json = False,
) -> int:
    """Remove ended tasks: the container on the node, its log, and the record here."""
    served = client(context)
    return _each(tasks, as_json, lambda task: served.delete(f"/v1/tasks/{task}", force=force), "removed")


def _each(tasks: list[str], as_json: bool, act: Callable[[str], dict[str, Any]], word: str | None = None) -> int:
    """Act on each task, all at the same time; each fails alone."""
    from concurrent.futures import ThreadPoolExecutor

    def one(task: str) -> dict[str, Any] | AgentlessError:
        try:
            return act(task)
        except AgentlessError as error:
            return error

    code, done = 0, []
    with ThreadPoolExecutor(len(tasks)) as pool:
        for task, result in zip(tasks, pool.map(one, tasks), strict=True):
            if isinstance(result, AgentlessError):
                say(f"agentless: {result}")
                code = code or result.exit_code
                continue
            done.append(result)
            if not as_json:
                print(f"{result['id']}  {word or _state(result)}")
    if as_json:
        print_json(done)
    return code


def _state(task: dict[str, Any]) -> str:
    code = task["exit_code"]
    return task["state"] + (f" ({code})" if code else "")


def _words(task: dict[str, Any]) -> str:
    import shlex

    return shlex.join(task["command"])


def _what(task: dict[str, Any]) -> str:
    return _words(task) + (f"  [{task['reason']}]" if task["reason"] else "")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _time(task: dict[str, Any]) -> str:
    began = task["started_at"]
    if began is None:
        return or_dash(None)
    ended = _seconds(task["ended_at"]) if task["ended_at"] else time.time()
    return format_duration(ended - _seconds(began))


def _local(text: str | None) -> str | None:
    return None if text is None else datetime.fromtimestamp(_seconds(text)).strftime("%Y-%m-%d %H:%M:%S")
