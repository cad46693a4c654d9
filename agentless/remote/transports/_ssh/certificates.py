"""OpenSSH certificates of users: which key one is for, and until when; see its PROTOCOL.certkeys and PROTOCOL.key.

A certificate is `type nonce FIELDS serial kind id principals after before …`, a public key is `type FIELDS`.
"""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PRIVATE = b"openssh-key-v1\0"
_FOR_EVER = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate in a file. `blob` are its bytes."""

    path: Path
    blob: bytes

    def is_of(self, public: bytes) -> bool:
        """Whether it is for this public key."""
        return certifies(self.blob, public)

    def about(self, public: bytes, now: float) -> str:
        """What a person has to know if it is not accepted: its file, its end, whom it is for."""
        try:
            principals, before = _terms(self.blob, public)
        except (ValueError, struct.error):
            return f"certificate {self.path}"
        if before != _FOR_EVER and before <= now:
            return f"certificate {self.path}, which expired on {time.strftime('%Y-%m-%d', time.localtime(before))}"
        return f"certificate {self.path} for {', '.join(principals) or 'every user'}"


def read_certificates(paths: Iterable[Path]) -> Iterator[Certificate]:
    """Those that can be read."""
    for path in paths:
        try:
            kind, blob, *_ = path.read_text().split()
            if kind.endswith("-cert-v01@openssh.com"):
                yield Certificate(path, base64.b64decode(blob))
        except (OSError, ValueError):
            continue


def certifies(blob: bytes, public: bytes) -> bool:
    """Whether this is a certificate for the public key."""
    try:
        return bool(public) and blob.startswith(_fields(public), _start(blob))
    except struct.error:
        return False


def embedded(private: str) -> bytes:
    """The public key in a private one of OpenSSH's, which is not encrypted there; raises ValueError or struct.error."""
    data = base64.b64decode("".join(private.split("-----")[2].split()))
    if not data.startswith(_PRIVATE):
        raise ValueError("another format")
    at = len(_PRIVATE)
    for _ in ("cipher", "kdf", "options"):
        _, at = _string(data, at)
    return _string(data, at + 4)[0]


def _terms(blob: bytes, public: bytes) -> tuple[list[str], int]:
    """For whom, and until when (Unix seconds)."""
    at = _start(blob) + len(_fields(public)) + 8 + 4
    _, at = _string(blob, at)
    listed, at = _string(blob, at)
    principals, place = [], 0
    while place < len(listed):
        name, place = _string(listed, place)
        principals.append(name.decode("utf-8", "replace"))
    return principals, struct.unpack_from(">QQ", blob, at)[1]


def _fields(public: bytes) -> bytes:
    return public[_string(public, 0)[1] :]


def _start(blob: bytes) -> int:
    return _string(blob, _string(blob, 0)[1])[1]


def _string(blob: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", blob, at)
    return blob[at + 4 : at + 4 + length], at + 4 + length
