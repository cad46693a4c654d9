"""A node's own OpenSSH server, with a configuration and a host key of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from .namespaces import Namespaces
from .processes import MARK, Process, descendants, kill, processes


class Sshd:
    """`sshd -D` on one address. What its sessions see as their node is the environment it gives them."""

    def __init__(
        self, folder: Path, lab: Path, host: str, port: int, space: Namespaces, session: Mapping[str, str]
    ) -> None:
        self.host, self.port = host, port
        self._folder, self._lab, self._space = folder, lab, space
        self._key = folder / "host_key"
        self._process: subprocess.Popen[bytes] | None = None
        self._options: list[str] = []
        make_key(self._key)
        # One line, since sshd reads only the first SetEnv. HOME decides which ~/.bashrc is read, and with it
        # how long a session takes to start, whatever the machine's user has in his own.
        environment = " ".join(f'"{name}={value}"' for name, value in session.items())
        folder.joinpath("sshd_config").write_text(
            f"ListenAddress {host}:{port}\n"
            f"HostKey {self._key}\n"
            f"AuthorizedKeysFile {lab}/authorized_keys\n"
            f"SetEnv {environment}\n"
            "PidFile none\n"
            "StrictModes no\n"
            "UsePAM no\n"
            "PasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\n"
            "PermitRootLogin yes\n"
            "Subsystem sftp internal-sftp\n"
            "LogLevel VERBOSE\n"
        )

    @property
    def public_key(self) -> str:
        """The host key as known_hosts has it: type and base64, without a comment."""
        return self._key.with_suffix(".pub").read_text().strip()

    def start(self) -> None:
        """Listen; does nothing when it already does. Raises RuntimeError with the log when sshd refuses."""
        if self._process and self._process.poll() is None:
            return
        Path("/run/sshd").mkdir(exist_ok=True)
        log = self._folder / "sshd.log"
        program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
        with log.open("ab") as out:
            before = out.tell()
            self._process = self._space.popen(
                [str(program), "-D", "-e", "-f", str(self._folder / "sshd_config"), *self._options],
                env={MARK: str(self._lab), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        deadline = time.monotonic() + 30
        while b"Server listening" not in (said := log.read_bytes()[before:]):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"sshd does not start: {said.decode(errors='replace')}")
            time.sleep(0.005)

    def stop(self) -> None:
        """End the server and its connections: the port refuses, and whoever was connected notices."""
        if not self._process:
            return
        self._process.send_signal(signal.SIGSTOP)  # it takes no connection while they are being counted
        self.kill_connections()
        self._process.kill()
        self._process.wait()
        self._process = None

    def allow_sessions(self, number: int | None) -> None:
        """Come back with so many sessions on each connection, None: as many as there are when nobody says a number."""
        options = [] if number is None else ["-o", f"MaxSessions={number}"]
        if options != self._options:
            self.stop()
            self._options = options
            self.start()

    def logins(self) -> int:
        """How often it has let somebody in."""
        return self._folder.joinpath("sshd.log").read_text().count("Accepted publickey")

    def kill_connections(self) -> None:
        """SIGKILL the sshd process of each connection; what its sessions had started is left to itself."""
        everyone = processes()
        kill(pid for pid in self.descendants(everyone) if everyone[pid].name.startswith("sshd"))

    def descendants(self, among: Mapping[int, Process]) -> set[int]:
        """The PIDs of connections and of what runs in them."""
        return descendants([self._process.pid], among) if self._process else set()

    def reap(self) -> None:
        """Collect the server after somebody else has ended it."""
        if self._process:
            self._process.wait(30)
            self._process = None

    def new_host_key(self) -> None:
        """Come back with another key, as a machine that was installed anew. The first key is kept."""
        self.stop()
        for suffix in ("", ".pub"):
            first = self._folder / f"first_host_key{suffix}"
            if not first.exists():
                shutil.copy(self._folder / f"host_key{suffix}", first)
            self._folder.joinpath(f"host_key{suffix}").unlink()
        make_key(self._key)
        self.start()

    def first_host_key(self) -> None:
        """Take back what `new_host_key` did; nothing to do without it."""
        if not self._folder.joinpath("first_host_key").exists():
            return
        self.stop()
        for suffix in ("", ".pub"):
            self._folder.joinpath(f"first_host_key{suffix}").rename(self._folder / f"host_key{suffix}")
        self.start()


def make_key(file: Path) -> None:
    """An ed25519 key pair without a passphrase and without a comment: `file` and `file`.pub."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)], check=True)
