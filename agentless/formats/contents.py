"""The body of an upload: file contents, each after a head.

A head is the SHA-256 of the content in 64 letters, and its length in 16 hexadecimal digits.
"""

from __future__ import annotations

from agentless.errors import UsageError

HEAD = 80


def content_head(digest: str, size: int) -> bytes:
    """The head of a content."""
    return f"{digest}{size:016x}".encode()


def parse_content_head(head: bytes) -> tuple[str, int]:
    """Parse the SHA-256 and the length of a content. Raises UsageError."""
    try:
        digest, size = head[:64].decode("ascii"), int(head[64:], 16)
        if size < 0 or not set(digest) <= set("0123456789abcdef"):
            raise ValueError(digest)
    except ValueError:
        raise UsageError("each content must begin with its SHA-256 and its length") from None
    return digest, size
