"""Locations of files: on this machine, on a node, or in the container of a task; and the encoding of paths.

In Python, bytes of a path that are not UTF-8 are surrogates. JSON and URLs do not accept those, so paths are sent
percent-encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from agentless.errors import UsageError

Kind = Literal["file", "folder", "other", "nothing", "denied", "orphan"]
"""What is at a path: `other` is neither file nor folder, `denied` is in a folder that cannot be read, `orphan` is
missing together with its folder."""
Way = Literal["send", "receive", "rsync"]
"""How files are copied: sent as a tar stream, received as one, or by rsync."""

PARTIAL = ".agentless-partial"
"""The hidden folder beside a file with the part that an interrupted rsync has copied. The next copy continues."""


@dataclass(frozen=True, slots=True)
class Location:
    """A path, and the node or task that has it (None: this machine)."""

    at: str | None
    path: str

    def __str__(self) -> str:
        return self.path if self.at is None else f"{self.at}:{self.path}"


def parse_location(text: str) -> Location:
    """Parse `NODE:PATH`, `TASK:PATH` or a local path. A slash before the first colon makes it local: `./a:b`."""
    if not text or "\0" in text:
        raise UsageError("a path is empty or contains NUL; use NODE:PATH, TASK:PATH or a local path")
    at, colon, path = text.partition(":")
    return Location(at, path) if colon and at and "/" not in at else Location(None, text)


def there(path: str) -> str:
    """The path for a script: relative to the home folder unless absolute, and never mistaken for an option."""
    path = path.removeprefix("~/") if path != "~" else ""
    plain = path.rstrip("/")
    if path.startswith("/"):
        return plain or "/"
    return f"./{plain}" if plain and plain != "." else "."


def split(path: str) -> tuple[str, str]:
    """The folder and the name of such a path: `./a/b` is `b` in `./a`, `/a` is `a` in `/`."""
    folder, slash, name = path.rpartition("/")
    return (folder or slash or "."), name or "."


def encoded(path: str) -> str:
    """A path, percent-encoded for a request."""
    return quote(path.encode("utf-8", "surrogateescape"))


def decoded(text: str) -> str:
    """Decode a path. Raises UsageError for a NUL and for invalid text."""
    try:
        path = unquote_to_bytes(text)
    except UnicodeEncodeError:
        raise UsageError("a path is not UTF-8; percent-encode its bytes") from None
    if b"\0" in path:
        raise UsageError("a path cannot contain NUL")
    return path.decode("utf-8", "surrogateescape")
