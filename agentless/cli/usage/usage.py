"""`agentless usage`: GPU-hours by owner, node or batch, and how busy the GPUs were."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import datetime
from typing import Annotated, Any

import typer

from agentless.cli.arguments import Json, moment
from agentless.cli.client import client
from agentless.cli.output import print_json, print_line, say
from agentless.cli.table import Column, show
from agentless.cli.usage.chart import bars
from agentless.client.words import or_dash
from agentless.errors import UsageError
from agentless.model.units import counted
from agentless.model.usage.figures import BY
from agentless.rules.usage.periods import period_of, periods


def add_to(app: typer.Typer) -> None:
    app.command()(usage)


def usage(
    context: typer.Context,
    since: Annotated[str, typer.Option(metavar="TIME", help="Begin: 12h, 7d or 2026-05-01")] = "7d",
    by: Annotated[str, typer.Option(metavar="|".join(BY), help="Group by")] = "owner",
    as_json: Json = False,
) -> None:
    """Show GPU-hours and utilization by owner, node or batch.

    On a terminal, a chart shows GPU-hours over time.
    """
    if by not in BY:
        raise UsageError(f"--by {by!r}: write one of {', '.join(BY)}")
    begin, now = moment(since, "--since"), time.time()
    found = client(context).get("/v1/usage", edge=periods(begin, now), by=by)
    if as_json:
        print_json(found)
    elif not found["rows"]:
        say("nothing has run since then")
    else:
        show(_columns(by), found["rows"])
        if found["more"]:
            say(f"and {found['more']:,} more, which had less")
        total = found["total"]
        say(
            f"in all {total['gpu_hours']:,.2f} GPU-hours, {_percent(total['share'])} of {counted(found['gpus'], 'GPU')}"
        )
        if sys.stdout.isatty():
            _draw(found, period_of(begin, now))


def _draw(found: dict[str, Any], period: str) -> None:
    labels = {"hour": "%a %H:%M", "day": "%a %m-%d", "week": "%Y-%m-%d"}[period]
    values = [
        (f"{datetime.fromisoformat(each['begins_at']).astimezone():{labels}}", each["gpu_hours"])
        for each in found["periods"]
    ]
    print_line("")
    print_line(f"GPU-hours by the {period}")
    for line in bars(values, shutil.get_terminal_size().columns):
        print_line(line)


def _columns(by: str) -> list[Column]:
    return [
        Column(by.upper(), lambda row: row["name"], flexible=True),
        Column("GPU-HOURS", lambda row: f"{row['gpu_hours']:,.2f}", right=True),
        Column("TASKS", lambda row: str(row["tasks"]), right=True),
        Column("SHARE", lambda row: _percent(row["share"]), right=True),
        Column("UTIL", lambda row: or_dash(row["utilization_pct"], "%"), right=True),
    ]


def _percent(share: float | None) -> str:
    return or_dash(None if share is None else f"{100 * share:.1f}", "%")
