"""Compares the written line of a node with what Slurm's own programs say of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentless.rules.slurm.lines import pairs_of

_SLURMD = {
    "NodeHostname": "NodeName",
    "CPUs": "CPUs",
    "Sockets": "SocketsPerBoard",
    "CoresPerSocket": "CoresPerSocket",
    "ThreadsPerCore": "ThreadsPerCore",
    "RealMemory": "RealMemory",
    "Gres": "Gres",
}
"""Keys of slurm.conf, and what `slurmd -C` calls them."""
_SLURMCTLD = {
    "NodeHostname": "NodeHostName",
    "NodeAddr": "NodeAddr",
    "CPUs": "CPUTot",
    "Sockets": "Sockets",
    "CoresPerSocket": "CoresPerSocket",
    "ThreadsPerCore": "ThreadsPerCore",
    "RealMemory": "RealMemory",
    "Gres": "Gres",
}
"""What `scontrol show node` calls them."""
_NEAR = re.compile(r"\([^)]*\)")
"""Where GPUs are, behind their number: `gpu:a100:2(S:0-1)`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What the line of a node `written` has for a `key`, and what a `program` has `found`."""

    node: str
    key: str
    written: str
    found: str
    program: str


def by_slurmd(node: str, line: str, said: str) -> Iterator[Difference]:
    """What differs from `slurmd -C` on the node. More memory than written is right."""
    written, found = pairs_of(line), pairs_of(said)
    found.setdefault("Gres", written.get("Gres", ""))  # only some versions say it
    if _number(found.get("RealMemory")) >= _number(written.get("RealMemory")):
        found["RealMemory"] = written.get("RealMemory", "")
    yield from _differences(node, written, found, _SLURMD, "slurmd -C")


def by_slurmctld(node: str, line: str, said: str) -> Iterator[Difference]:
    """What differs from `scontrol -o show node`."""
    written, found = pairs_of(line), pairs_of(said)
    if found.get("Gres") == "(null)":
        found["Gres"] = ""
    yield from _differences(node, written, found, _SLURMCTLD, "scontrol")


def by_sinfo(node: str, line: str, said: str) -> Iterator[Difference]:
    """What differs from the line `NAME GRES` of sinfo."""
    gres = said.partition(" ")[2].strip().replace("(null)", "")
    yield from _differences(node, pairs_of(line), {"Gres": gres}, {"Gres": "Gres"}, "sinfo")


def _differences(
    node: str, written: Mapping[str, str], found: Mapping[str, str], keys: Mapping[str, str], program: str
) -> Iterator[Difference]:
    for key, theirs in keys.items():
        wanted, real = written.get(key, ""), found.get(theirs, "")
        if key == "NodeHostname" and not wanted:
            wanted = written.get("NodeName", "")
        if key != "Gres" and not wanted:
            continue
        if _gres(wanted) != _gres(real) if key == "Gres" else wanted.lower() != real.lower():
            yield Difference(node, key, wanted or "-", real or "-", program)


def _gres(text: str) -> list[str]:
    return sorted(part for part in _NEAR.sub("", text).lower().split(",") if part)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0
