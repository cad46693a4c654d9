"""A security key in software, behind an SSH agent: its signatures are those of a real one, see PROTOCOL.u2f of OpenSSH.

Debian has no such authenticator as a package.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import struct
import threading
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

APPLICATION = b"ssh:"
KIND = b"sk-ssh-ed25519@openssh.com"
_TOUCHED = b"\x01"
_LIST, _LISTED, _SIGN, _SIGNED, _FAILURE = 11, 12, 13, 14, 5


class SecurityKey:
    """The key and its agent at a socket; `touches` is how often it has been used."""

    def __init__(self, path: Path) -> None:
        self.touches = 0
        self.path = path
        self._key = Ed25519PrivateKey.generate()
        raw = self._key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.blob = _string(KIND) + _string(raw) + _string(APPLICATION)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def file(self) -> str:
        """The private key as ssh-keygen writes it: a handle for the hardware."""
        body = b"\0" * 8 + self.blob + b"\x01" + _string(b"handle") + _string(b"") + _string(b"")
        body += bytes(range(1, 1 + -len(body) % 8))
        parts = _string(b"none") * 2 + _string(b"") + struct.pack(">I", 1) + _string(self.blob) + _string(body)
        lines = base64.encodebytes(b"openssh-key-v1\0" + parts).decode()
        return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}-----END OPENSSH PRIVATE KEY-----\n"

    def close(self) -> None:
        """No agent any more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            while length := requests.read(4):
                request = requests.read(struct.unpack(">I", length)[0])
                answer = self._reply(request[0], request[1:])
                connection.sendall(_string(answer))

    def _reply(self, kind: int, body: bytes) -> bytes:
        if kind == _LIST:
            return bytes([_LISTED]) + struct.pack(">I", 1) + _string(self.blob) + _string(b"a key to touch")
        if kind == _SIGN and body.startswith(_string(self.blob)):
            rest = body[4 + len(self.blob) :]
            return bytes([_SIGNED]) + _string(self._sign(rest[4 : 4 + struct.unpack(">I", rest[:4])[0]]))
        return bytes([_FAILURE])

    def _sign(self, data: bytes) -> bytes:
        self.touches += 1
        state = _TOUCHED + struct.pack(">I", self.touches)
        signed = hashlib.sha256(APPLICATION).digest() + state + hashlib.sha256(data).digest()
        return _string(KIND) + _string(self._key.sign(signed)) + state


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
