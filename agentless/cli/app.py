"""The command itself: the options of every verb, which file has which verb, and how errors end it."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agentless import __version__
from agentless.cli.command import WithCommand
from agentless.errors import AgentlessError, UsageError
from agentless.model.text import lines_of

PARTS = {
    "submit.run": ("run",),
    "submit.submit": ("submit",),
    "span.span": ("span",),
    "tasks.ps": ("ps",),
    "scheduling.queue": ("queue",),
    "scheduling.explain": ("explain",),
    "tasks.show": ("show",),
    "tasks.wait": ("wait",),
    "tasks.change": ("retry", "stop", "kill", "pause", "resume", "rm"),
    "tasks.logs": ("logs",),
    "tasks.shell": ("shell",),
    "files.cp": ("cp",),
    "files.volume": ("volume",),
    "tasks.events": ("events",),
    "scheduling.reservations": ("reserve", "reservations", "unreserve"),
    "setup.dashboard": ("dashboard", "top"),
    "nodes.gpus": ("gpus",),
    "nodes.nodes": ("nodes",),
    "nodes.doctor": ("doctor",),
    "usage.usage": ("usage",),
    "envs.env": ("env",),
    "setup.init": ("init",),
    "setup.inventory": ("inventory",),
    "setup.controller": ("controller",),
    "tasks.recover": ("recover",),
    "setup.demo": ("demo",),
}
"""The verbs of each file, in the order of the help. Only the file of the wanted verb is imported, for a fast start."""

VERBS = [verb for verbs in PARTS.values() for verb in verbs]

_MEANT = {
    "cancel": "stop",
    "delete": "rm",
    "list": "ps",
    "ls": "ps",
    "status": "ps or show TASK",
    "top": "gpus, or queue top TASK",
}
"""The names that other tools have for a verb."""


class _InOrder(TyperGroup):
    """Lists the verbs in the order of PARTS; typer would list groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=[*VERBS, "_"].index)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"agentless {__version__}")  # noqa: T201
        raise typer.Exit


def common(
    context: typer.Context,
    inventory: Annotated[
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
    context.obj = inventory


def make(arguments: list[str]) -> typer.Typer:
    """The command line with the verb that `arguments` begin with, or with all verbs if that is unclear."""
    app = typer.Typer(
        name="agentless",
        cls=_InOrder,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="One big computer out of the GPU machines you can already ssh into.",
        epilog="Start with: agentless init, then agentless gpus, then agentless submit node1::0 -- nvidia-smi",
    )
    app.callback()(common)
    words = arguments[2:] if arguments[:1] in (["-i"], ["--inventory"]) else arguments
    if words and words[0] not in VERBS and not words[0].startswith("-"):
        raise UsageError(f"there is no verb {words[0]!r}{_hint(words[0])}; agentless --help lists them")
    wanted = [part for part, verbs in PARTS.items() if words and words[0] in verbs]
    for part in wanted or PARTS:
        importlib.import_module(f"agentless.cli.{part}").add_to(app)
    if wanted:
        app.command("_", hidden=True)(_nothing)  # typer turns an app with one command into that command
    return app


def _nothing() -> None: ...


def _path(error: Any, arguments: list[str]) -> str:
    """The command whose --help to suggest, as far as the arguments could be read."""
    if context := getattr(error, "ctx", None):
        return str(context.command_path)
    return " ".join(("agentless", *[word for word in arguments if word in VERBS][:1]))


def _hint(word: str) -> str:
    from agentless.rules.views.nearest import nearest

    return f" (did you mean {_MEANT[word]}?)" if word in _MEANT else nearest(word, VERBS)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = make(arguments)(arguments, prog_name="agentless", standalone_mode=False)
    except AgentlessError as error:
        complain(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        complain(f"{error.filename or 'the output cannot be written'}: {error.strerror or error}")
        return 1
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        if message := error.format_message().rstrip("."):
            command = getattr(getattr(error, "ctx", None), "command", None)
            if isinstance(command, WithCommand) and "--" not in arguments:
                message += "; write the command after '--'"
            complain(f"{message}; see {_path(error, arguments)} --help")
        return 2
    return code if isinstance(code, int) else 0


def complain(message: str) -> None:
    """Print an error on stderr."""
    print("\n".join(lines_of(f"agentless: {message}")), file=sys.stderr)  # noqa: T201
