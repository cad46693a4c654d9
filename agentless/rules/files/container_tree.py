"""Uploaded files as they lie in a container: where they go, and what of them is new in an image."""

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
"""Folders that are copied one by one from one image into another; where there are more, all is sent."""
_SYSTEM = frozenset({
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
    "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/tmp",  # noqa: S108 - paths in a container
})  # fmt: skip
"""Folders that are the image's own: files go into them, and they stay as they are."""


@dataclass(frozen=True, slots=True)
class FileOwner:
    """Whose the files in the container are."""

    uid: int = 0
    gid: int = 0


def parse_file_owner(user: str) -> FileOwner | None:
    """The owner that `--user`, or the image, names by number; root where it names nobody; None where it is a name."""
    name, _, group = user.partition(":")
    if not name:
        return FileOwner()
    if not name.isascii() or not name.isdigit() or len(name) > 9:
        return None
    return FileOwner(int(name), int(group) if group.isascii() and group.isdigit() and len(group) < 10 else 0)


FileTree = Mapping[str, Entry]
"""What is put into a container, by absolute path."""


def tree_of(uploads: Iterable[tuple[Upload, Snapshot]], workdir: str) -> dict[str, Entry]:
    """All of it, where it goes. Of two things for one path the one that was named last counts.

    A folder of the image's own keeps its mode and its owner.
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
                raise UsageError(f"{place} would be a {had.kind} and a {entry.kind}: two uploads go to the same place")
            tree[place] = entry
    return tree


def key_of(tree: FileTree, owner: FileOwner, image: str) -> str:
    """What names files in an image: the same for the same."""
    words = [image, owner.uid, owner.gid, rows_of(tree)]
    return hashlib.sha256(json.dumps(words, separators=(",", ":")).encode()).hexdigest()[:24]


def line_of(controller: str, owner: str, uploads: Iterable[Upload]) -> str:
    """What all versions of the same files have in common: whose they are, where they are from, where they go."""
    words = [controller, owner, *(f"{each.source}\0{each.target}" for each in uploads)]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def added(before: FileTree, now: FileTree) -> dict[str, Entry] | None:
    """What to put over `before` to get `now`; None when something has to go, for nothing can be taken out."""
    for path, entry in before.items():
        after = now.get(path)
        if after is None or after.kind != entry.kind:
            return None
    return {path: entry for path, entry in now.items() if before.get(path) != entry}


def reused(before: FileTree, now: FileTree) -> tuple[tuple[str, ...], dict[str, Entry]]:
    """The folders that can be copied as they were, and what has to come to that.

    That are those in which nothing is gone or changed, the topmost of them; what is new in one comes besides.
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
    """Bytes of its files."""
    return sum(entry.size for entry in tree.values())


def files_of(tree: FileTree) -> int:
    """How many files and links it has."""
    return sum(entry.kind != "folder" for entry in tree.values())
