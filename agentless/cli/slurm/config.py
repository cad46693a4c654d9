"""`agentless slurm config`: the files of a Slurm cluster with the nodes of the inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentless.cli.client import client
from agentless.cli.output import print_line, say
from agentless.cli.progress import progress
from agentless.errors import Unreachable


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="Move to Slurm: write its configuration.", no_args_is_help=True)
    group.callback()(slurm)
    group.command()(config)
    app.add_typer(group, name="slurm")


def slurm() -> None:
    """Move to Slurm: write its configuration."""


def config(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the files into this folder (default: print them)")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with slurmd on the nodes, and with slurmctld if it runs")
    ] = False,
) -> int:
    """Write slurm.conf, gres.conf and the other files of Slurm for all nodes.

    A file with the line `# USER_CUSTOMIZED=true` is kept. Exits with code 4 if a node does not answer, and is not
    included; with --check, with 1 if something differs.
    """
    served = client(context)
    with progress("Asking nodes"):
        found = served.get("/v1/slurm/config", check="true") if check else served.get("/v1/slurm/config")
    if out is not None:
        from agentless.cli.slurm.written import write

        write(out, found["files"])
    elif not check:
        _print(found["files"])
    for note in found["notes"]:
        say(note)
    for why in found["silent"].values():
        say(f"Not included: {why}")
    if check:
        from agentless.cli.slurm.check import compare

        if compare(found["nodes"]):
            return 1
    return Unreachable.exit_code if found["silent"] else 0


def _print(files: dict[str, Any]) -> None:
    """Each file behind a line with its name."""
    for number, (name, text) in enumerate(files.items()):
        for line in ("" if number else None, f"##### {name}", *text.rstrip("\n").split("\n")):
            if line is not None:
                print_line(line)
