"""Uploaded files in a container: their places, and the difference to an earlier image."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentless.errors import UsageError
from agentless.model.files.file_spec import Upload
from agentless.model.files.posix_path import parents, within
from agentless.model.files.snapshot import Entry, Snapshot, rows_of

MOST_COPIES = 64
"""The most folders that are copied from one image to another. With more, all files are sent."""
_SYSTEM = frozenset({
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
    "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/tmp",  # noqa: S108 - paths in a container
})  # fmt: skip
"""Folders of the image. Files are put into them, but their mode and owner are kept."""


@dataclass(frozen=True, slots=True)
class FileOwner:
    """The owner of uploaded files in the container."""

    uid: int = 0
    gid: int = 0


def parse_file_owner(user: str) -> FileOwner | None:
    """The owner from `--user` or the image: by number, root if empty, None if it is a name."""
    name, _, group = user.partition(":")
    if not name:
        return FileOwner()
    if not name.isascii() or not name.isdigit() or len(name) > 9:
        return None
    return FileOwner(int(name), int(group) if group.isascii() and group.isdigit() and len(group) < 10 else 0)


FileTree = Mapping[str, Entry]
"""Entries by absolute path in the container."""


def tree_of(uploads: Iterable[tuple[Upload, Snapshot]], workdir: str) -> dict[str, Entry]:
    """All uploads in their places. If two uploads have the same path, the later one wins.

    A folder of the image keeps its mode and its owner.
    """
    tree: dict[str, Entry] = {}
    for upload, snapshot in uploads:
        top = within(workdir, upload.target)
        for path, entry in snapshot.items():
            place = posixpath.join(top, path) if path else top
            if entry.kind == "folder" and place in _SYSTEM:
                continue
            had = tree.get(place)
            if had and had.kind != entry.kind:
                raise UsageError(
                    f"{place} would be both a {had.kind} and a {entry.kind}: two uploads have the same destination"
                )
            tree[place] = entry
    return tree


def key_of(tree: FileTree, owner: FileOwner, image: str) -> str:
    """The key of an image with these files. Equal files give an equal key."""
    words = [image, owner.uid, owner.gid, rows_of(tree)]
    return hashlib.sha256(json.dumps(words, separators=(",", ":")).encode()).hexdigest()[:24]


def line_of(controller: str, owner: str, uploads: Iterable[Upload]) -> str:
    """The key that all versions of the same uploads share: controller, owner, sources and targets."""
    words = [controller, owner, *(f"{each.source}\0{each.target}" for each in uploads)]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def added(before: FileTree, now: FileTree) -> dict[str, Entry] | None:
    """The entries that turn `before` into `now`. None if an entry has to be removed, which a layer cannot do."""
    for path, entry in before.items():
        after = now.get(path)
        if after is None or after.kind != entry.kind:
            return None
    return {path: entry for path, entry in now.items() if before.get(path) != entry}


def reused(before: FileTree, now: FileTree) -> tuple[tuple[str, ...], dict[str, Entry]]:
    """The folders that can be copied unchanged, and the entries that have to be added.

    A folder can be copied if nothing in it is removed or changed. Only the topmost ones are returned.
    """
    spoilt = {parent for path, entry in before.items() if now.get(path) != entry for parent in (path, *parents(path))}
    clean = {path for path, entry in before.items() if entry.kind == "folder" and path not in spoilt}
    full = {parent for path, entry in before.items() if entry.kind == "file" for parent in parents(path)}
    copies = tuple(sorted(path for path in clean & full if clean.isdisjoint(parents(path))))
    if len(copies) > MOST_COPIES:
        return (), dict(now)
    covered = set(copies)
    rest = {
        path: entry for path, entry in now.items() if path not in before or covered.isdisjoint((path, *parents(path)))
    }
    return copies, rest


def bytes_of(tree: FileTree) -> int:
    """The size of all files."""
    return sum(entry.size for entry in tree.values())


def files_of(tree: FileTree) -> int:
    """The number of files and links."""
    return sum(entry.kind != "folder" for entry in tree.values())
