"""Snapshots: the content of a file or folder when it was uploaded.

A `Snapshot` has an entry for each path below the folder, and `""` for the folder itself. For a single file, `""` is the
only path.
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
from agentless.model.units import format_size

Kind = Literal["file", "folder", "link"]
_LETTERS: dict[str, Kind] = {"f": "file", "d": "folder", "l": "link"}
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A path of a snapshot. `mode` has nine bits, `content` is the SHA-256 of a file or the target of a link."""

    kind: Kind
    mode: int = 0
    size: int = 0
    content: str = ""


Snapshot = Mapping[str, Entry]


def rows_of(snapshot: Snapshot) -> list[list[object]]:
    """The snapshot as sorted rows for JSON: path, kind (`f`, `d`, `l`), mode, size, content."""
    letters = {kind: letter for letter, kind in _LETTERS.items()}
    return [[path, letters[e.kind], e.mode, e.size, e.content] for path, e in sorted(snapshot.items())]


def snapshot_id(snapshot: Snapshot) -> str:
    """The id of a snapshot: the SHA-256 of its rows."""
    text = json.dumps(rows_of(snapshot), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_snapshot(rows: Sequence[Sequence[object]]) -> dict[str, Entry]:
    """Parse rows. Raises UsageError if a path leads out of the folder, or the snapshot is too large."""
    if len(rows) > MAX_FILES:
        raise UsageError(f"more than {MAX_FILES:,} files to upload; {INSTEAD}")
    found: dict[str, Entry] = {}
    for row in rows:
        match row:
            case [str(path), str(letter), int(mode), int(size), str(content)] if _is_plain(path) and letter in _LETTERS:
                entry = Entry(_LETTERS[letter], mode & 0o777, size, content)
            case _:
                raise UsageError(f"{str(row)[:80]} is not a line of a snapshot")
        if path in found or size < 0 or (entry.kind == "file" and not _SHA256.fullmatch(content)):
            raise UsageError(f"{str(row)[:80]} is not a line of a snapshot")
        found[path] = entry
    for path in found:
        above = found.get(posixpath.dirname(path))
        if path and (above is None or above.kind != "folder"):
            raise UsageError(f"{path[:80]!r} is not in any folder of the snapshot")
    if "" not in found:
        raise UsageError("a snapshot must begin with its own folder or file")
    if sum(entry.size for entry in found.values()) > MAX_BYTES:
        raise UsageError(f"more than {format_size(MAX_BYTES)} to upload; {INSTEAD}")
    return found


def _is_plain(path: str) -> bool:
    """Whether a path stays below its folder and is normalized."""
    if not path:
        return True
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
