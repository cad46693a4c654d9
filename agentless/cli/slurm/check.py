"""Compares the configuration with Slurm's daemons: on the nodes, and on this machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentless.cli.output import confirm_done, say
from agentless.cli.pager import paged
from agentless.cli.table import Column, show
from agentless.errors import Refused
from agentless.model.nodes.node import all_named
from agentless.rules.slurm.check import Difference, by_sinfo, by_slurmctld, by_slurmd
from agentless.rules.slurm.lines import pairs_of

_WITHIN = 30.0
_MOST = 1 << 24
_COLUMNS = [
    Column("NODE", lambda row: row["node"]),
    Column("KEY", lambda row: row["key"]),
    Column("WRITTEN", lambda row: row["written"]),
    Column("FOUND", lambda row: row["found"]),
    Column("BY", lambda row: row["program"]),
]


def compare(nodes: Sequence[dict[str, Any]]) -> bool:
    """Print what differs; gives whether anything does. Raises Refused if no daemon of Slurm answers."""
    nodes = _with_this_machine(nodes)
    silent = [node["node"] for node in nodes if not node["slurmd"]]
    unknown = [node["node"] for node in nodes if not node["slurmctld"] and not node["sinfo"]]
    if len(silent) == len(unknown) == len(nodes):
        raise Refused("no slurmd on the nodes, and no slurmctld answers there or here; install and start Slurm first")
    if silent:
        say(f"No answer from slurmd -C on {all_named(silent)}")
    if unknown:
        say(f"slurmctld does not answer, or does not have {all_named(unknown)}")
    rows = [vars_of(each) for node in nodes for each in _differences(node)]
    if rows:
        with paged():
            show(_COLUMNS, rows)
    elif not (silent or unknown):
        confirm_done("No differences")
    return bool(rows or silent or unknown)


def vars_of(each: Difference) -> dict[str, str]:
    """The columns of a row."""
    return {name: getattr(each, name) for name in ("node", "key", "written", "found", "program")}


def _differences(node: Mapping[str, Any]) -> Iterable[Difference]:
    for compared, said in ((by_slurmd, "slurmd"), (by_slurmctld, "slurmctld"), (by_sinfo, "sinfo")):
        if node[said]:
            yield from compared(node["node"], node["line"], node[said])


def _with_this_machine(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The nodes with what slurmctld says here, if it does."""
    of_slurmctld = {pairs_of(line).get("NodeName", ""): line for line in _lines("scontrol", "-o", "show", "node")}
    of_sinfo = {line.partition(" ")[0]: line for line in _lines("sinfo", "-h", "-N", "-o", "%N %G")}
    return [
        {
            **node,
            "slurmctld": of_slurmctld.get(name := pairs_of(node["line"])["NodeName"], node["slurmctld"]),
            "sinfo": of_sinfo.get(name, node["sinfo"]),
        }
        for node in nodes
    ]


def _lines(*command: str) -> list[str]:
    """What a program of Slurm prints here; nothing if it is not here, fails, or takes too long."""
    if not shutil.which(command[0]):
        return []
    try:
        ran = subprocess.run(command, capture_output=True, timeout=_WITHIN, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return ran.stdout[:_MOST].decode(errors="replace").splitlines() if ran.returncode == 0 else []
