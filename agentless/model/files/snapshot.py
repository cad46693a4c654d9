"""Snapshots: what a file or folder had in it when it was uploaded.

A `Snapshot` is by path below the folder, the folder itself being `""`; of a single file it has that path only.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agentless.errors import UsageError
from agentless.model.files.upload_limits import INSTEAD, MAX_BYTES, MAX_FILES

Kind = Literal["file", "folder", "link"]
_LETTERS: dict[str, Kind] = {"f": "file", "d": "folder", "l": "link"}
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a snapshot. `mode` are the nine bits, `content` is a file's SHA-256 or where a link leads."""

    kind: Kind
    mode: int = 0
    size: int = 0
    content: str = ""


Snapshot = Mapping[str, Entry]


def rows_of(snapshot: Snapshot) -> list[list[object]]:
    """The snapshot as JSON has it, sorted: path, kind (`f`, `d`, `l`), mode, size, content."""
    letters = {kind: letter for letter, kind in _LETTERS.items()}
    return [[path, letters[e.kind], e.mode, e.size, e.content] for path, e in sorted(snapshot.items())]


def snapshot_id(snapshot: Snapshot) -> str:
    """What names a snapshot: the SHA-256 of all that is in it."""
    text = json.dumps(rows_of(snapshot), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_snapshot(rows: Sequence[Sequence[object]]) -> dict[str, Entry]:
    """The snapshot in these rows; raises UsageError for one that could lead out of its folder, or is too large."""
    if len(rows) > MAX_FILES:
        raise UsageError(f"more than {MAX_FILES:,} files are too many to upload; {INSTEAD}")
    found: dict[str, Entry] = {}
    for row in rows:
        match row:
            case [str(path), str(letter), int(mode), int(size), str(content)] if _is_plain(path) and letter in _LETTERS:
                entry = Entry(_LETTERS[letter], mode & 0o777, size, content)
            case _:
                raise UsageError(f"{str(row)[:80]} is no line of a snapshot")
        if path in found or size < 0 or (entry.kind == "file" and not _SHA256.fullmatch(content)):
            raise UsageError(f"{str(row)[:80]} is no line of a snapshot")
        found[path] = entry
    for path in found:
        above = found.get(posixpath.dirname(path))
        if path and (above is None or above.kind != "folder"):
            raise UsageError(f"{path[:80]!r} is in no folder of the snapshot")
    if "" not in found:
        raise UsageError("a snapshot begins with the folder or file that it is of")
    if sum(entry.size for entry in found.values()) > MAX_BYTES:
        raise UsageError(f"more than 1 GiB is too much to upload; {INSTEAD}")
    return found


def _is_plain(path: str) -> bool:
    """Whether it stays below its folder, and is written in one way only."""
    if not path:
        return True
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
