"""`agentless logs`: a task's two streams, to the two streams they belong to."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentless.cli.common import TaskArgument, client, moment, say
from agentless.client import Client


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(logs)


def logs(
    context: typer.Context,
    task: TaskArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the task has ended.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="The last N lines.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not older than: 10min, 2h, or a date like 2026-05-01T12:00.")
    ] = None,
    only_stdout: Annotated[bool, typer.Option("--stdout", help="Only its standard output.")] = False,
    only_stderr: Annotated[bool, typer.Option("--stderr", help="Only its standard error.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="The node's time in front of each line.")] = False,
) -> None:
    """Show what a task printed."""
    streams = {1, 2} if only_stdout == only_stderr else {1} if only_stdout else {2}
    oldest = None if since is None else moment(since, "--since")
    copy_log(client(context), task, follow=follow, tail=tail, since=oldest, timestamps=timestamps, streams=streams)


def copy_log(
    served: Client,
    task: str,
    *,
    follow: bool,
    tail: int | None = None,
    since: float | None = None,
    timestamps: bool = False,
    streams: set[int] | None = None,
) -> None:
    """Copy a log to stdout and stderr as it arrives, and what the controller notes of it to stderr."""
    out = {1: sys.stdout.buffer, 2: sys.stderr.buffer}
    try:
        frames = served.frames(
            f"/v1/tasks/{task}/logs", follow=follow, tail=tail, since=since, timestamps=timestamps or None
        )
        for fd, data in frames:
            if fd == 3:
                say(f"agentless: {data.decode()}")
            elif streams is None or fd in streams:
                out[fd].write(data)
                out[fd].flush()
    except KeyboardInterrupt:
        if follow:
            say(f"\nThe task goes on. See it: agentless logs -f {task}    end it: agentless stop {task}")
        raise
