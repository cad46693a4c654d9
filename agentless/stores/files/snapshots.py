"""Uploads: each file content once, by its SHA-256, and the snapshots that refer to it.

`manifests` has a file per snapshot, `contents` one per file content, `trees` one per image with files on a node. All
names are hashes of the content, so nothing is overwritten, and a crash leaves at most unreferenced files, which are
removed an hour later.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import orjson

from agentless.errors import Refused, StateError
from agentless.model.files.snapshot import Entry, Snapshot, parse_snapshot, rows_of, snapshot_id
from agentless.stores import private

KEPT = 3600.0
"""Seconds for which unreferenced files are kept: the next submit may need most of them."""
TREE_KEPT = 8 * 24 * 3600.0
"""Seconds for which the tree of an image is kept: a little longer than the image itself."""

_PIECE = 1 << 20
_NAME = re.compile(r"[0-9a-f]{24,64}")


class SnapshotStore:
    """Snapshots in a private folder. All methods raise StateError."""

    def __init__(self, folder: Path) -> None:
        self._manifests, self._contents, self._trees = (folder / name for name in ("manifests", "contents", "trees"))
        with _explained(folder):
            for each in (folder, self._manifests, self._contents, self._trees):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, snapshot: Snapshot) -> tuple[str, list[str]]:
        """Store a snapshot. Returns its id and the contents that are missing."""
        name = snapshot_id(snapshot)
        with _explained(self._manifests):
            _write(self._manifests / name, orjson.dumps(rows_of(snapshot)))
        return name, self.missing(snapshot)

    def get(self, name: str) -> dict[str, Entry]:
        """The snapshot with this id. Raises Refused if it is not stored."""
        rows = self._read(self._manifests, name)
        if rows is None:
            raise Refused("its uploaded files have been deleted; submit again")
        return parse_snapshot(rows)

    def missing(self, snapshot: Snapshot) -> list[str]:
        """The contents of a snapshot that are missing."""
        wanted = {entry.content for entry in snapshot.values() if entry.kind == "file"}
        with _explained(self._contents):
            return sorted(content for content in wanted if not _touched(self.content(content)))

    def content(self, name: str) -> Path:
        """The file with the content of this SHA-256."""
        return self._contents / name[:2] / name[2:]

    def writer(self, name: str) -> ContentWriter:
        """A writer for the content with this SHA-256."""
        return ContentWriter(self.content(name), name)

    def take(self, folder: Path) -> str:
        """Store a folder as it is now, and return the id of its snapshot. May run in a thread.

        What is there already is not written again. Raises UsageError or Refused.
        """
        snapshot = {"": Entry("folder", 0o755)}
        files: dict[str, Path] = {}
        with _explained(folder):
            for path in sorted(folder.rglob("*")):
                name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode & 0o777
                if path.is_symlink():
                    snapshot[name] = Entry("link", 0o777, 0, os.readlink(path))
                elif path.is_dir():
                    snapshot[name] = Entry("folder", mode)
                elif path.is_file():
                    with path.open("rb") as file:
                        content = hashlib.file_digest(file, "sha256").hexdigest()
                    snapshot[name] = Entry("file", mode, path.stat().st_size, content)
                    files[content] = path
        try:
            name, missing = self.put(parse_snapshot(rows_of(snapshot)))
        except (UnicodeEncodeError, orjson.JSONEncodeError):
            raise Refused("a name in it is not UTF-8") from None
        for content in missing:
            self._copy(files[content], content)
        return name

    def _copy(self, path: Path, content: str) -> None:
        writer = self.writer(content)
        try:
            with _explained(path), path.open("rb") as file:
                while data := file.read(_PIECE):
                    writer.write(data)
            if not writer.finish():
                raise Refused(f"{path} changed while it was read")
        finally:
            writer.close()

    def remember(self, key: str, tree: Snapshot, about: dict[str, Any]) -> None:
        """Record the tree of an image, by its key."""
        with _explained(self._trees):
            _write(self._trees / key, orjson.dumps({**about, "rows": rows_of(tree)}))

    def recall(self, key: str) -> dict[str, Any] | None:
        """The record for this key, with its `rows` parsed as `tree`, or None."""
        found = self._read(self._trees, key)
        if found is None:
            return None
        letters = {"f": "file", "d": "folder", "l": "link"}
        rows = found.pop("rows")
        found["tree"] = {path: Entry(letters[kind], *rest) for path, kind, *rest in rows}  # type: ignore[arg-type]
        return dict(found)

    def shrink(self, needed: Collection[str]) -> None:
        """Remove files that none of these snapshots needs and that were not used for a while. May run in a thread."""
        now = time.time()
        with _explained(self._manifests):
            for path in self._manifests.iterdir():
                if path.name not in needed and _age(path, now) > KEPT:
                    path.unlink(missing_ok=True)
            for path in self._trees.iterdir():
                if _age(path, now) > TREE_KEPT:
                    path.unlink(missing_ok=True)
            wanted = set[str]()
            for path in self._manifests.iterdir():
                with contextlib.suppress(StateError, Refused, ValueError, FileNotFoundError):
                    rows = orjson.loads(path.read_bytes())
                    wanted |= {row[4] for row in rows if row[1] == "f"}
            for path in self._contents.glob("*/*"):
                if path.parent.name + path.name not in wanted and _age(path, now) > KEPT:
                    path.unlink(missing_ok=True)

    def _read(self, folder: Path, name: str) -> Any:
        if not _NAME.fullmatch(name):
            return None  # a name from a label must not lead out of the folder
        try:
            with _explained(folder), contextlib.suppress(FileNotFoundError):
                found = orjson.loads((folder / name).read_bytes())
                os.utime(folder / name)
                return found
        except orjson.JSONDecodeError:
            pass  # a torn file counts as missing
        return None


class ContentWriter:
    """A content that is being written. It is stored by `finish`, else nothing of it remains. Raises StateError."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name
        self._digest = hashlib.sha256()
        with _explained(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, self._unfinished = tempfile.mkstemp(dir=path.parent, prefix=".")
            self._file = os.fdopen(handle, "wb")

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._digest.update(data)
        with _explained(self._path):
            self._file.write(data)

    def finish(self) -> bool:
        """Store the content. Returns False, and stores nothing, if its SHA-256 is another one."""
        if self._digest.hexdigest() != self._name:
            self.close()
            return False
        with _explained(self._path):
            self._file.close()
            os.replace(self._unfinished, self._path)
        return True

    def close(self) -> None:
        """Remove it unless it was finished."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._unfinished)


def _write(path: Path, data: bytes) -> None:
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _explained(path: Path) -> AbstractContextManager[None]:
    return private.explained(f"cannot store uploads in {path}")


def _touched(path: Path) -> bool:
    """Whether the file exists. If so, its time is updated, so that it is kept for a while."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True
