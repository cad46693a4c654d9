"""Which keys are offered to a server, in which order, and the error if it accepts none."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from agentless.errors import AuthFailed
from agentless.remote.transports._ssh.route import Hop

K = TypeVar("K")


class Encrypted(Exception):
    """A private key that needs its passphrase, for which we never ask."""


@dataclass(slots=True)
class Tried:
    """The keys that were offered to a server, and those that could not be."""

    offered: list[str] = field(default_factory=list)
    encrypted: list[Path] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)

    def refused(self, hop: Hop) -> AuthFailed:
        """The error if the server accepted none of the keys."""
        parts = [f"tried {', '.join(self.offered)}" if self.offered else "no SSH key found"]
        parts += self.unusable
        if self.encrypted:
            keys = " ".join(str(path) for path in self.encrypted)
            parts += [f"{keys} is encrypted, and no SSH agent has it"]
            fix = f"ssh-add {keys}"
        else:
            make = "" if self.offered else "ssh-keygen -t ed25519 && "
            port = "" if hop.port == 22 else f"-p {hop.port} "
            fix = f"{make}ssh-copy-id {port}{hop.user}@{hop.host}"
        problem = f"{hop.where} rejected the login: {'; '.join(parts)}"
        return AuthFailed(f"{problem}; run: {fix}", problem, fix)


def offer(hop: Hop, held: Sequence[K], load: Callable[[Path], K], blob: Callable[[K], bytes]) -> tuple[list[K], Tried]:
    """The keys, best first: those that the user named, those `held` by the agent, those found.

    A server hangs up after a few (MaxAuthTries, 6), so a named key comes before those of a full agent. `load` reads a
    private key and raises Encrypted, OSError or ValueError; `blob` is the public part of one that the agent holds.
    """
    tried = Tried()
    public = {path: _public(path) for path in (*hop.identities, *hop.defaults)}
    in_agent = {blob(key): key for key in held if not hop.identities_only or blob(key) in public.values()}

    def read(paths: Iterable[Path]) -> Iterator[K]:
        for path in paths:
            by_agent = in_agent.pop(public[path], None)
            if by_agent is not None:
                tried.offered.append(f"{path} (from the SSH agent)")
                yield by_agent
                continue
            try:
                key = load(path)
            except Encrypted:
                tried.encrypted.append(path)
            except FileNotFoundError:
                if path in hop.identities:
                    tried.unusable.append(f"{path} does not exist")
            except (OSError, ValueError) as error:
                tried.unusable.append(f"{path} is not usable ({error})")
            else:
                tried.offered.append(str(path))
                yield key

    named, found = list(read(hop.identities)), list(read(hop.defaults))
    if in_agent:
        tried.offered.append(f"{len(in_agent)} more keys from the SSH agent")
    return [*named, *in_agent.values(), *found], tried


def _public(path: Path) -> bytes:
    """The public part of a key, from the file beside it, or from itself: a named key may be in the agent only."""
    for candidate in (path.with_name(f"{path.name}.pub"), path):
        try:
            return base64.b64decode(candidate.read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return b""
