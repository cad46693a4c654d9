"""Shows how far an operation on an env is: messages, build output, and a bar per node on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from agentless.cli.app import warn
from agentless.cli.output import say
from agentless.cli.progress import progress
from agentless.errors import ControllerError
from agentless.model.text import printable_lines
from agentless.model.units import format_duration, format_size


def follow(lines: Iterable[dict[str, Any]], interrupted: str) -> dict[str, Any]:
    """Print the lines as they arrive and return the last one; Ctrl-C prints what remains."""
    try:
        with progress("Waiting for the node") as shown:
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
                        shown.update(_words(line), name=line["node"], done=line["done"], total=line["total"])
                    case "done":
                        return line
    except KeyboardInterrupt:
        say("", interrupted)
        raise
    raise ControllerError(
        "Lost the connection to the controller before the operation finished; run the command again to continue"
    )


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
        warn(f"{each['node']} keeps {each['what']}: {each['why']}")
