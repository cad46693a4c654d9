"""Pieces of text with styles, of which the screens of details are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len

from agentless.client.words import explained as explanations
from agentless.client.words import memory
from agentless.model.nodes.node import all_named
from agentless.model.text import printable
from agentless.tui.data.cluster import Row
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import fitted

Part = str | tuple[str, str]
_FIELD, _WIDE_FIELD = 38, 58
"""The least columns of a field beside another one, on a narrow and on a wide screen."""

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


def beside(fields: Iterable[tuple[str, object]], width: int) -> list[Part]:
    """The fields that have a value, as many beside each other as fit; a long one takes the place of several."""
    columns = max(1, width // _FIELD if width < 2 * _WIDE_FIELD else width // _WIDE_FIELD)
    wide = width // columns
    parts: list[Part] = []
    used = 0
    for name, value in fields:
        if value in (None, ""):
            continue
        text = printable(str(value))
        cells = min(columns, -(-(15 + cell_len(text) + 1) // wide))
        if used and used + cells > columns:
            parts.append("\n")
            used = 0
        used += cells
        parts += [(f"{name:14} ", "dim"), text + " " * (cells * wide - 15 - cell_len(text) if used < columns else 0)]
    return [*parts, "\n"] if parts else []


def meter(share: float | None, width: int, colour: str, *, alarm: bool = False) -> list[Part]:
    """A bar in a text of Textual's, in a colour of the theme such as `utilization`."""
    return [(text, _COLOURS.get(style, f"${style}")) for text, style in look.bar(share, width, colour, alarm=alarm)]


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


def processes(rows: Sequence[Row], width: int) -> list[Part]:
    """A table of the processes on a GPU; those with the most memory first."""
    if not rows:
        return []
    rows = sorted(rows, key=lambda each: -(each["memory_mib"] or 0))
    users = max(4, *(cell_len(printable(each["user"] or "-")) for each in rows))
    parts: list[Part] = [(f"\n{'PID':>10} {fitted('USER', users)} {'GPU MEMORY':>10}  COMMAND\n", "dim")]
    for each in rows:
        start = f"{each['pid']:>10} {fitted(each['user'] or '-', users)} {memory(each['memory_mib']):>10}  "
        command = each["command"] or each["name"] or "unknown program"
        parts.append(start + fitted(command, max(10, width - cell_len(start))).rstrip() + "\n")
    return parts
