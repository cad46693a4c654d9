"""`agentless vps snapshot`, `snapshots` and `restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentless.cli.arguments import Json
from agentless.cli.client import client
from agentless.cli.confirm import Yes, confirm
from agentless.cli.formats import Kind, Output
from agentless.cli.output import Quiet, confirm_done, print_json
from agentless.cli.progress import progress
from agentless.cli.table import Column
from agentless.cli.vps.change import VpsName, show_started
from agentless.client.words import date
from agentless.errors import UsageError
from agentless.model.units import format_size


def snapshot(
    context: typer.Context,
    name: VpsName,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="What it is for")] = "",
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Save the files of a VPS as a snapshot, without mounted folders and volumes.

    A VPS that runs is paused for a moment.
    """
    with progress(f"Saving {name}"):
        made = client(context).post(f"/v1/vps/{name}/snapshots", {"message": message})
    if as_json:
        print_json(made)
    else:
        size, again = format_size(made["size_bytes"]), f"agentless vps restore {name} {made['snapshot']}"
        confirm_done(f"{made['snapshot']}  saved, {size}. To go back to it: {again}")


def snapshots(context: typer.Context, name: VpsName, as_json: Json = False, output: Output = None) -> None:
    """List the snapshots of a VPS, also of one that was removed."""
    style = _SNAPSHOTS.format(as_json, output)
    none = f"No snapshots of {name}. To take one: agentless vps snapshot {name}"
    style.show(client(context).get(f"/v1/vps/{name}/snapshots"), _COLUMNS, none)


def restore(
    context: typer.Context,
    name: VpsName,
    which: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Snapshot, such as dev:2 or 2")],
    yes: Yes = False,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Go back to a snapshot: run a VPS in a new container from it, on the same GPUs.

    All that was changed in its files since is lost.
    """
    served = client(context)
    served.get(f"/v1/vps/{name}")
    if not yes:
        again = f"agentless vps restore {name} {which} --yes"
        confirm(
            f"Replace the files of {name} with snapshot {which}",
            "nothing was changed",
            unattended=UsageError(f"cannot ask for confirmation without a terminal; use: {again}"),
        )
    with progress(f"Restoring {name}"):
        started = served.post(f"/v1/vps/{name}/restore", {"snapshot": which})
    show_started(name, started, as_json=as_json)


_SNAPSHOTS = Kind("view.SnapshotView", lambda snapshot: str(snapshot["snapshot"]))
_COLUMNS = [
    Column("SNAPSHOT", lambda each: each["snapshot"]),
    Column("TIME", lambda each: date(each["at"])),
    Column("BY", lambda each: each["by"]),
    Column("SIZE", lambda each: format_size(each["size_bytes"])),
    Column("NODES", lambda each: ", ".join(each["nodes"])),
    Column("MESSAGE", lambda each: each["message"], wraps=True),
]
