"""The command after `--`, taken exactly as it is typed."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class WithCommand(TyperCommand):
    """A verb that takes a command after the first `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Cut off the command before click looks for options."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta["command"] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


def command_of(context: Any) -> tuple[str, ...]:
    """The words after `--`; none when there is no `--`."""
    return tuple(context.meta.get("command", ()))
