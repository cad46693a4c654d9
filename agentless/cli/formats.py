"""The formats of lists and single things: `-o`, beside `--json`.

A verb that lists things names its `Kind`, makes a `Format` of its options before any request, and shows what it found.
"""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from agentless.cli.output import print_json, print_line, print_yaml, say
from agentless.cli.pager import paged
from agentless.cli.table import Column, line_of, show
from agentless.errors import UsageError

Row = dict[str, Any]
NAMED = ("json", "yaml", "name", "wide")
_PREFIX = "custom-columns="


def complete_formats(incomplete: str) -> list[str]:
    """The named formats that begin so."""
    return [word for word in NAMED if word.startswith(incomplete)]


Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="json, yaml, name, wide, or JSON fields to show as columns, like id,node or ID:id,NODE:node.",
        autocompletion=complete_formats,
    ),
]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing: its class, as `module.Class` in `agentless.model`, and its name for `-o name`."""

    view: str
    name: Callable[[Row], str]

    def format(self, as_json: bool, output: str | None) -> Format:
        """The wanted format. Raises UsageError for an unknown one, or an unknown field."""
        if output in NAMED:
            if as_json and output != "json":
                raise UsageError(f"--json and -o {output} cannot be combined; use one of them")
            return Format(self, output)
        if output is None:
            return Format(self, "json" if as_json else "")
        if as_json:
            raise UsageError("--json and -o cannot be combined; use one of them")
        return Format(self, "fields", tuple(self._columns(output)))

    def _columns(self, output: str) -> Iterator[Column]:
        known = self._fields()
        for part in output.removeprefix(_PREFIX).split(","):
            title, colon, path = part.rpartition(":")
            path = path.strip().removeprefix(".")
            if path.partition(".")[0] not in known:
                raise UsageError(
                    f"-o {output[:80]!r}: no format or field named {path!r}; formats are {', '.join(NAMED)}, "
                    f"and fields (like {known[0]},{known[1]}) are {', '.join(known)}"
                )
            yield Column(title if colon else path.upper(), _value(path))

    def _fields(self) -> list[str]:
        module, _, name = self.view.rpartition(".")
        view = getattr(importlib.import_module(f"agentless.model.{module}"), name)
        return [field.name for field in fields(view)]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: one of NAMED, "fields" with its `columns`, or "" for the usual table."""

    kind: Kind
    word: str
    columns: tuple[Column, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether a person reads it, so that notes and hints belong to it."""
        return self.word in ("", "wide")

    def show(self, found: Sequence[Row], columns: Sequence[Column], none: str) -> None:
        """Print a list, or for a person that there is nothing."""
        with paged():
            if not self.is_table:
                self.print(found)
            elif found:
                show(columns, found, wide=self.word == "wide")
            else:
                say(none)

    def print(self, found: Any) -> None:
        """Print a list of things, or one, in a format that is no table for a person."""
        rows = found if isinstance(found, Sequence) else [found]
        match self.word:
            case "json":
                print_json(found)
            case "yaml":
                print_yaml(found)
            case "name":
                for name in dict.fromkeys(map(self.kind.name, rows)):
                    print_line(name)
            case _ if rows:
                show(self.columns, rows)

    def printer(self, *, flush: bool) -> Callable[[Row], None]:
        """Prints one thing after the other as they come, in a format that is no table for a person."""
        widths: list[int] = []

        def columns(row: Row) -> None:
            if not widths:
                widths[:] = [0] * len(self.columns)
                print_line(line_of([column.title for column in self.columns], widths))
            print_line(line_of([column.text(row) for column in self.columns], widths), flush=flush)

        return {
            "json": lambda row: print_json(row, indent=None, flush=flush),
            "yaml": lambda row: print_yaml(row, document=True, flush=flush),
            "name": lambda row: print_line(self.kind.name(row), flush=flush),
        }.get(self.word, columns)


def _value(path: str) -> Callable[[Row], str]:
    """The text of a field, or of a part of it; `-` if there is none, so that the columns of a row can be counted."""

    def text(row: Row) -> str:
        value: Any = row
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return (shlex.join(value) if path == "command" else _text(value)) or "-"

    return text


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        return ",".join(map(_text, value))
    return json.dumps(value, ensure_ascii=False) if value not in ([], {}) else ""


TASKS = Kind("view.TaskView", lambda task: str(task["id"]))
