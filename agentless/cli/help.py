"""What `--help` prints: what a command does, its usage, examples, arguments and options; at most 80 columns."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

ALL = "--help-all"
"""The option that shows all options, in panels."""
WIDTH = 80
_LONGEST = 30  # the widest name beside which its text still begins on the same line
_NARROWEST = 40  # columns of a terminal below which nothing fits anyway

Row = tuple[str, str]


def help_of(command: Any, context: Any) -> str:
    """The help of a command. Without `ALL`, only the options that the command calls `common`, if it does."""
    width = max(_NARROWEST, min(WIDTH, shutil.get_terminal_size().columns))
    paragraphs = (command.help or "").strip().split("\n\n")
    prose = [textwrap.fill(" ".join(each.split()), width) for each in paragraphs if not _is_example(each)]
    examples = [f"  {line.strip()}" for each in paragraphs if _is_example(each) for line in each.splitlines()]
    blocks = [*prose, f"{_bold('Usage:')} {command.get_usage(context)}"]
    if examples:
        blocks.append("\n".join([_bold("Examples:"), *examples]))
    everything = command.common is None or context.meta.get(ALL, False)
    sections = _sections(command, context, everything=everything)
    names = [len(name) for rows in sections.values() for name, _ in rows]
    indent = 2 + min(max(names, default=0), _LONGEST) + 2
    for heading, rows in sections.items():
        lines = [line for row in rows for line in _lines(row, indent, width)]
        blocks.append("\n".join([_bold(f"{heading}:"), *lines]))
    if notes := [textwrap.fill(each, width) for each in _notes(command, context, everything=everything)]:
        blocks.append("\n".join(notes))
    return "\n\n".join(blocks)


def usage_of(command: Any, context: Any) -> list[str]:
    """The words of the usage after the name of the command."""
    shown = [each for each in command.params if not each.hidden]
    options = ["[OPTIONS]"] * any(map(_is_option, shown))
    return [*options, *(each.make_metavar(context) for each in shown if not _is_option(each)), *command.after_options]


def _is_option(parameter: Any) -> bool:
    """Whether it is an option, not an argument."""
    return bool(parameter.param_type_name == "option")


def first_sentence(command: Any) -> str:
    """What a list of commands says about one."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return text.split(". ")[0].removesuffix(".")


def _sections(command: Any, context: Any, *, everything: bool) -> dict[str, list[Row]]:
    """The rows below each heading: arguments, options in panels, commands in panels."""
    found: dict[str, list[Row]] = {}
    shown = [each for each in command.params if not each.hidden and (everything or each.name in command.common)]
    is_short = [len(flag) == 2 for each in shown if _is_option(each) for flag in each.opts]
    for each in sorted(shown, key=_is_option):
        panel = each.rich_help_panel if everything else None
        row = _option(each, context, indent=4 * any(is_short)) if _is_option(each) else _argument(each, context)
        if row[1]:
            found.setdefault((panel or "Options") if _is_option(each) else "Arguments", []).append(row)
    for name, each in command.shown_commands(context):
        found.setdefault(each.rich_help_panel or "Commands", []).append((name, first_sentence(each)))
    return found


def _argument(argument: Any, context: Any) -> Row:
    return argument.make_metavar(context), argument.help or ""


def _option(option: Any, context: Any, indent: int) -> Row:
    flags = ", ".join(sorted(option.opts, key=lambda flag: len(flag) > 2))
    name = flags if flags[1] != "-" else " " * indent + flags
    default = option.show_default if isinstance(option.show_default, str) else option.default
    notes = [f"default: {default}"] * (not option.is_flag and default not in (None, "", ()))
    notes += ["required"] * option.required
    return (
        name if option.is_flag else f"{name} {option.make_metavar(context)}",
        f"{option.help} ({', '.join(notes)})" if notes else option.help or "",
    )


def _notes(command: Any, context: Any, *, everything: bool) -> Iterator[str]:
    if context.parent is not None and (aliases := context.parent.command.aliases_of(context.info_name)):
        yield f"{'Aliases' if aliases[1:] else 'Alias'}: {', '.join(aliases)}"
    if command.epilog:
        yield command.epilog
    if not everything:
        also = getattr(command, "also", "")
        yield f"All options{f', such as {also}' if also else ''}: {context.command_path} {ALL}"


def _lines(row: Row, indent: int, width: int) -> Sequence[str]:
    """A row in lines, with the text from column `indent` on."""
    name, text = row
    lines = textwrap.wrap(text, width - indent) or [""]
    if len(name) > indent - 4:
        return [f"  {name}", *(" " * indent + line for line in lines)]
    return [f"  {name:<{indent - 2}}{lines[0]}", *(" " * indent + line for line in lines[1:])]


def _is_example(paragraph: str) -> bool:
    return paragraph.lstrip().startswith("agentless ")


def _bold(text: str) -> str:
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\033[1m{text}\033[0m"
