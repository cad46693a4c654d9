"""The command itself: what every verb shares, and how errors end it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from agentless import __version__
from agentless.cli import controller, demo, inventory, logs, nodes, submit, tasks
from agentless.errors import AgentlessError

app = typer.Typer(
    name="agentless",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="One big computer out of the GPU machines you can already ssh into.",
    epilog="Start with: agentless init, then agentless gpus, then agentless submit node1::0 -- nvidia-smi",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"agentless {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    inventory_file: Annotated[
        Path | None,
        typer.Option(
            "--inventory",
            "-i",
            metavar="FILE",
            help="The inventory; default $AGENTLESS_INVENTORY, ./inventory.yaml, then the one in the config folder.",
        ),
    ] = None,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options in front of any verb."""
    context.obj = inventory_file


for part in (submit, tasks, logs, nodes, inventory, controller, demo):
    part.add_to(app)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = app(arguments, prog_name="agentless", standalone_mode=False)
    except AgentlessError as error:
        complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has had enough; Python must not complain about it while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        complain(f"{error.format_message().rstrip('.')}; see agentless --help")
        return 2
    return code if isinstance(code, int) else 0


def complain(message: str) -> None:
    """One error, on stderr."""
    print(f"agentless: {message}", file=sys.stderr)
