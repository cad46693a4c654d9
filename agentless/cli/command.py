"""The kinds of commands: a plain one, one that takes a command after `--`, and a group of commands."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from agentless.cli.help import ALL, help_of, usage_of
from agentless.errors import UsageError
from agentless.rules.views.nearest import nearest


class _Helped:
    """Has our `--help`, and `--help-all`."""

    common: ClassVar[Container[str] | None] = None
    """Names of the parameters that `--help` shows; None is all."""
    after_options: Sequence[str] = ()
    """The end of the usage."""
    params: list[Any]
    _all: TyperOption | None = None

    def get_params(self, ctx: Any) -> list[Any]:
        """Click's parameters, and `--help-all`."""
        if self._all is None:
            self._all = TyperOption(
                param_decls=[ALL], is_flag=True, is_eager=True, expose_value=False, callback=_help_all, hidden=True
            )
        return [*super().get_params(ctx), self._all]  # type: ignore[misc]

    def get_help(self, ctx: Any) -> str:
        return help_of(self, ctx)

    def get_usage(self, ctx: Any) -> str:
        return " ".join([ctx.command_path, *self.collect_usage_pieces(ctx)])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return usage_of(self, ctx)

    def shown_commands(self, _: Any) -> Iterator[tuple[str, Any]]:
        """The commands of a group that its help lists."""
        return iter(())


def _help_all(context: Any, _: Any, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        context.meta[ALL] = True
        typer.echo(context.get_help())
        context.exit()


class Command(_Helped, TyperCommand):
    """A command."""


class WithCommand(Command):
    """A command that takes a command after the first `--`, exactly as it is typed."""

    after_options = ("-- COMMAND...",)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Cut off the command before click looks for options."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta["command"] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


class WithOptionalCommand(WithCommand):
    """A command that starts a shell, or the command after `--` instead."""

    after_options = ("[-- COMMAND...]",)


def command_of(context: Any) -> tuple[str, ...]:
    """The words after `--`; none when there is no `--`."""
    return tuple(context.meta.get("command", ()))


class Group(_Helped, TyperGroup):
    """A group of commands, which also answers to the names that other tools have for them."""

    aliases: ClassVar[Mapping[str, Sequence[str]]] = {
        "ls": ["list"],
        "delete": ["rm"],
        "remove": ["rm"],
        "describe": ["show"],
        "inspect": ["show"],
        "cordon": ["drain"],
        "uncordon": ["resume"],
        "undrain": ["resume"],
    }
    """Words that stand for other words, if there is such a command."""
    hints: ClassVar[Mapping[str, str]] = {}
    """What to suggest for a word that is no command."""

    @property
    def after_options(self) -> Sequence[str]:  # type: ignore[override]
        """The end of the usage."""
        return ("[COMMAND]" if self.invoke_without_command else "COMMAND",)

    def shown_commands(self, ctx: Any) -> Iterator[tuple[str, Any]]:
        """The commands that the help lists, in order."""
        return ((name, self.commands[name]) for name in self.list_commands(ctx) if not self.commands[name].hidden)

    def aliases_of(self, name: str) -> list[str]:
        """The other names of a command, for its help."""
        found = [alias for alias, words in self.aliases.items() if words[0] == name]
        return [
            alias if len(self.aliases[alias]) == 1 else f"{alias} (= {' '.join(self.aliases[alias])})"
            for alias in found
        ]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help if nothing is asked for; that is a usage error."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit(UsageError.exit_code)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is meant; raises UsageError with what may have been meant."""
        word, *rest = args
        meant = self.aliases.get(word, [word])
        if word not in self.commands and meant[0] in self.commands:
            word, *rest = *meant, *rest
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            hint = (
                f" (did you mean {self.hints[word]}?)"
                if word in self.hints
                else nearest(word, dict(self.shown_commands(ctx)))
            )
            listing = self.commands.get("list") if self.invoke_without_command else None
            if hint or listing is None or not any(each.param_type_name == "argument" for each in listing.params):
                raise UsageError(f"unknown command {word!r}{hint}; see {ctx.command_path} --help")
            word, rest = "list", args
        return super().resolve_command(ctx, [word, *rest])
