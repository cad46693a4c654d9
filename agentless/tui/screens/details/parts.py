"""Pieces of text with styles, of which the screens of details are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agentless.client.plot import Series, dotted
from agentless.client.words import explained as explanations
from agentless.model.nodes.node import all_named
from agentless.model.text import printable
from agentless.tui.data.cluster import Row
from agentless.tui.widgets import look

Part = str | tuple[str, str]
Curve = tuple[str, str, float, Callable[[Any], str]]
"""A curve to draw: its title, its field, the largest value, and the words for a value."""

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


def curves(found: Row, shown: Iterable[Curve], width: int) -> list[Part]:
    """The last hour of these."""
    parts: list[Part] = []
    for title, field, top, words in shown:
        values = found[field]
        last = next((value for value in reversed(values) if value is not None), None)
        parts.append((f"\n{title}, last hour, 0 to {words(top)}; now {words(last)}\n", "bold"))
        lines = dotted([Series(title, values, "")], width, 4, top, filled=True)
        parts += [("".join(text for text, _ in line) + "\n", "$text-primary") for line in lines]
    return parts


def explained(found: Any) -> list[Part]:
    """The answer of `explain`, as text."""
    if isinstance(found, str):
        return [f"  {found}\n"]
    parts: list[Part] = [f"{printable(found['summary'])}\n"]
    if preemption := found.get("preemption"):
        parts.append(f"  {printable(preemption)}\n")
    if gang_helps := found.get("helps"):
        parts.append((f"  would help: {'; or '.join(map(printable, gang_helps))}\n", "$text-success"))
    for nodes, obstacles, helps in explanations(found):
        for text, details in obstacles:
            parts += [(f"  {all_named(nodes)}: ", "$text-primary"), f"{printable(text)}\n"]
            parts += [(f"    {printable(line)}\n", "dim") for line in details]
        if helps:
            parts.append((f"    would help: {'; or '.join(map(printable, helps))}\n", "$text-success"))
    return parts
