"""Which keys are offered to a server, in which order, and the error if it accepts none."""

from __future__ import annotations

import base64
import contextlib
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from agentless.errors import AuthFailed
from agentless.model.text import shell_word
from agentless.remote.transports._ssh.certificates import Certificate, certifies, embedded, read_certificates
from agentless.remote.transports._ssh.route import Hop

K = TypeVar("K")
_HARDWARE = b"sk-"
"""How the types of keys begin that need a security key, which only an agent speaks to."""


class Encrypted(Exception):
    """A private key that needs its passphrase, for which we never ask."""


class Library(Protocol[K]):
    """What an SSH library does with keys."""

    def load(self, path: Path) -> K:
        """A private key, without a certificate; raises Encrypted, OSError or ValueError."""

    def blob(self, key: K) -> bytes:
        """Its public part; of a certificate in an agent, that."""

    def certify(self, key: K, certificate: Path) -> K:
        """The key with this certificate; raises ValueError."""


@dataclass(slots=True)
class Tried:
    """The keys that were offered to a server, and those that could not be."""

    offered: list[str] = field(default_factory=list)
    locked: dict[Path, str] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)

    def refused(self, hop: Hop) -> AuthFailed:
        """The error if the server accepted none of the keys."""
        parts = [f"tried {', '.join(self.offered)}" if self.offered else "no SSH key found"]
        parts += self.unusable
        fix = ""
        if self.locked:
            parts += [f"{path} is {what}, and no SSH agent has it" for path, what in self.locked.items()]
            fix = f"ssh-add {' '.join(shell_word(str(path)) for path in self.locked)}"
        elif any("certificate" in key for key in self.offered):
            parts += [f"renew the certificate, or check that the server trusts its authority for {hop.user}"]
        else:
            make = "" if self.offered else "ssh-keygen -t ed25519 && "
            port = "" if hop.port == 22 else f"-p {hop.port} "
            fix = f"{make}ssh-copy-id {port}{shell_word(f'{hop.user}@{hop.host}')}"
        problem = f"{hop.where} rejected the login: {'; '.join(parts)}"
        return AuthFailed(f"{problem}; run: {fix}" if fix else problem, problem, fix)


def offer(hop: Hop, held: Sequence[K], library: Library[K]) -> tuple[list[K], Tried]:
    """The keys, best first: those that the user named, those `held` by the agent, those found.

    A server hangs up after a few (MaxAuthTries, 6), so a named key comes before those of a full agent. Each comes after
    its certificates.
    """
    return _Offer(hop, held, library).all()


class _Offer(Generic[K]):
    def __init__(self, hop: Hop, held: Sequence[K], library: Library[K]) -> None:
        self._hop = hop
        self._library = library
        self._tried = Tried()
        self._public = {path: _public(path) for path in (*hop.identities, *hop.defaults)}
        self._named = list(read_certificates(hop.certificates))
        self._in_agent = {library.blob(key): key for key in held}
        if hop.identities_only:
            self._in_agent = {blob: key for blob, key in self._in_agent.items() if self._is_named(blob)}

    def all(self) -> tuple[list[K], Tried]:
        named, found = list(self._read(self._hop.identities)), list(self._read(self._hop.defaults))
        held = [key for blob in list(self._in_agent) for key in self._from_agent(blob, self._named)]
        if held:
            self._tried.offered.append(f"{len(held)} more keys from the SSH agent")
        return [*named, *held, *found], self._tried

    def _is_named(self, blob: bytes) -> bool:
        return any(blob == public or certifies(blob, public) for public in self._public.values())

    def _read(self, paths: Iterable[Path]) -> Iterator[K]:
        for path in paths:
            beside = path.with_name(f"{path.name}-cert.pub")
            certificates = [*read_certificates([beside]), *self._named]
            if self._public[path] in self._in_agent:
                public = self._public[path]
                signed = [blob for blob in self._in_agent if certifies(blob, public)]
                self._note(path, public, certificates, signed)
                for blob in (*signed, public):
                    yield from self._from_agent(blob, certificates)
                continue
            try:
                if self._public[path][4:7] == _HARDWARE and path.exists():
                    self._tried.locked[path] = "a security key"
                    continue
                key = self._library.load(path)
            except Encrypted:
                self._tried.locked[path] = "encrypted"
            except FileNotFoundError:
                if path in self._hop.identities:
                    self._tried.unusable.append(f"{path} does not exist")
            except (OSError, ValueError) as error:
                self._tried.unusable.append(f"{path} is not usable ({error})")
            else:
                self._note(path, self._library.blob(key), certificates)
                yield from self._certified(key, self._library.blob(key), certificates)

    def _from_agent(self, blob: bytes, certificates: Sequence[Certificate]) -> Iterator[K]:
        if blob in self._in_agent:
            yield from self._certified(self._in_agent.pop(blob), blob, certificates)

    def _certified(self, key: K, public: bytes, certificates: Sequence[Certificate]) -> Iterator[K]:
        """The key with each of its certificates, and without one."""
        for certificate in certificates:
            if certificate.is_of(public):
                with contextlib.suppress(ValueError):
                    yield self._library.certify(key, certificate.path)
        yield key

    def _note(
        self, path: Path, public: bytes, certificates: Sequence[Certificate], signed: Sequence[bytes] | None = None
    ) -> None:
        about = [each.about(public, time.time()) for each in certificates if each.is_of(public)]
        if signed and not about:
            about = ["certificate"]
        where = "" if signed is None else " (from the SSH agent)"
        self._tried.offered.append(f"{path}{where}{f' with {chr(32).join(about)}' if about else ''}")


def _public(path: Path) -> bytes:
    """The public part of a key, from the file beside it, or from itself: a named key may be in the agent only."""
    for candidate in (path.with_name(f"{path.name}.pub"), path):
        try:
            return base64.b64decode(candidate.read_text().split()[1], validate=True)
        except (OSError, ValueError, IndexError):
            continue
    try:
        return embedded(path.read_text())
    except (OSError, ValueError, IndexError, struct.error):
        return b""
