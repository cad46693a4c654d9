"""What is uploaded and brought back: how it is written, where it goes, what of it is new."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agentless.errors import UsageError
from agentless.model.files.task_files import Entry, Output, Snapshot, Upload, rows_of, within

WORKDIR = "/workspace"
"""Where a task with files works if neither it nor its image says where."""
MOST_PIECES = 200
"""Changed paths that are brought one by one; where there are more, their folder is brought as a whole."""

MOST_COPIES = 64
"""Folders that are copied one by one from one image into another; where there are more, all is sent."""

_SYSTEM = frozenset({
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
    "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/tmp",  # noqa: S108 - paths in a container
})  # fmt: skip
"""Folders that are the image's own: files go into them, and they stay as they are."""
_KERNEL = ("/dev", "/proc", "/sys")
_JUNK = frozenset({"__pycache__"})
"""Folders that are never brought back with what has changed."""


def parse_upload(text: str) -> Upload:
    """`PATH[:DEST]` as it was typed, not located yet; see `located`."""
    if (paths := _two_paths(text)) is None:
        raise UsageError(f"--upload {text!r}: write PATH, or PATH:DEST with where it goes in the container")
    return Upload(*paths)


def parse_output(text: str) -> Output:
    """`PATH[:LOCAL]` as it was typed, not located yet."""
    if (paths := _two_paths(text)) is None:
        raise UsageError(f"--output {text!r}: write PATH, or PATH:LOCAL with where it goes here")
    if posixpath.normpath(paths[0]) in ("/", "//"):
        raise UsageError(f"--output {text!r}: that is the whole container; name what the task makes")
    return Output(*paths)


def _two_paths(text: str) -> tuple[str, str] | None:
    """`FROM[:TO]` as both paths, the second one empty where it is left out; None for anything else."""
    first, colon, second = text.rpartition(":")
    if not colon:
        first, second = second, ""
    return (first, second) if first and bool(colon) == bool(second) else None


def located(upload: Upload, folder: str) -> Upload:
    """With absolute paths, as seen from the user's current folder, and with where it goes.

    The content of the current folder goes into the working folder, anything else there by its own name.
    """
    source, target = within(folder, upload.source), upload.target
    if not target:
        target = "." if source == within(folder, ".") else posixpath.basename(source)
    elif target.endswith("/"):
        target = posixpath.join(target, posixpath.basename(source))
    if not target:
        raise UsageError(f"--upload {upload.source}: write where it goes in the container, as PATH:DEST")
    goes = within(WORKDIR, target)
    if any(goes == top or goes.startswith(f"{top}/") for top in _KERNEL):
        raise UsageError(f"--upload {upload.source}: {goes} is no folder for files in a container")
    return replace(upload, source=source, target=posixpath.normpath(target))


def brought_to(output: Output, folder: str, *, several: bool) -> Output:
    """With where it goes here. What several tasks bring goes into a folder for each task, beside each other."""
    path = posixpath.normpath(output.path)
    local = output.local or (posixpath.basename(path) if path != "." else ".")
    into = "/" if local.endswith("/") else ""
    local = within(folder, local)
    if several and "{id}" not in local:
        above, name = posixpath.split(local)
        local = posixpath.join(local, "{id}") if local == within(folder, ".") else posixpath.join(above, "{id}", name)
    return replace(output, path=path, local=local + into)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose the files in the container are."""

    uid: int = 0
    gid: int = 0


def owner_of(user: str) -> Owner | None:
    """The owner that `--user`, or the image, names by number; root where it names nobody; None where it is a name."""
    name, _, group = user.partition(":")
    if not name:
        return Owner()
    if not name.isascii() or not name.isdigit() or len(name) > 9:
        return None
    return Owner(int(name), int(group) if group.isascii() and group.isdigit() and len(group) < 10 else 0)


Tree = Mapping[str, Entry]
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


def key_of(tree: Tree, owner: Owner, image: str) -> str:
    """What names files in an image: the same for the same."""
    words = [image, owner.uid, owner.gid, rows_of(tree)]
    return hashlib.sha256(json.dumps(words, separators=(",", ":")).encode()).hexdigest()[:24]


def line_of(controller: str, owner: str, uploads: Iterable[Upload]) -> str:
    """What all versions of the same files have in common: whose they are, where they are from, where they go."""
    words = [controller, owner, *(f"{each.source}\0{each.target}" for each in uploads)]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def added(before: Tree, now: Tree) -> dict[str, Entry] | None:
    """What to put over `before` to get `now`; None when something has to go, for nothing can be taken out."""
    for path, entry in before.items():
        after = now.get(path)
        if after is None or after.kind != entry.kind:
            return None
    return {path: entry for path, entry in now.items() if before.get(path) != entry}


def reused(before: Tree, now: Tree) -> tuple[tuple[str, ...], dict[str, Entry]]:
    """The folders that can be copied as they were, and what has to come to that.

    That are those in which nothing is gone or changed, the topmost of them; what is new in one comes besides.
    """
    spoilt = {parent for path, entry in before.items() if now.get(path) != entry for parent in (path, *_parents(path))}
    clean = {path for path, entry in before.items() if entry.kind == "folder" and path not in spoilt}
    full = {parent for path, entry in before.items() if entry.kind == "file" for parent in _parents(path)}
    copies = tuple(sorted(path for path in clean & full if clean.isdisjoint(_parents(path))))
    if len(copies) > MOST_COPIES:
        return (), dict(now)
    covered = set(copies)
    rest = {
        path: entry for path, entry in now.items() if path not in before or covered.isdisjoint((path, *_parents(path)))
    }
    return copies, rest


def bytes_of(tree: Tree) -> int:
    """Bytes of its files."""
    return sum(entry.size for entry in tree.values())


def files_of(tree: Tree) -> int:
    """How many files and links it has."""
    return sum(entry.kind != "folder" for entry in tree.values())


def changed_paths(diff: str, folder: str) -> tuple[str, ...]:
    """What a task has made or changed below a folder, by what `docker diff` says, as paths from the folder on.

    A new folder stands for all that is in it; `.` is the folder itself. What was removed is not told. A line break in a
    name makes lines that are none: then all of the folder is meant, and no line leads elsewhere by `..`.
    """
    lines = [line.partition(" ") for line in diff.split("\n") if line]
    if any(how not in ("A", "C", "D") or posixpath.normpath(path) != path for how, _, path in lines):
        return (".",)
    touched = {path: how for how, _, path in lines if how in ("A", "C") and _is_below(path, folder)}
    above = {parent for path in touched for parent in _parents(path)}
    removed = {parent for how, _, path in lines if how == "D" for parent in _parents(path)}
    tops = list[str]()
    for path, how in sorted(touched.items()):
        if any(touched.get(parent) == "A" for parent in _parents(path)):
            continue
        # Of a changed folder what is in it is told, too; one in which something was removed is changed by that alone.
        if how == "A" or (path not in above and path not in removed and path != folder):
            tops.append(posixpath.relpath(path, folder))
    tops = [top for top in tops if not is_junk(top)]
    return (".",) if len(tops) > MOST_PIECES else tuple(tops)


def is_junk(path: str) -> bool:
    """Whether it is nothing that somebody would want back."""
    return not _JUNK.isdisjoint(path.split("/"))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _parents(path: str) -> Sequence[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts))]
