"""Shows how far an operation on an env is: messages, build output, and a bar per node on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from agentless.cli.output import say
from agentless.errors import ControllerError
from agentless.model.text import printable, printable_lines
from agentless.model.units import format_duration, format_size


def follow(lines: Iterable[dict[str, Any]], interrupted: str) -> dict[str, Any]:
    """Print the lines as they arrive and return the last one; Ctrl-C prints what remains."""
    try:
        with contextlib.closing(_bars()) as bars:
            next(bars)
            for line in lines:
                match line["kind"]:
                    case "say":
                        say(line["text"])
                    case "output":
                        # The build may use colours, on a terminal only.
                        print(  # noqa: T201
                            line["text"] if sys.stdout.isatty() else printable_lines(line["text"]), end="", flush=True
                        )
                    case "progress":
                        bars.send(line)
                    case "done":
                        return line
    except KeyboardInterrupt:
        say("", interrupted)
        raise
    raise ControllerError("the controller went away before it was done; do it once more")


def _bars() -> Any:
    """Receives progress and draws a bar for each node, on a terminal only."""
    if not sys.stderr.isatty():
        while True:
            yield
    line = yield
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[words]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        nodes: dict[str, Any] = {}
        while True:
            name = line["node"]
            if name not in nodes:
                nodes[name] = progress.add_task(name, total=None, words="")
            progress.update(nodes[name], total=line["total"], completed=line["done"], words=printable(_words(line)))
            line = yield


def _words(line: dict[str, Any]) -> str:
    if not line["done"]:
        return str(line["step"])
    of = f" of {format_size(line['total'])}" if line["total"] else ""
    rate = f", {format_size(int(line['rate']))}/s" if line["rate"] else ""
    left = f", {format_duration(line['eta'])} left" if line["eta"] is not None else ""
    return f"{line['step']} {format_size(line['done'])}{of}{rate}{left}"


def rows(found: dict[str, Any]) -> Iterator[str]:
    """What was removed, a line each. Prints what stays, and why."""
    for each in found["removed"]:
        yield f"{each['node']}: {each['what']}"
    for each in found["stays"]:
        say(f"agentless: {each['node']} keeps {each['what']}: {each['why']}")
