"""`agentless inventory`: its schema for editors, and a check of the file."""

from __future__ import annotations

import typer

from agentless import paths
from agentless.cli.output import print_json, print_line
from agentless.model.units import counted


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="Check the inventory file, or print its JSON Schema.", no_args_is_help=True)
    group.command()(schema)
    group.command()(check)
    app.add_typer(group, name="inventory")


def schema() -> None:
    """Print the JSON Schema of the inventory, for editors."""
    from agentless.inventory.schema import schema as of_file

    print_json(of_file())


def check(context: typer.Context) -> None:
    """Check the inventory file without connecting to nodes."""
    from agentless.inventory.inventory import load

    found = load(paths.find_inventory(context.find_root().obj))
    clusters = f", {counted(len(found.clusters), 'cluster')}" if found.clusters else ""
    print_line(f"{found.path}: {counted(len(found.nodes), 'node')}{clusters}, no errors")
