"""Ports in the spec of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentless.errors import UsageError

MAX_PORTS = 64
_LARGEST = 65535


@dataclass(frozen=True, slots=True)
class Port:
    """A port in a container, and the one of the user's machine that leads there."""

    port: int
    local: int

    def __str__(self) -> str:
        return str(self.port) if self.port == self.local else f"{self.port}:{self.local}"


def parse_port(text: str) -> Port:
    """Parse `PORT` or `PORT:LOCAL`; raises UsageError."""
    words = text.split(":")
    if len(words) > 2 or not all(word.isascii() and word.isdigit() and _is_port(int(word[:6])) for word in words):
        raise UsageError(f"{text[:40]!r} is no port; use PORT or PORT:LOCAL, such as 8888 or 8888:9999")
    return Port(int(words[0]), int(words[-1]))


def check_ports(ports: Sequence[Port]) -> None:
    """Raise UsageError for ports that cannot all be forwarded."""
    if len(ports) > MAX_PORTS:
        raise UsageError(f"{len(ports)} ports; the limit is {MAX_PORTS}")
    for each in ports:
        if not (_is_port(each.port) and _is_port(each.local)):
            raise UsageError(f"{each} is no port; use numbers from 1 to {_LARGEST}")
    here = [each.local for each in ports]
    if twice := [each for each in ports if here.count(each.local) > 1]:
        raise UsageError(
            f"port {twice[0].local} of this machine is used twice; choose another one for one of them, such as "
            f"{twice[-1].port}:{twice[-1].local + 1}"
        )


def _is_port(number: int) -> bool:
    return 0 < number <= _LARGEST
