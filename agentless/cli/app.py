"""The command itself: its commands, the options in front of them, and how errors end it."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from agentless import __version__
from agentless.cli import other_tools, tab
from agentless.cli.command import Command, Group, WithCommand
from agentless.errors import AgentlessError
from agentless.model.text import lines_of, printable
from agentless.rules.views.nearest import nearest

_EXTRA = re.compile(r"Got unexpected extra argument\S* \(([^ )]+)")

PANELS = {
    "Run": {
        "run": "submit.run",
        "submit": "submit.submit",
        "span": "span.span",
        "stop": "tasks.change",
        "kill": "tasks.change",
        "pause": "tasks.change",
        "resume": "tasks.change",
        "retry": "tasks.change",
        "rm": "tasks.change",
        "workflow": "workflows.workflow",
    },
    "Watch": {
        "ps": "tasks.ps",
        "show": "tasks.show",
        "logs": "tasks.logs",
        "wait": "tasks.wait",
        "events": "tasks.events",
        "top": "setup.dashboard",
        "dashboard": "setup.dashboard",
        "usage": "usage.usage",
    },
    "Work in a task": {
        "shell": "tasks.shell",
        "ssh": "ssh.ssh",
        "ssh-config": "ssh.ssh_config",
        "forward": "ssh.forward",
        "vps": "vps.vps",
        "notebook": "notebook.notebook",
        "code": "ssh.code",
    },
    "Queue": {
        "queue": "scheduling.queue",
        "explain": "scheduling.explain",
        "reserve": "scheduling.reservations",
        "reservations": "scheduling.reservations",
        "unreserve": "scheduling.reservations",
    },
    "Nodes and GPUs": {
        "gpus": "nodes.gpus",
        "nodes": "nodes.nodes",
        "doctor": "nodes.doctor",
    },
    "Environments and files": {
        "env": "envs.env",
        "cp": "files.cp",
        "volume": "files.volume",
    },
    "Set up": {
        "init": "setup.init",
        "inventory": "setup.inventory",
        "controller": "setup.controller",
        "notify": "setup.notify",
        "recover": "tasks.recover",
        "demo": "setup.demo",
        "slurm": "slurm.config",
    },
}
"""The commands in the order of the help, each with its file: only that of the wanted one is imported."""

COMMANDS = {name: file for panel in PANELS.values() for name, file in panel.items()}
_UNLISTED = {"exec": ("tasks.shell",), "version": (), "--version": ()}
"""What can come first and is in no panel, with the files that it needs."""


class _Root(Group):
    """All commands, in panels."""

    common = ()
    aliases: ClassVar[Mapping[str, Sequence[str]]] = {
        "ls": ["ps"],
        "list": ["ps"],
        "describe": ["show"],
        "attach": ["logs", "--follow"],
        "cancel": ["stop"],
        "delete": ["rm"],
        "config": ["inventory"],
    }
    hints = other_tools.COMMANDS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        tab.prepare()
        for panel, names in PANELS.items():
            for name in names.keys() & self.commands.keys():
                self.commands[name].rich_help_panel = panel  # type: ignore[attr-defined]

    def list_commands(self, _: Any) -> list[str]:
        """In the order of the panels; typer would list groups last."""
        return [name for name in COMMANDS if name in self.commands]


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
            help="Inventory file (default: $AGENTLESS_INVENTORY, else ./inventory.yaml, else the one in your "
            "configuration folder)",
        ),
    ] = None,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit")
    ] = False,
    __: Annotated[
        bool, typer.Option("--no-pager", help="Never show output in a pager. Also accepted after the command")
    ] = False,
) -> None:
    """Run commands on the GPU machines that you can already ssh into."""
    context.obj = inventory


def version() -> None:
    """Show the version."""
    _version(True)


def show_help(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="Default: all commands")] = None,
) -> Any:
    """Show help for a command, as agentless COMMAND --help does."""
    return context.find_root().command.main([*(words or ()), "--help"], prog_name="agentless", standalone_mode=False)


def make(arguments: Sequence[str]) -> typer.Typer:
    """The command line with the command that `arguments` begin with, or with all commands if that is unclear."""
    app = typer.Typer(
        name="agentless",
        cls=_Root,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Help for a command: agentless COMMAND --help",
    )
    app.callback()(common)
    app.command(hidden=True)(version)
    app.command("help", hidden=True)(show_help)
    first = _first(arguments or _completed_words())
    wanted = (COMMANDS[first],) if first in COMMANDS else _UNLISTED.get(first, dict.fromkeys(COMMANDS.values()))
    for file in wanted:
        importlib.import_module(f"agentless.cli.{file}").add_to(app)
    _give_help(app)
    return app


def _completed_words() -> list[str]:
    """What stands on the command line of a shell in which Tab was pressed."""
    if tab.COMPLETE not in os.environ:
        return []
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]


def _first(arguments: Sequence[str]) -> str:
    """The command in `arguments` as we call it; empty if there is none, or if it is not the first word."""
    words = arguments[2:] if arguments[:1] in (["-i"], ["--inventory"]) else arguments
    words = words[1:] if words[:1] == ["help"] else words
    return _Root.aliases.get(words[0], words[:1])[0] if words else ""


def _give_help(app: typer.Typer) -> None:
    """Have each command print our help, not typer's."""
    for command in app.registered_commands:
        if command.cls is TyperCommand:
            command.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance:
            _give_help(group.typer_instance)


def _path(error: Any, arguments: list[str]) -> str:
    """The command whose --help to suggest, as far as the arguments could be read."""
    if context := getattr(error, "ctx", None):
        return str(context.command_path)
    return " ".join(("agentless", *[word for word in arguments if word in COMMANDS][:1]))


def _message(error: Any, arguments: Sequence[str]) -> str:
    """What is wrong with the arguments, in a sentence without its end, and what may have been meant."""
    message = str(error.format_message()).rstrip(".")
    command = getattr(getattr(error, "ctx", None), "command", None)
    if command and hasattr(error, "possibilities"):
        flags = [flag for each in command.get_params(error.ctx) if not each.hidden for flag in each.opts]
        hint = other_tools.lead(error.option_name, flags, isinstance(command, WithCommand))
        message = f"unknown option {printable(error.option_name)!r}{hint or nearest(error.option_name, flags)}"
    if extra := _EXTRA.match(message):
        message = f"unexpected argument {printable(extra[1])!r}"
    if isinstance(command, WithCommand) and "--" not in arguments:
        message += "; write the command after '--'"
    return message


def _without_pager(arguments: list[str]) -> list[str]:
    """The arguments without --no-pager, which is obeyed anywhere before the command of a task."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--no-pager" not in arguments[:end]:
        return arguments
    os.environ["AGENTLESS_PAGER"] = ""
    return [*(word for word in arguments[:end] if word != "--no-pager"), *arguments[end:]]


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    arguments = _without_pager(arguments)
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
        complain(f"{error.filename or 'Cannot write the output'}: {error.strerror or error}")
        return 1
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        complain(f"{_message(error, arguments)}; see {_path(error, arguments)} --help")
        return 2
    return code if isinstance(code, int) else 0


def complain(message: str) -> None:
    """Print an error on stderr."""
    print("\n".join(lines_of(f"agentless: {message}")), file=sys.stderr)  # noqa: T201


def warn(message: str) -> None:
    """Print a warning, or a note that --quiet does not suppress, in one line: names in it may have line breaks."""
    complain(printable(message))
