"""The archive of an output, unpacked into a folder of its own; `arrivals` moves the files to their places.

An archive from a container is untrusted: see `tree`. Paths that lead elsewhere, devices and the like are left out.
Links are made after all files, and only if they stay inside. Only the mode bits of ordinary files are kept.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path

from agentless.errors import RuntimeFailed
from agentless.formats.tar import BadArchive, Incomplete, Member, Parsing, Tar
from agentless.formats.tree import Parts, Tree
from agentless.model.files.upload_limits import MAX_BYTES, MOST_LEVELS
from agentless.model.text import cut, shown
from agentless.model.units import format_size
from agentless.rules.files.changed_outputs import is_junk

MOST = 1_000_000
"""The most files and folders of one output."""
MOST_ZEROS = 64 << 30
"""The most bytes of one output that become holes. Docker reads and sends each of them."""
ZEROS = 32 << 20
"""A run of so many zeros is better sent compressed."""
TOO_LARGE = (
    f"larger than {format_size(MAX_BYTES)}, the limit of all artifacts of a job; write them to a volume or a mount "
    "that both jobs have"
)
LISTED = 3
"""The most names of left-out files in a message."""
WORD = 200
"""The most characters of a name in a message."""
_ZEROS = bytes(1 << 20)
REASONS = {
    errno.ENAMETOOLONG: "name too long",
    errno.EINVAL: "invalid name here",
    errno.EILSEQ: "invalid name here",
    errno.ENOTDIR: "not in a folder",
    errno.ELOOP: "not in a folder",
    errno.EEXIST: "not in a folder",
    errno.EISDIR: "both a file and a folder",
    errno.EMLINK: "too many hard links",
    errno.EFBIG: "too large for the disk",
}
"""Error codes for which a file is left out, since a retry would fail, too. Other errors are of the disk."""


class Unusable(RuntimeFailed):
    """The output cannot be stored. A retry would fail, too."""


class ZerosAhead(Exception):
    """The stream has a long run of zeros and should be requested again, compressed."""


@dataclass
class Arrival:
    """What was unpacked: by path below the top the SHA-256, or `link:…`; and what was left out, in words.

    `left_out` has only the first names, `left_out_count` the number of all.
    """

    digests: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    left_out_count: int = 0
    members: int = 0
    zeros: int = 0
    bytes: int = 0

    def leave_out(self, name: str, why: str) -> None:
        """Record a name that is left out."""
        self.left_out_count += 1
        if len(self.left_out) < LISTED:
            self.left_out.append(f"{cut(shown(name), WORD)} ({why})")


class Unpacking:
    """Unpacks one archive. Its first name is put at `below` within `top`; `arrival` is the result.

    If `changed`, junk folders are left out. `before` are earlier archives of the same output; with these, its files may
    have `most` bytes. Unless `packed`, a long run of zeros raises ZerosAhead.
    """

    def __init__(
        self,
        top: Path,
        below: str,
        before: Iterable[Arrival] = (),
        most: int | None = None,
        *,
        changed: bool = False,
        packed: bool = False,
    ) -> None:
        self.arrival = Arrival()
        self._left = None if most is None else most - sum(each.bytes for each in before)
        self._top, self._below, self._changed, self._packed = top, below, changed, packed
        self._members = sum(each.members for each in before)
        self._zeros = sum(each.zeros for each in before)
        self._links: list[tuple[str, str]] = []

    def reading(self) -> Parsing[None]:
        """Unpack. May run in threads. Raises Unusable, RuntimeFailed for half an archive, ZerosAhead, and OSError."""
        tar = Tar()
        root = os.open(self._top.parent, os.O_RDONLY | os.O_DIRECTORY)
        self._tree = Tree(root)
        try:
            while member := (yield from tar.next()):
                self.arrival.members += 1
                if self._members + self.arrival.members > MOST:
                    raise Unusable(f"more than {MOST:,} files; request fewer, or a single archive")
                yield from self._one(tar, member)
            if not self.arrival.members:
                raise Incomplete("it is empty")
            for path, target in self._links:
                with self._leaving_out(path):
                    self._link(path, target)
        except Incomplete as error:
            raise RuntimeFailed(f"incomplete data: {error}") from None
        except BadArchive as error:
            raise Unusable(f"invalid archive: {error}") from None
        finally:
            self._tree.close()
            os.close(root)

    def _one(self, tar: Tar, member: Member) -> Parsing[None]:
        path = self._path(member.name)
        if path is None:
            self.arrival.leave_out(member.name, "path leads outside the output")
            return
        if self._changed and is_junk(path):
            return
        with self._leaving_out(path):
            parts = self._parts(path)
            if member.kind == "folder":
                os.fchmod(self._tree.folder(parts), (member.mode & 0o755) | 0o700)
            elif member.kind == "file":
                self.arrival.digests[path] = yield from self._write(tar, member, parts)
            elif member.kind == "hard link":
                self._same(path, member.link)
            elif member.kind == "link":
                self._links.append((path, member.link))
            else:
                self.arrival.leave_out(path or member.name, "not a file")

    def _path(self, name: str) -> str | None:
        """The path below the top, empty for the top itself; None if it leads elsewhere."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or "\0" in name:
            return None
        return posixpath.join(self._below, *(parts if name.startswith("./") else parts[1:]))

    def _parts(self, path: str) -> Parts:
        """The path below the folder that the top is in."""
        parts = (self._top.name, *path.split("/")) if path else (self._top.name,)
        if len(parts) > MOST_LEVELS:
            raise OSError(errno.ENAMETOOLONG, "too many folders")
        if ".." in parts:  # of the target; names of the archive were checked
            raise OSError(errno.EINVAL, "leads elsewhere")
        return parts

    @contextlib.contextmanager
    def _leaving_out(self, path: str) -> Iterator[None]:
        """Leave out a name that this file system cannot have."""
        try:
            yield
        except OSError as error:
            if error.errno not in REASONS:
                raise
            self.arrival.leave_out(path or "the output", REASONS[error.errno])
        except UnicodeEncodeError:  # the locale cannot encode this name
            self.arrival.leave_out(path or "the output", REASONS[errno.EILSEQ])

    def _write(self, tar: Tar, member: Member, parts: Parts) -> Parsing[str]:
        disk = os.fstatvfs(self._tree.folder(parts[:-1]))
        free = disk.f_bavail * disk.f_frsize
        if member.size > free + MOST_ZEROS:
            raise Unusable(
                f"not enough disk space: a file has {format_size(member.size)}, {format_size(free)} are free here; "
                "copy less, or an archive created with tar --sparse"
            )
        seen = _Seen(self)
        mode, mtime = (member.mode & 0o755) | 0o600, member.mtime if member.mtime >= 0 else None
        yield from self._tree.file(parts, tar, member, mode=mode, mtime=mtime, seen=seen)
        return seen.digest.hexdigest()

    def grown(self, count: int) -> None:
        """Count bytes of files: what comes may be compressed, and a few bytes may stand for many."""
        self.arrival.bytes += count
        if self._left is not None and self.arrival.bytes > self._left:
            raise Unusable(TOO_LARGE)

    def zeros(self, count: int, run: int) -> None:
        """Count zeros that became holes, `run` of them in a row."""
        self.arrival.zeros += count
        if self._zeros + self.arrival.zeros > MOST_ZEROS:
            raise Unusable(
                f"the files contain more than {format_size(MOST_ZEROS)} of zeros; copy less, or an archive "
                "created with tar --sparse"
            )
        if run >= ZEROS and not self._packed:
            raise ZerosAhead

    def _same(self, path: str, target: str) -> None:
        """Make a hard link to a file of the same archive."""
        first, parts = self._path(target), self._parts(path)
        if first is None or self.arrival.digests.get(first) is None:
            self.arrival.leave_out(path, f"link to {cut(shown(target), WORD)}, which was not copied")
            return
        if first == path:
            return
        self._tree.hard_link(parts, self._parts(first))
        self.arrival.digests[path] = self.arrival.digests[first]

    def _link(self, path: str, target: str) -> None:
        # A later `..` goes up from the target of a link before it, which may be anywhere.
        down = list(dropwhile(lambda part: part in ("..", "."), target.split("/")))
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        leads_out = ".." in down or target.startswith("/") or inside == ".." or inside.startswith("../")
        if not path or not target or "\0" in target or leads_out:
            self.arrival.leave_out(path or "the output", f"link to {cut(repr(target), WORD)}, outside the output")
            return
        parts = self._parts(path)
        with contextlib.suppress(FileNotFoundError):
            os.lstat(parts[-1], dir_fd=self._tree.folder(parts[:-1]))
            return
        self._tree.link(parts, target)
        self.arrival.digests[path] = f"link:{target}"


class _Seen:
    """Hashes the content of a file, and counts its zeros."""

    def __init__(self, unpacking: Unpacking) -> None:
        self.digest = hashlib.sha256()
        self._unpacking, self._run = unpacking, 0

    def __call__(self, hole: int, data: bytes) -> None:
        """Take the next content: a hole of this length, or these bytes."""
        self._unpacking.grown(hole + len(data))
        if data:
            self._run = 0
            self.digest.update(data)
            return
        self._run += hole
        self._unpacking.zeros(hole, self._run)
        while hole:
            piece = min(hole, len(_ZEROS))
            self.digest.update(_ZEROS if piece == len(_ZEROS) else _ZEROS[:piece])
            hole -= piece
