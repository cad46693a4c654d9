"""The verbs about reservations: reserve, reservations, unreserve."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.app import complain, warn
from agentless.cli.arguments import Json, path_words
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.output import print_json, print_line
from agentless.cli.table import Column
from agentless.client.words import date, local, place
from agentless.errors import AgentlessError, UsageError
from agentless.model.moment import parse_moment

_WHEN = "2026-11-22T08:00 (local time), 2026-11-22T08:00Z, 2h (from now), or now"


def add_to(app: typer.Typer) -> None:
    app.command()(reserve)
    app.command()(reservations)
    app.command()(unreserve)


def reserve(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="GPUs of a node such as node1::0-3, or a whole node",
            autocompletion=complete.targets,
        ),
    ],
    begin: Annotated[str, typer.Option("--from", metavar="WHEN", help=f"Start: {_WHEN}")],
    end: Annotated[str, typer.Option("--to", metavar="WHEN", help="End, in the same format")],
    owner: Annotated[
        str | None, typer.Option("--for", metavar="OWNER", help="Owner who may use it: USER, or USER@HOST as in ps")
    ] = None,
    maintenance: Annotated[bool, typer.Option("--maintenance", help="Nobody may use it")] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason, shown with pending tasks")] = "",
    as_json: Json = False,
) -> None:
    """Reserve GPUs or nodes for an owner or for maintenance.

    Running tasks keep running.

    agentless reserve node2::0-3 --for ann --from now --to 2026-11-22T18:00
    agentless reserve node1 --maintenance --from 20h --to 24h --reason "new PSU"
    """
    if (owner is None) is not maintenance:
        raise UsageError("Specify --for OWNER, as agentless ps shows it, or --maintenance")
    now = time.time()
    request = {
        "targets": targets,
        "owner": owner,
        "begin": parse_moment(begin, now),
        "end": parse_moment(end, now),
        "reason": reason,
    }
    made = client(context).post("/v1/reservations", request)
    if as_json:
        print_json(made)
        return
    for each in made:
        print_line(f"{each['id']}  {_target(each)} for {_whose(each)}, {_when(each)}")
    for each in made:
        for task in each["in_the_way"]:
            warn(f"warning: {_target(each)} is in use by {task}; it keeps running")


def reservations(context: typer.Context, as_json: Json = False, output: Output = None) -> None:
    """List current and future reservations."""
    style = _RESERVATIONS.format(as_json, output)
    style.show(client(context).get("/v1/reservations"), _COLUMNS, "No reservations")


def unreserve(
    context: typer.Context,
    reservation: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Ids from agentless reservations",
            autocompletion=complete.reservations,
            callback=path_words,
        ),
    ],
    as_json: Json = False,
) -> int:
    """Cancel reservations."""
    served = client(context)
    code, done = 0, []
    for each in reservation:
        try:
            done.append(served.delete(f"/v1/reservations/{each}"))
        except AgentlessError as error:
            complain(str(error))
            code = code or error.exit_code
    if as_json:
        print_json(done)
    else:
        for each in done:
            print_line(f"{each['id']}  {_target(each)} no longer reserved")
    return code


def _target(reservation: dict[str, Any]) -> str:
    return place(reservation["node"], reservation["gpus"])


def _whose(reservation: dict[str, Any]) -> str:
    return str(reservation["owner"] or "maintenance")


def _when(reservation: dict[str, Any]) -> str:
    return f"from {local(reservation['begins_at'])} to {local(reservation['ends_at'])}"


def _why(reservation: dict[str, Any]) -> str:
    return "; ".join(
        filter(None, (reservation["reason"], *(f"occupied by {each}" for each in reservation["in_the_way"])))
    )


_RESERVATIONS = Kind("view.ReservationView", lambda each: str(each["id"]))
_COLUMNS = [
    Column("ID", lambda each: each["id"]),
    Column("WHAT", _target),
    Column("FOR", _whose),
    Column("STATE", lambda each: "active" if each["active"] else "planned"),
    Column("FROM", lambda each: date(each["begins_at"])),
    Column("TO", lambda each: date(each["ends_at"])),
    Column("MADE BY", lambda each: each["made_by"], wide=True),
    Column("REASON", _why, wraps=True),
]
