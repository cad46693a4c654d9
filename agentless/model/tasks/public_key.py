"""Public keys for SSH, as OpenSSH writes them: `ssh-ed25519 AAAA… comment`. Parsed strictly: labels contain them."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentless.errors import UsageError
from agentless.model.text import printable

MAX_KEYS = 32
"""The most keys of a VPS."""
MAX_KEY_BYTES = 16 * 1024
"""The limit of all of them, in bytes."""
MAX_COMMENT = 100
LEAST_RSA = 2048
"""Bits of an RSA key. Shorter ones can be broken."""

_PARTS: Mapping[str, int] = {
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
"""The kinds of keys, and how many values each has."""
_GOOD = "use an ed25519, ECDSA or RSA key, such as ~/.ssh/id_ed25519.pub"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key. `blob` is what a client sends for it."""

    kind: str
    blob: bytes
    bits: int
    comment: str = ""

    @property
    def fingerprint(self) -> str:
        """Its fingerprint."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    def __str__(self) -> str:
        """As `ssh-keygen -l` prints it."""
        name = self.kind.split("@", 1)[0].removeprefix("sk-").removeprefix("ssh-").split("-")[0].upper()
        return f"{self.bits} {self.fingerprint} {self.comment or 'no comment'} ({name}{'-SK' * ('@' in self.kind)})"


def parse_public_key(text: str) -> PublicKey:
    """One line of a .pub file; raises UsageError, without the text of what may be a secret."""
    words = text.split(None, 2)
    kind, encoded = (*words, "", "")[:2]
    if "PRIVATE KEY-----" in text:
        raise UsageError("this is a private key; give the public one, which is in the file that ends in .pub")
    if kind == "ssh-dss":
        raise UsageError(f"DSA keys are too weak; {_GOOD}")
    if "-cert-" in kind:
        raise UsageError(f"certificates are not supported; {_GOOD}")
    if kind not in _PARTS:
        if any(word in text for word in _PARTS):
            raise UsageError("options in front of a key, such as command=, are not supported; give the key alone")
        raise UsageError(f"this is not a public key; {_GOOD}")
    try:
        blob = base64.b64decode(encoded, validate=True)
        bits = _bits(kind, blob)
    except (binascii.Error, ValueError, IndexError):
        raise UsageError(f"this {kind} key is damaged; copy the whole line of the .pub file") from None
    if kind == "ssh-rsa" and bits < LEAST_RSA:
        raise UsageError(f"an RSA key of {bits} bits is too weak; {_GOOD}")
    return PublicKey(kind, blob, bits, printable(" ".join(words[2:])).strip()[:MAX_COMMENT])


def parse_public_keys(lines: Iterable[str]) -> tuple[PublicKey, ...]:
    """The keys of a spec; raises UsageError also for too many of them."""
    texts = tuple(lines)
    if len(texts) > MAX_KEYS:
        raise UsageError(f"{len(texts):,} public keys; the limit is {MAX_KEYS}")
    if (total := sum(len(text.encode("utf-8", "replace")) for text in texts)) > MAX_KEY_BYTES:
        raise UsageError(f"the public keys have {total:,} bytes; the limit is {MAX_KEY_BYTES:,}")
    return tuple(map(parse_public_key, texts))


def _bits(kind: str, blob: bytes) -> int:
    """The size of a key; raises ValueError for bytes that are no key of this kind."""
    first, *parts = _strings(blob)
    if first != kind.encode() or len(parts) != _PARTS[kind] or not all(parts):
        raise ValueError
    if kind == "ssh-rsa":
        return int.from_bytes(parts[1], "big").bit_length()
    return int(kind.partition("nistp")[2][:3] or 256)


def _strings(blob: bytes) -> list[bytes]:
    found = []
    while blob:
        size = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + size:
            raise ValueError
        found.append(blob[4 : 4 + size])
        blob = blob[4 + size :]
    return found
