"""The command after `--`: taken off word for word, and the files that its spans name."""

from __future__ import annotations

import os
from typing import Any

from typer.core import TyperCommand

from agentless.errors import UsageError

_LARGEST_FILE = 16 << 20
"""Bytes of a file with values."""


class WithCommand(TyperCommand):
    """A verb for which what comes after the first `--` is a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the command off before options are looked for."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta["command"] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


def command_of(context: Any) -> tuple[str, ...]:
    """The words after `--`; none when there is no `--`."""
    return tuple(context.meta.get("command", ()))


def read_lines(path: str) -> list[str]:
    """The lines of a file that a span names, for `expand`; UsageError when it cannot be read."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(data) > _LARGEST_FILE or b"\0" in data:
        raise UsageError(f"{path} is no file with one value per line")
    return data.decode("utf-8-sig", "surrogateescape").split("\n")
