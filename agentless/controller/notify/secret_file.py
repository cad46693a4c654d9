"""Addresses and tokens, each in a file of its own, read whenever they are needed."""

from __future__ import annotations

import os
import stat

from agentless.errors import NotSent

LONGEST = 8192
"""Bytes of an address or a token."""


def read_secret(path: str) -> str:
    """The only line of a file. Raises NotSent, without anything of its content."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not be waited for
        with os.fdopen(opened, "rb") as file:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode):
                raise NotSent(f"{path} is not a regular file")
            if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
                raise NotSent(f"other users can read {path}; run: chmod 600 {path}")
            content = file.read(LONGEST + 1)
    except OSError as error:
        raise NotSent(f"cannot read {path}: {error.strerror}") from None
    text = content.decode("ascii", "replace").strip()
    if not text or len(content) > LONGEST or not text.isascii() or not text.isprintable() or " " in text:
        raise NotSent(f"{path} must contain one line: the address or the token")
    return text
