"""The host keys on record, and the check of the one that a server shows; see sshd(8), known_hosts.

A host key is written as in such a file: `ssh-ed25519 AAAA…`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentless.errors import HostKeyRejected
from agentless.remote.transports._ssh.config import matches

_ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
"""Signature algorithms by type of key, best first. RSA with SHA-1 is broken and is not among them."""


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """What is on record for a server.

    `host` is its name as in a `known_hosts` line; `keys` are those recorded under that name, with their files.
    `portless` are those of the same machine's port 22: they are accepted on another port, too, but a new key there does
    not contradict them. `authorities` sign host certificates; `revoked` keys are always refused. `address` is where the
    server is, empty if it is on record by that.
    """

    host: str
    keys: tuple[tuple[str, Path], ...] = ()
    portless: tuple[str, ...] = ()
    authorities: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()
    address: str = ""

    def algorithms(self) -> list[str]:
        """All host key algorithms, those for which a key is on record first.

        The server picks the first that it has. So a host with only one key on record shows that one.
        """
        recorded = {key.split()[0] for key, _ in self.keys} or {key.split()[0] for key in self.portless}
        types = sorted(_ALGORITHMS, key=lambda kind: kind not in recorded)
        return [algorithm for kind in types for algorithm in _ALGORITHMS[kind]]

    def check(self, key: str, node: str) -> None:
        """Return if `key` is the server's, else raise HostKeyRejected; `node` is what the user has to trust."""
        shown, place = fingerprint(key), self.host + (f" at {self.address}" if self.address else "")
        if key in self.revoked:
            raise HostKeyRejected(
                f"{node}: the host key {shown} of {place} is marked as revoked; another machine may be "
                "impersonating it; do not connect",
                host=self.host,
                address=self.address,
                key=key,
                fingerprint=shown,
                recorded=(shown,),
                revoked=True,
            )
        if key in self.portless or any(key == known for known, _ in self.keys):
            return
        if not self.keys:
            raise HostKeyRejected(
                f"{node}: unknown host key of {place} ({key.split(maxsplit=1)[0]} {shown}); to trust it, run: "
                f"agentless nodes trust {node}",
                host=self.host,
                address=self.address,
                key=key,
                fingerprint=shown,
            )
        recorded = tuple(dict.fromkeys(fingerprint(known) for known, _ in self.keys))  # it may be in several files
        raise HostKeyRejected(
            f"{node}: WARNING: the host key of {place} has changed from {', '.join(recorded)} to {shown}; "
            f"another machine may be impersonating it; if you reinstalled it, run: ssh-keygen -R '{self.host}' -f "
            f"{self.keys[0][1]} && agentless nodes trust {node}",
            host=self.host,
            address=self.address,
            key=key,
            fingerprint=shown,
            recorded=recorded,
            file=str(self.keys[0][1]),
        )


def fingerprint(key: str) -> str:
    """`SHA256:…`, as `ssh-keygen -l` prints it."""
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def host_field(host: str, port: int) -> str:
    """The name of a server in a `known_hosts` line."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def read(files: Iterable[Path], host: str, port: int, alias: str | None) -> KnownHosts:
    """What the files have on record; files that are not there or cannot be read have nothing."""
    name = alias or host_field(host, port)
    keys: list[tuple[str, Path]] = []
    portless: list[str] = []
    marked: dict[str, list[str]] = {"@cert-authority": [], "@revoked": []}
    for path in files:
        for marker, patterns, key in _entries(path):
            if _is_for(patterns, name):
                if marker:
                    marked.setdefault(marker, []).append(key)
                else:
                    keys.append((key, path))
            elif not alias and not marker and _is_for(patterns, host.lower()):
                portless.append(key)
    return KnownHosts(name, tuple(keys), tuple(portless), tuple(marked["@cert-authority"]), tuple(marked["@revoked"]))


def _entries(path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        try:
            base64.b64decode(words[2], validate=True)
        except ValueError:
            continue
        yield marker, words[0], f"{words[1]} {words[2]}"


def _is_for(patterns: str, name: str) -> bool:
    if not patterns.startswith("|1|"):
        return matches(name, patterns.split(","))
    try:
        salt, digest = (base64.b64decode(part) for part in patterns[3:].split("|"))
    except ValueError:
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), "sha1").digest(), digest)
