"""`agentless events`: every change of state with its cause, from the record and as it happens."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json, moment, path_words
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.output import print_line, say
from agentless.cli.pager import paged
from agentless.client.words import where
from agentless.model.moment import format_moment


def add_to(app: typer.Typer) -> None:
    app.command()(events)


def events(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]", help="Only events of this task", autocompletion=complete.tasks, callback=path_words
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new events until Ctrl-C")] = False,
    last: Annotated[
        int | None,
        typer.Option("--last", "-n", min=0, max=1_000_000, metavar="N", help="Show the last N events (default: 50)"),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Show events newer than 10min, 2h or 2026-05-01T12:00")
    ] = None,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """Show what happened to tasks and nodes, and why.

    --json prints one object per line.
    """
    style = _EVENTS.format(as_json, output)
    served = client(context)
    if last is None:
        last = 50 if since is None and task is None else 1_000_000
    query = {"task": task, "last": last, "since": None if since is None else moment(since, "--since")}
    if style.word in ("name", "fields") and not follow:
        style.show(list(served.events(follow=False, **query)), (), "")
        return
    none = True
    with contextlib.nullcontext() if follow else paged():
        print_event = style.printer(flush=follow)
        for event in served.events(follow=follow, **query):
            none = False
            if style.is_table:
                print_line(_line(event), flush=follow)
            else:
                print_event(event)
    if none and style.is_table:
        say("No events yet" if since is None else "No events since then")


def _line(event: dict[str, Any]) -> str:
    when = format_moment(event["at"], "seconds")
    if event["kind"] == "task":
        task = event["task"]
        reason = task["reason"] if task["reason"] not in (None, "", event["cause"]) else ""
        if event["event"] == "idle":
            reason = ""  # the cause says it
        words = f"{event['event']:13} {task['state']:10} {where(task):12} {event['cause']}"
        return f"{when}  {task['id']}  {words}{': ' + reason if reason else ''}"
    if event["kind"] == "node" and "event" in event:
        return f"{when}  {'node':11}  {event['node']} {event['event']}: {event['cause']}"
    if event["kind"] == "node":
        reason = f": {event['reason']}" if event["reason"] else ""
        return f"{when}  {'node':11}  {event['node']} is {event['state']}{reason}"
    about = f"env {event['env']}" if event["kind"] == "env" else event["kind"]
    return f"{when}  {about:11}  {event['event']}: {event['cause']}"


def _subject(event: dict[str, Any]) -> str:
    return str(event["task"]["id"] if event["kind"] == "task" else event.get("node") or event["kind"])


_EVENTS = Kind("view.EventView", _subject)
