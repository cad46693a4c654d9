"""The verbs about the inventory file: init, schema, check."""

from __future__ import annotations

from typing import Annotated

import typer

from agentless import paths
from agentless.cli.output import print_json, print_line, say


def add_to(app: typer.Typer) -> None:
    app.command()(init)
    group = typer.Typer(help="Check the inventory file, or print its JSON Schema.", no_args_is_help=True)
    group.command()(schema)
    group.command()(check)
    app.add_typer(group, name="inventory")


def init(
    context: typer.Context,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]...", help="[USER@]HOST[:PORT]; default: those of ~/.ssh/config."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an inventory that is there.")] = False,
) -> None:
    """Write a first inventory, with comments to learn from."""
    from agentless.inventory.first import first_inventory, write_first
    from agentless.inventory.ssh_hosts import read_ssh_hosts

    path = paths.new_inventory(context.find_root().obj)
    known = read_ssh_hosts(paths.ssh_config())
    chosen = list(dict.fromkeys(hosts or known.machines))
    write_first(path, first_inventory(chosen, () if hosts else known.git), force)
    print_line(str(path))
    say(f"{len(chosen)} node{'s' * (len(chosen) != 1)}. Edit it as you like; then: agentless doctor")


def schema() -> None:
    """Print the JSON Schema of the inventory, for editors."""
    from agentless.inventory.schema import schema as of_file

    print_json(of_file())


def check(context: typer.Context) -> None:
    """Check the inventory file without connecting to nodes."""
    from agentless.inventory.inventory import load

    found = load(paths.find_inventory(context.find_root().obj))
    print_line(f"{found.path}: {len(found.nodes)} node{'s' * (len(found.nodes) != 1)}, no error")
