"""How other nodes may reach a node, and which of its ports are in use; see `gang-look.sh.j2`."""

from __future__ import annotations

import re
from ipaddress import ip_address

from agentless.model.command import Command, Result
from agentless.render import Renderer
from agentless.rules.tasks.gangs.meeting import PORTS, Surroundings

_ADDRESS = re.compile(
    r"[0-9]{1,9}: ([A-Za-z0-9_.-]{1,15})(?:@\S{1,40})? +inet6? ([0-9a-fA-F:.]{2,45})(?:/[0-9]{1,3})? .*"
)
_PORT = re.compile(r" *[0-9]{1,9}: [0-9A-F]{8,32}:([0-9A-F]{4}) ?")
_LINES = 21500


def look(renderer: Renderer) -> Command:
    """The script to run on the node."""
    return Command(renderer.script("gang-look.sh.j2", first=PORTS.start) + "\n")


def parse(result: Result) -> Surroundings:
    """The answer; what cannot be read is left out."""
    reached, interfaces, used = "", dict[str, str](), set[int]()
    for line in result.out.splitlines()[:_LINES]:
        if match := _PORT.fullmatch(line):
            used.add(int(match[1], 16))
        elif line.startswith("ssh ") and len(words := line.split()) == 5:
            reached = _address(words[3])
        elif (match := _ADDRESS.fullmatch(line)) and (address := _address(match[2])):
            interfaces.setdefault(address, match[1])
    return Surroundings(reached, interfaces, frozenset(used))


def _address(text: str) -> str:
    try:
        found = ip_address(text.partition("%")[0].removeprefix("::ffff:"))
    except ValueError:
        return ""
    return str(found)
