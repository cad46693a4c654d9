"""The verbs about volumes: data of tasks that stays on a node."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import Json, path_words
from agentless.cli.client import client
from agentless.cli.confirm import confirm
from agentless.cli.formats import Kind, Output
from agentless.cli.output import Quiet, confirm_done, print_json, say
from agentless.cli.progress import progress
from agentless.cli.table import Column
from agentless.errors import Refused, UsageError
from agentless.model.units import format_size


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Manage volumes: data that stays on a node after a task ends.")
    group.command()(create)
    group.command("list")(show_list)
    group.command()(rm)
    app.add_typer(group, name="volume")


_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Volume name", callback=path_words, autocompletion=complete.volumes)
]


def create(
    context: typer.Context,
    name: _Name,
    node: Annotated[str, typer.Option("--on", metavar="NODE", help="Node", autocompletion=complete.nodes)],
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Create a volume on a node.

    submit --volume creates missing volumes automatically.

    agentless volume create data --on node1
    """
    made = client(context).post("/v1/volumes", {"name": name, "node": node})
    if as_json:
        print_json(made)
    else:
        confirm_done(f"{made['name']}  created on {made['node']}")


def show_list(context: typer.Context, as_json: Json = False, output: Output = None) -> None:
    """List all volumes with size, owner and tasks."""
    style = _VOLUMES.format(as_json, output)
    with progress("Measuring volumes"):
        found = client(context).get("/v1/volumes")
    style.show(found, _COLUMNS, "No volumes")


def rm(
    context: typer.Context,
    name: _Name,
    node: Annotated[
        str | None,
        typer.Option(
            "--on", metavar="NODE", help="Only on this node (default: all nodes)", autocompletion=complete.nodes
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "--yes", "-f", "-y", help="Do not ask")] = False,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Remove a volume and its data.

    Fails if a task uses the volume.
    """
    served = client(context)
    if not force:
        there = [each for each in served.get("/v1/volumes") if each["name"] == name and node in (None, each["node"])]
        if there and not _is_wanted(there):
            return 1
    removed = served.delete(f"/v1/volumes/{name}", node=node)
    if as_json:
        print_json(removed)
    else:
        for each in removed:
            confirm_done(f"{each['name']}  removed from {each['node']}")
    return 0


def _is_wanted(volumes: list[dict[str, Any]]) -> bool:
    for each in volumes:
        say(f"{each['name']} on {each['node']}, owner {each['owner']}: {_size(each)}")
    where = " and ".join(each["node"] for each in volumes)
    try:
        confirm(
            f"Remove volume {volumes[0]['name']} from {where}, with all its files",
            "",
            unattended=UsageError(
                "Cannot ask for confirmation without a terminal. To remove the volume with all its files: --force"
            ),
        )
    except Refused:
        return False
    return True


def _size(volume: dict[str, Any]) -> str:
    return "-" if volume["size_bytes"] is None else format_size(volume["size_bytes"])


_VOLUMES = Kind("view.VolumeView", lambda each: str(each["name"]))
_COLUMNS = [
    Column("NODE", lambda each: each["node"]),
    Column("NAME", lambda each: each["name"]),
    Column("SIZE", _size, right=True),
    Column("OWNER", lambda each: each["owner"]),
    Column("TASKS", lambda each: ", ".join(each["tasks"]), wraps=True),
]
