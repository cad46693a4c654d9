"""A real Slurm with the files that `agentless slurm config` has written, all of it on this machine.

Only what would be another machine is changed: addresses, ports, folders, users, devices, and that nothing is confined.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from .slurm import Slurm

_NODE = re.compile(r"^NodeName=(\S+)", re.MULTILINE)
_ELSEWHERE = re.compile(r" Node(Hostname|Addr)=\S+")
_NULL = (1, 3)
"""/dev/null"""
_HERE = {
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "MpiDefault": "none",
    "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",
    "SlurmdParameters": "config_overrides",  # more cores and memory than the machine has
}


class WrittenSlurm(Slurm):
    """`texts` are the files by name."""

    def __init__(self, folder: Path, texts: Mapping[str, str]) -> None:
        super().__init__(folder, dict.fromkeys(_NODE.findall(texts["slurm.conf"]), 1), {})
        self._texts = texts

    def _write(self) -> None:
        super()._write()
        adapted = {
            **self._texts,
            "slurm.conf": self._adapted(self._texts["slurm.conf"]),
            "gres.conf": re.sub(
                r"File=(\S+)", lambda match: f"File={self._device(match[1])}", self._texts["gres.conf"]
            ),
            "cgroup.conf": f"CgroupPlugin=cgroup/v1\n{self._texts['cgroup.conf']}",
        }
        for name, text in adapted.items():
            self._folder.joinpath(name).write_text(text)

    def _adapted(self, text: str) -> str:
        at, host = self._folder, socket.gethostname().partition(".")[0]
        here = {
            **_HERE,
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": str(self._port()),
            "AuthInfo": f"socket={at}/munge/socket",
            "StateSaveLocation": f"{at}/state",
            "SlurmdSpoolDir": f"{at}/spool/%n",
            "SlurmctldPidFile": f"{at}/slurmctld.pid",
            "SlurmdPidFile": f"{at}/%n.pid",
            "SlurmctldLogFile": f"{at}/logs/slurmctld",
            "SlurmdLogFile": f"{at}/logs/%n",
        }
        lines = [line for line in text.splitlines() if line.partition("=")[0] not in here]
        for number, line in enumerate(lines):
            if line.startswith("NodeName="):
                here_too = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={self._port()}"
                lines[number] = f"{_ELSEWHERE.sub('', line)} {here_too}"
        return "\n".join([*(f"{key}={value}" for key, value in here.items()), *lines, ""])

    def _device(self, path: str) -> Path:
        """A device of the same name, that is none of a GPU: Slurm sets the variables of a job by its number."""
        file = self._folder / "gpus" / os.path.basename(path)
        if not file.exists():
            os.mknod(file, 0o600 | stat.S_IFCHR, os.makedev(*_NULL))
        return file
