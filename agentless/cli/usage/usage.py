"""`agentless usage`: GPU-hours by owner, node or batch, and how busy the GPUs were."""

from __future__ import annotations

import os
import shutil
import sys
import time
from datetime import datetime
from typing import Annotated, Any

import typer

from agentless.cli.arguments import Json, moment
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.output import print_line, say
from agentless.cli.pager import paged
from agentless.cli.table import Column, wrapped
from agentless.cli.usage.chart import bars
from agentless.client.console import in_font
from agentless.client.words import or_dash, share, used_in_all
from agentless.errors import UsageError
from agentless.model.usage.figures import BY
from agentless.rules.usage.periods import period_of, periods


def add_to(app: typer.Typer) -> None:
    app.command()(usage)


def usage(
    context: typer.Context,
    since: Annotated[str, typer.Option(metavar="TIME", help="Start: 12h, 7d or 2026-05-01")] = "7d",
    by: Annotated[str, typer.Option(metavar="|".join(BY), help="Group by")] = "owner",
    plot: Annotated[bool, typer.Option("--plot", help="Plot how many GPUs were allocated over time")] = False,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """Show GPU-hours and utilization by owner, node or batch.

    On a terminal, a chart shows GPU-hours over time.
    """
    if by not in BY:
        raise UsageError(f"--by {by!r}: use one of {', '.join(BY)}")
    style = _ROWS.format(as_json, output)
    begin, now = moment(since, "--since"), time.time()
    edges = periods(begin, now)  # raises UsageError
    if plot:
        from agentless.cli.usage.plots import print_usage
        from agentless.client.history import fine_edges

        edges = fine_edges(begin, now)
    found = client(context).get("/v1/usage", edge=edges, by=by)
    with paged():
        if style.word in ("json", "yaml"):
            style.print(found)
            return
        style.show(found["rows"], _columns(by, found["rows"]), "No tasks ran since then")
        if style.is_table and found["rows"]:
            _print_total(found)
            if plot:
                print_line("")
                print_usage(found)
            elif sys.stdout.isatty():
                _draw(found, period_of(begin, now))


def _print_total(found: dict[str, Any]) -> None:
    if found["more"]:
        say(f"{found['more']:,} more rows with fewer GPU-hours")
    for line in wrapped(f"Total: {used_in_all(found)}", 0):
        say(line)


def _draw(found: dict[str, Any], period: str) -> None:
    labels = {"hour": "%a %H:%M", "day": "%a %m-%d", "week": "%Y-%m-%d"}[period]
    values = [
        (f"{datetime.fromisoformat(each['begins_at']).astimezone():{labels}}", each["gpu_hours"])
        for each in found["periods"]
    ]
    print_line("")
    print_line(f"GPU-hours per {period}")
    for line in bars(values, shutil.get_terminal_size().columns):
        print_line(line.translate(in_font(os.environ)))


_ROWS = Kind("usage.figures.UsageRowView", lambda row: str(row["name"]))


def _columns(by: str, rows: list[dict[str, Any]]) -> list[Column]:
    lends, aways = (any(row.get(f"{kind}_gpu_hours") for row in rows) for kind in ("lent", "cluster"))
    return [
        Column(by.upper(), lambda row: row["name"], flexible=True),
        Column("GPU-HOURS", lambda row: f"{row['gpu_hours']:,.2f}", right=True),
        Column("LENT", lambda row: f"{row['lent_gpu_hours']:,.2f}" if lends else "", right=True),
        Column("ON CLUSTERS", lambda row: f"{row['cluster_gpu_hours']:,.2f}" if aways else "", right=True),
        Column("TASKS", lambda row: str(row["tasks"]), right=True),
        Column("SHARE", share, right=True),
        Column("UTIL", lambda row: or_dash(row["utilization_pct"], "%"), right=True),
    ]
