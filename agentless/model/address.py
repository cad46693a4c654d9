"""An address to listen on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:localhost:|([0-9.]+):|\[([0-9A-Fa-f:.]+)\]:)?([1-9][0-9]{0,4})")


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address in `9400` (on loopback), `192.0.2.1:9400` or `[::1]:9400`; raises ValueError for anything else."""
    match = _ADDRESS.fullmatch(text)
    if not match or int(match[3]) > 65535:
        raise ValueError(text)
    return Address(str(ip_address(match[1] or match[2] or LOOPBACK)), int(match[3]))
