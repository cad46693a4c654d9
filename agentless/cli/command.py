"""The command after `--`: taken off word for word."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


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
