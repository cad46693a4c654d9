"""The accounting of a Slurm of the lab: `mariadbd` and `slurmdbd`, in its folder. Their processes end with it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .engine import SBIN

_PROGRAMS = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server"}


def missing() -> list[str]:
    """What this machine lacks for it, in words."""
    lacks = [name for name in _PROGRAMS if not shutil.which(name, path=SBIN)]
    return [f"no {name} (Debian's package {_PROGRAMS[name]})" for name in lacks]


class Accounting:
    """A database without passwords, which only this machine reaches, on two ports."""

    def __init__(self, folder: Path, database_port: int, port: int) -> None:
        self._folder, self._database_port, self._port = folder, database_port, port

    @property
    def settings(self) -> dict[str, str]:
        """The words of slurm.conf with which slurmctld uses it."""
        return {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(self._port),
            "AccountingStoragePass": f"{self._folder}/munge/socket",
            "AccountingStorageTRES": "gres/gpu",
            "AccountingStoreFlags": "job_comment",
        }

    def start(self, env: Mapping[str, str], enter: Sequence[str]) -> None:
        """Start both; slurmdbd waits for its database. `enter` is the command that starts a program of Slurm."""
        at = self._folder
        data = f"--datadir={at}/database"
        make = ["mariadb-install-db", "--no-defaults", data, "--user=root", "--skip-test-db"]
        subprocess.run(make, env=env, check=True, capture_output=True)
        config = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={at}/munge/socket",
            "DbdHost": "localhost",
            "DbdPort": self._port,
            "SlurmUser": "root",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": self._database_port,
            "StorageUser": "root",
            "StorageLoc": "lab",
            "LogFile": f"{at}/logs/slurmdbd",
            "PidFile": f"{at}/slurmdbd.pid",
        }
        file = at / "slurmdbd.conf"
        file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        file.chmod(0o600)
        database = ["mariadbd", "--no-defaults", data, "--user=root", f"--socket={at}/database.socket"]
        database += [f"--port={self._database_port}", "--bind-address=127.0.0.1", "--skip-grant-tables"]
        with at.joinpath("logs", "accounting").open("ab") as log:
            for daemon in (database, [*enter, "slurmdbd", "-D"]):
                subprocess.Popen(daemon, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
