"""A real OpenSSH server on loopback, with keys, a home directory and processes that belong to one test only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path

from tests.ports import reserve
from tests.proc import process_files

PROGRAM = "/usr/sbin/sshd"
WAIT = 30.0
"""Seconds that anything which has to happen may take."""


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = ["-b", "2048"] if kind == "rsa" else []  # the default one takes seconds to make
    subprocess.run(["ssh-keygen", "-q", "-t", kind, *size, "-N", passphrase, "-f", path], check=True)
    return path


def public(key: Path) -> str:
    """Its public part as in `known_hosts`."""
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


class Sshd:
    """A server. `home` is one of a user whom it lets in and who knows its host key, `tag` marks what it starts."""

    def __init__(self, folder: Path, *options: str, kinds: tuple[str, ...] = ("ed25519",)) -> None:
        self.tag = f"AGENTLESS_TEST={uuid.uuid4().hex}"
        self.home = folder / "home"
        self.host_keys = [keygen(folder / f"host_{kind}", kind) for kind in kinds]
        self.key = keygen(self.home / ".ssh/id_ed25519")
        self.known_hosts = self.home / ".ssh/known_hosts"
        self.authorized_keys = folder / "authorized_keys"
        self.authorized_keys.write_text(public(self.key) + "\n")
        self._folder = folder
        self._options = [
            *options,
            *(f"HostKey {key}" for key in self.host_keys),
            f"AuthorizedKeysFile {self.authorized_keys}",
            # Also a home of its own: no rc file of whoever runs the tests has a part in them.
            f"SetEnv {self.tag} HOME={self.home}",
            "PidFile none",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "MaxStartups 100",
        ]
        self._holder = reserve()
        self.port = int(self._holder.getsockname()[1])
        self.start()
        self.known_hosts.write_text(f"{self.host_field} {public(self.host_keys[0])}\n")

    @property
    def host_field(self) -> str:
        """Its name in `known_hosts`."""
        return f"[127.0.0.1]:{self.port}"

    def start(self) -> None:
        """Listen; returns when it does."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        config, log = self._folder / "sshd_config", self._folder / "log"
        config.write_text("\n".join(["ListenAddress 127.0.0.1", f"Port {self.port}", *self._options]))
        with log.open("wb") as stderr:
            self._process = subprocess.Popen([PROGRAM, "-D", "-e", "-f", config], stderr=stderr)
        deadline = time.monotonic() + WAIT
        while "Server listening" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            assert self._process.poll() is None, log.read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop listening and break all connections."""
        self.break_connections()
        self._process.kill()
        self._process.wait()

    def connections(self) -> list[int]:
        """The processes that each serve one connection."""
        found = []
        for stat in process_files("stat"):
            with contextlib.suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == self._process.pid:
                    found.append(int(stat.parent.name))
        return found

    def freeze_connections(self) -> None:
        """Have them say nothing more, as a cut link would."""
        self._signal(signal.SIGSTOP)

    def break_connections(self, but: Collection[int] = ()) -> None:
        """End them, as a crash would, except those of some processes."""
        self._signal(signal.SIGKILL, but)

    def _signal(self, number: signal.Signals, but: Collection[int] = ()) -> None:
        """To the processes of all connections and their unprivileged halves, not to what they have started."""
        for pid in set(self.connections()).difference(but):
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                for victim in (pid, *map(int, children)):
                    if "sshd" in os.readlink(f"/proc/{victim}/exe"):
                        os.kill(victim, number)


def processes(tag: str) -> dict[int, str]:
    """The command lines, by pid, of all that runs with `tag` in its environment; "" is in every one."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if tag.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found


async def until(condition: Callable[[], object], message: str | Callable[[], str] = "it did not happen") -> None:
    """Wait for something that nobody tells us of."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, message() if callable(message) else message
        await asyncio.sleep(0.02)
