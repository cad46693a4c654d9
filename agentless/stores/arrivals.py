"""Files that arrive from a container, whose archive is anybody's words: unpacked apart, then put in their places.

Nothing leads out of the folder that they are for: names are taken apart, links are made after all files and only if
they stay inside, devices and the like are left out, and of modes there are only the bits of ordinary files.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from typing import IO

from agentless.errors import RuntimeFailed
from agentless.model.units import format_size
from agentless.rules.files import is_junk
from agentless.stores.outputs import OutputStore

MOST = 1_000_000
"""Files and folders of one output."""
TOLD = 3
_PIECE = 1 << 20


@dataclass
class Arrival:
    """What was unpacked: by path from the top on the SHA-256, `link:…` for a link; and what was left out, in words."""

    digests: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Placed:
    """What was put in its place, in words and numbers."""

    words: str
    files: int
    bytes: int


def unpack(archive: Path, top: Path, below: str, *, changed: bool = False) -> Arrival:
    """Unpack an archive, the first name of which stands for `below` within `top`. May run in a thread.

    With `changed` what nobody wants back is left out. Raises RuntimeFailed for what is no archive, and OSError.
    """
    arrival, links = Arrival(), list[tuple[str, str]]()
    try:
        with tarfile.open(archive, "r:") as tar:
            for count, member in enumerate(tar):
                if count >= MOST:
                    raise RuntimeFailed(f"there are more than {MOST:,} files in it; bring less, or one archive")
                if (path := _path(member.name, below)) is None:
                    arrival.left_out.append(f"{member.name!r}, which leads elsewhere")
                elif changed and is_junk(path):
                    continue
                else:
                    _one(tar, member, path, _path(member.linkname, below), top, arrival, links)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RuntimeFailed(f"what came of it is no archive: {error}") from None
    for path, target in links:
        _link(path, target, top, arrival)
    return arrival


def _path(name: str, below: str) -> str | None:
    """Where it goes from the top on, empty for the top itself; None when it leads elsewhere."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        return None
    return posixpath.join(below, *(parts if name.startswith("./") else parts[1:]))


def _one(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    path: str,
    other: str | None,
    top: Path,
    arrival: Arrival,
    links: list[tuple[str, str]],
) -> None:
    """Unpack one member; `other` is where what it is a link to would go."""
    place = top / path if path else top
    if _blocked(top, path) or (member.isdir() and place.is_symlink()):
        arrival.left_out.append(f"{path}, which is not in a folder")
    elif member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        place.chmod((member.mode & 0o755) | 0o700)
    elif member.isreg():
        place.parent.mkdir(parents=True, exist_ok=True)
        source = tar.extractfile(member)
        if source is None:
            raise tarfile.TarError(member.name)
        arrival.digests[path] = _write(source, place, member)
    elif member.islnk():
        first = top / other if other is not None else None
        if first is None or not first.is_file() or first.is_symlink() or other not in arrival.digests:
            arrival.left_out.append(f"{path}, a link to {member.linkname!r}, which did not come")
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        os.link(first, place)
        arrival.digests[path] = arrival.digests[other]
    elif member.issym():
        links.append((path, member.linkname))
    else:
        arrival.left_out.append(f"{path or member.name}, which is no file")


def _write(source: IO[bytes], place: Path, member: tarfile.TarInfo) -> str:
    digest = hashlib.sha256()
    if place.is_dir():
        raise tarfile.TarError(f"{member.name} is a file and a folder")
    place.unlink(missing_ok=True)
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        while data := source.read(_PIECE):
            digest.update(data)
            file.write(data)
        os.fchmod(file.fileno(), (member.mode & 0o755) | 0o600)
    if 0 <= member.mtime < 1 << 40:
        os.utime(place, (member.mtime, member.mtime))
    return digest.hexdigest()


def _link(path: str, target: str, top: Path, arrival: Arrival) -> None:
    # A `..` further on goes up from wherever the links before it lead: that could be anywhere.
    down = list(dropwhile(lambda part: part in ("..", "."), target.split("/")))
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if (
        not path
        or _blocked(top, path)
        or ".." in down
        or target.startswith("/")
        or inside == ".."
        or inside.startswith("../")
    ):
        arrival.left_out.append(f"{path or 'it'}, a link to {target!r}, which leads elsewhere")
        return
    place = top / path
    if os.path.lexists(place):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    arrival.digests[path] = f"link:{target}"


def arrive(
    top: Path, local: Path, task: str, store: OutputStore, known: Mapping[str, str], arrivals: Iterable[Arrival]
) -> Placed:
    """Put what was unpacked at `top` in its place. May run in a thread.

    What stands there and is neither as it was uploaded (`known`, by path) nor as an output has put it there before is
    somebody's: it stays, and what came is put beside it, with the task's id at its end.
    """
    digests, left_out = dict[str, str](), list[str]()
    for arrival in arrivals:
        digests |= arrival.digests
        left_out += arrival.left_out
    if top.is_dir() and not top.is_symlink():
        _folders(top, local)
    files, size, beside, placed = 0, 0, list[str](), dict[str, str]()
    for path, digest in sorted(digests.items()):
        source, place = (top / path, local / path) if path else (top, local)
        if path and (blocked := _blocked(local, path)):
            left_out.append(f"{path}, since {blocked} is no folder here")
            continue
        have = _digest(place)
        if have != digest:
            if have is not None and have not in (store.placed(str(place)), known.get(str(place))):
                place = place.with_name(f"{place.name}.{task}")
                beside.append(place.name)
                if place.is_dir() and not place.is_symlink():
                    left_out.append(f"{path}, since {place.name} is a folder here")
                    continue
            place.parent.mkdir(parents=True, exist_ok=True)
            files, size = files + 1, size + source.lstat().st_size
            os.replace(source, place)
        placed[str(place)] = digest
    store.place(placed)
    return Placed(_words(files, size, beside, left_out), files, size)


def _folders(top: Path, local: Path) -> None:
    for folder, _, _ in os.walk(top):
        place = local / os.path.relpath(folder, top)
        if _blocked(local, os.path.relpath(folder, top)) or (os.path.lexists(place) and not place.is_dir()):
            if folder == str(top):
                raise RuntimeFailed(f"{local} is a file here, and a folder in the container")
            continue
        if not place.exists():
            place.mkdir(parents=True)
            place.chmod(stat.S_IMODE(os.stat(folder).st_mode))


def _blocked(local: Path, path: str) -> str | None:
    """The first of the folders on the way that is none, or only a link to one."""
    place = local
    for part in path.split("/")[:-1]:
        place = place / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            return os.path.relpath(place, local)
    return None


def _digest(path: Path) -> str | None:
    """What stands there, as `Arrival` has it; None when nothing does."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"link:{os.readlink(path)}"
        if not stat.S_ISREG(mode):
            return "something else"
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _words(files: int, size: int, beside: list[str], left_out: list[str]) -> str:
    words = [f"{files:,} file{'s' * (files != 1)}, {format_size(size)}" if files else "nothing new"]
    if beside:
        words.append(f"what was changed here meanwhile stays, and beside it is {_some(beside)}")
    if left_out:
        words.append(f"left out: {_some(left_out)}")
    return "; ".join(words)


def _some(names: list[str]) -> str:
    return ", ".join(names[:TOLD]) + (f" and {len(names) - TOLD:,} more" if len(names) > TOLD else "")
