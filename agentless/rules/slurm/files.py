"""All files of a Slurm cluster that has the nodes of the inventory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentless.rules.slurm.conf import Wanted, node_line, slurm_conf
from agentless.rules.slurm.fabric import topology_conf
from agentless.rules.slurm.gres import gres_conf
from agentless.rules.slurm.lines import Names, comment, entry, word
from agentless.rules.slurm.machine import Machine
from agentless.rules.slurm.types import types_of

WRITTEN = "# Written by: agentless slurm config"
"""The beginning of the first line of each file."""
_CUSTOMIZED = re.compile(r"^# *USER_CUSTOMIZED=true *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SlurmFiles:
    """The `texts` of the files by name, and the lines of the nodes in slurm.conf by node."""

    texts: Mapping[str, str]
    lines: Mapping[str, str]


def is_customized(text: str) -> bool:
    """Whether somebody asks to keep a file as it is."""
    return bool(_CUSTOMIZED.search(text))


def slurm_files(machines: Sequence[Machine], wanted: Wanted, silent: Iterable[str]) -> SlurmFiles:
    """The files for these machines. `silent` says which nodes are left out, and why."""
    names, types = Names(), types_of(machines)
    named = [(names.give(word(machine.name, "A-Za-z0-9_.-", "node")), machine) for machine in machines]
    fabric = list(topology_conf(named))
    files: dict[str, Iterable[str]] = {
        "slurm.conf": slurm_conf(named, types, wanted, silent, fabric=bool(fabric)),
        "gres.conf": gres_conf(named, types),
        "cgroup.conf": _cgroup_conf(),
        "topology.conf": fabric,
        "slurmdbd.conf.example": _slurmdbd_conf(),
    }
    written = {name: list(lines) for name, lines in files.items()}
    return SlurmFiles(
        {name: _text(name, lines) for name, lines in written.items() if lines or name != "topology.conf"},
        {machine.name: node_line(name, machine, types) for name, machine in named},
    )


def _text(name: str, lines: Iterable[str]) -> str:
    keep = "Add the line # USER_CUSTOMIZED=true to keep your own changes."
    return "\n".join((f"{WRITTEN}. {name} for Slurm 21.08 or newer.", comment(keep), *lines, ""))


def _cgroup_conf() -> Iterable[str]:
    yield entry(ConstrainCores="yes")
    yield entry(ConstrainRAMSpace="yes")
    yield comment("A job sees only the GPUs that it was given.")
    yield entry(ConstrainDevices="yes")


def _slurmdbd_conf() -> Iterable[str]:
    yield comment(
        "For accounting. Copy this file to slurmdbd.conf, readable by SlurmUser only. Set the password of the"
    )
    yield comment("database. Start slurmdbd, then remove the # from the lines for accounting in slurm.conf.")
    yield entry(AuthType="auth/munge")
    yield entry(DbdHost="localhost")
    yield entry(SlurmUser="slurm")
    yield entry(LogFile="/var/log/slurm/slurmdbd.log")
    yield entry(StorageType="accounting_storage/mysql")
    yield entry(StorageHost="localhost")
    yield entry(StorageLoc="slurm_acct_db")
    yield entry(StorageUser="slurm")
    yield comment("StoragePass=")
