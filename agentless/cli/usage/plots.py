"""`--plot` of `gpus` and `usage`: plots as wide as the terminal, plain to a pipe."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from typing import Any

from agentless.cli.arguments import moment
from agentless.cli.output import has_colours, print_line
from agentless.client import history
from agentless.client.client import Client
from agentless.client.console import in_font
from agentless.client.panels import Shown, drawn
from agentless.client.words import gpu_model, gpu_number, place
from agentless.errors import UsageError
from agentless.model.text import printable

KEPT = 30 * 86400.0
"""Seconds for which the controller keeps readings."""
POINTS = 480
MOST = 200_000
"""Points that the controller gives at most, of all GPUs together."""
_HEIGHTS = (8, 16)
"""The least and the most lines of the plots of a node."""
_CODES = {
    "strong": "1", "dim": "2", "axis": "2", "grid": "2",
    "s0": "36", "s1": "94", "s2": "33", "s3": "35", "s4": "32", "s5": "31", "s6": "96", "s7": "95",
}  # fmt: skip
_CODES |= {f"f{number}": f"2;{_CODES[f's{number}']}" for number in range(8)}
"""The ANSI codes of the styles of plots."""


def readings(client: Client, gpus: Sequence[dict[str, Any]], since: str, *, are_all: bool) -> dict[str, Any]:
    """The readings of these GPUs since a time; raises UsageError for one that is too long ago."""
    span = time.time() - moment(since, "--since")
    if span > KEPT:
        raise UsageError(f"--since {since}: readings are kept for 30 days; use --since 30d")
    points = max(1, min(POINTS, MOST // len(gpus)))
    names = [] if are_all else [place(node, [gpu_number(gpu) for gpu in each]) for node, each in _by_node(gpus)]
    found: dict[str, Any] = client.get("/v1/history", since=max(1.0, span), points=points, gpu=names)
    return found


def print_gpus(found: dict[str, Any], gpus: Sequence[dict[str, Any]]) -> None:
    """The plots of each node: the load of one GPU, or utilization and memory of several."""
    rows = {(row["node"], row["uuid"]): row for row in found["gpus"]}
    nodes = _by_node([gpu for gpu in gpus if (gpu["node"], gpu["uuid"]) in rows])
    least, most = _HEIGHTS
    height = max(least, min(most, shutil.get_terminal_size().lines // max(1, len(nodes)) - 3))
    for number, (node, limits) in enumerate(nodes):
        curves = [rows[node, gpu["uuid"]] for gpu in limits]
        models = ", ".join(dict.fromkeys(map(gpu_model, limits)))
        if number:
            print_line("")
        _print([(printable(f"{place(node, list(map(gpu_number, limits)))}  {models}"), "strong")])
        plots = history.of_gpu(curves[0], limits[0])[:1] if len(curves) == 1 else history.of_gpus(curves, limits)[:2]
        _print_plots(history.shown(found, len(curves[0]["utilization_pct"]), plots), height)


def _by_node(gpus: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    nodes: dict[str, list[dict[str, Any]]] = {}
    for gpu in gpus:
        nodes.setdefault(gpu["node"], []).append(gpu)
    return list(nodes.items())


def print_usage(found: dict[str, Any]) -> None:
    """How many GPUs tasks have had over time."""
    _print_plots(history.of_usage(found), _HEIGHTS[1])


def _print_plots(shown: Shown, height: int) -> None:
    for line in drawn(shown, max(20, shutil.get_terminal_size().columns), height)[0]:
        _print(line)


def _print(line: Sequence[tuple[str, str]]) -> None:
    line = [(text.translate(in_font(os.environ)), style) for text, style in line]
    if has_colours():
        print("".join(f"\033[{code}m{text}\033[0m" if (code := _CODES.get(style)) else text for text, style in line))  # noqa: T201
    else:
        print("".join(text for text, _ in line).rstrip(" "))  # noqa: T201
