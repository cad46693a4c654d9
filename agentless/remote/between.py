"""Whether nodes reach each other: one listens on a port, the others connect to it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentless.model.command import Command, Result
from agentless.render import Renderer
from agentless.rules.nodes.checks.between import NO_PROGRAM, Target

WITHIN = 4
"""Seconds for a connection."""
AT_ONCE = 32
"""Connections that one node tries at once."""
LISTENING = b"listening"

_LINE = re.compile(r"([0-9]{1,4}) (.{1,200})")


def listen(renderer: Renderer, port: int, seconds: int) -> Command:
    """Listen on a port; prints LISTENING once it does, or ends if the node has nothing to listen with."""
    return Command(renderer.script("between-listen.sh.j2", port=port, within=seconds) + "\n", timeout=seconds + 10.0)


def attempt(renderer: Renderer, targets: Mapping[int, Target], seconds: float) -> Command:
    """Connect to all of these, by their numbers."""
    rows = [{"number": number, "address": each.address, "port": each.port} for number, each in targets.items()]
    script = renderer.script("between-try.sh.j2", targets=rows, within=WITHIN, at_once=AT_ONCE)
    return Command(f"{script}\n", timeout=seconds)


def parse(result: Result, targets: Mapping[int, Target]) -> dict[int, str]:
    """What became of each: OPEN, or the words of the kernel; NO_PROGRAM if the node cannot try, "" if it is silent."""
    lines = result.out.splitlines()
    if lines == ["nothing"]:
        return dict.fromkeys(targets, NO_PROGRAM)
    found = dict.fromkeys(targets, "")
    for line in lines[: len(targets)]:
        if (match := _LINE.fullmatch(line)) and int(match[1]) in found:
            found[int(match[1])] = match[2]
    return found
