"""Where files are: on this machine, at a node, or in the container of a task; and their paths on the way there.

A path is text as Python has it: bytes that are no UTF-8 are in it as surrogates. JSON and URLs do not take those, so
paths travel percent-encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from agentless.errors import UsageError

Kind = Literal["file", "folder", "other", "nothing", "denied", "orphan"]
"""What is at a path: `other` is neither file nor folder, `denied` is behind a folder that may not be looked into,
`orphan` is nothing, in a folder that is not there either."""
Way = Literal["send", "receive", "rsync"]
"""How files go: in a tar stream from there, in one to there, or as two rsyncs agree on."""

PARTIAL = ".agentless-partial"
"""The hidden folder, beside a file, that keeps what had come when a copy by rsync broke off; the next one goes on."""


@dataclass(frozen=True, slots=True)
class Location:
    """A path, and the node or the task that it is at; None: this machine."""

    at: str | None
    path: str

    def __str__(self) -> str:
        return self.path if self.at is None else f"{self.at}:{self.path}"


def parse_location(text: str) -> Location:
    """`NODE:PATH`, `TASK:PATH` or a path here; what has a slash before its first colon is one here, like `./a:b`."""
    if not text or "\0" in text:
        raise UsageError("a path is empty, or has a NUL in it; write NODE:PATH, TASK:PATH, or a path here")
    at, colon, path = text.partition(":")
    return Location(at, path) if colon and at and "/" not in at else Location(None, text)


def there(path: str) -> str:
    """The path as a script may use it: from the home folder on, if it is not absolute; never taken for an option."""
    path = path.removeprefix("~/") if path != "~" else ""
    plain = path.rstrip("/")
    if path.startswith("/"):
        return plain or "/"
    return f"./{plain}" if plain and plain != "." else "."


def split(path: str) -> tuple[str, str]:
    """The folder of such a path, and its name in there: `./a/b` is `b` in `./a`, `/a` is `a` in `/`."""
    folder, slash, name = path.rpartition("/")
    return (folder or slash or "."), name or "."


def encoded(path: str) -> str:
    """A path as text of any bytes, for a request."""
    return quote(path.encode("utf-8", "surrogateescape"))


def decoded(text: str) -> str:
    """The path that was encoded; raises UsageError for one with a NUL, and for text that no path is encoded as."""
    try:
        path = unquote_to_bytes(text)
    except UnicodeEncodeError:
        raise UsageError("a path is no UTF-8 text; percent-encode its bytes") from None
    if b"\0" in path:
        raise UsageError("a NUL character cannot be part of a path")
    return path.decode("utf-8", "surrogateescape")
