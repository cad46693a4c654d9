"""The programs with which one asks many machines today: how each is run, and what it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.bench.measure import timed
from tests.lab import Lab


@dataclass(frozen=True, slots=True)
class Peer:
    """A program, the Debian package it is in, how the table calls it, and what of its time we may take."""

    program: str
    package: str
    name: str
    most: float
    ask: Callable[[Lab, str], str]
    """Put a question to all nodes of the lab; gives what it prints."""


def _parallel_ssh(lab: Lab, question: str) -> str:
    hosts = lab.root / "hosts"
    hosts.write_text("".join(f"{name}\n" for name in lab.nodes))
    config = f"-F {lab.home}/.ssh/config"
    argv = ["parallel-ssh", "-h", str(hosts), "-p", "50", "-t", "60", "--inline-stdout", "-x", config, question]
    return timed(argv, lab.env())[1]


def _ansible(lab: Lab, question: str, options: str) -> str:
    """`options` are for ssh. Connections that it keeps open end with the lab's servers."""
    hosts = lab.root / "hosts.ini"
    hosts.write_text("".join(f"{name}\n" for name in lab.nodes))
    config = lab.root / "ansible.cfg"
    config.touch()  # or it would read the machine's
    settings = {
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_HOME": str(lab.root / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(lab.root / "ansible" / "tmp"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_SSH_ARGS": f"-F {lab.home}/.ssh/config -C {options}",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(lab.root / "cp"),
    }
    argv = ["ansible", "all", "-i", str(hosts), "-f", "50", "-m", "raw", "-a", question]
    return timed(argv, {**lab.env(), **settings})[1]


_LOGS_IN = "-o ControlMaster=no"
_KEEPS = "-o ControlMaster=auto -o ControlPersist=60s"
"""Ansible's own default: whoever runs it again within a minute finds the connections of the last time open."""

_RAW = "`ansible -m raw -f 50`, pipelining"
PEERS = (
    Peer("parallel-ssh", "pssh", "`parallel-ssh -p 50`", 0.2, _parallel_ssh),
    Peer("ansible", "ansible", _RAW, 0.05, partial(_ansible, options=_LOGS_IN)),
    Peer("ansible", "ansible", f"{_RAW}, its connections still open", 0.05, partial(_ansible, options=_KEEPS)),
)
