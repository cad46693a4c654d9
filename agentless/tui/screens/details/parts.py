"""Pieces of text with styles, of which the screens of details are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentless.model.text import printable
from agentless.tui.widgets import look

Part = str | tuple[str, str]

_COLOURS: dict[str, str] = {
    "good": "$text-success", "warn": "$text-warning", "bad": "$text-error", "odd": "$text-accent",
    "held": "$text-primary", "dim": "dim",
}  # fmt: skip


def colour_of(state: str) -> str:
    """The style of a state in a text of Textual's."""
    return _COLOURS.get(look.style_of(state), "")


def labelled(fields: Iterable[tuple[str, object]]) -> list[Part]:
    """A line for each field that has a value."""
    parts: list[Part] = []
    for name, value in fields:
        if value not in (None, ""):
            parts += [(f"{name:14} ", "dim"), f"{printable(str(value))}\n"]
    return parts


def explained(found: Any) -> list[Part]:
    """The answer of `explain`, as text."""
    if isinstance(found, str):
        return [f"  {found}\n"]
    parts: list[Part] = [f"{printable(found['summary'])}\n"]
    for name in dict.fromkeys((*(each["node"] for each in found["obstacles"]), *found["remedies"])):
        for each in found["obstacles"]:
            if each["node"] == name:
                parts += [(f"  {name}: ", "$text-primary"), f"{printable(each['text'])}\n"]
                parts += [(f"    {printable(line)}\n", "dim") for line in each["details"]]
        if helps := found["remedies"].get(name):
            parts.append((f"    would help: {'; or '.join(map(printable, helps))}\n", "$text-success"))
    return parts
