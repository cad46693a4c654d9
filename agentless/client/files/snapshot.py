"""What is uploaded with a task: read here, by the one who submits, and given to the controller as far as it lacks it.

A folder is read as git would, without what `.gitignore` files leave out, and without `.git`. What a file has in it is
read again only when its size or its time has changed since the last time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from agentless import paths
from agentless.client.client import Client
from agentless.errors import ControllerError, UsageError
from agentless.formats.contents import HEAD, content_head
from agentless.model.files.file_spec import UNFINISHED, Upload
from agentless.model.files.snapshot import Entry, rows_of
from agentless.model.files.upload_limits import INSTEAD, MAX_BYTES, MAX_FILES, MOST_LEVELS
from agentless.model.units import format_size
from agentless.rules.files.gitignore import Ignored
from agentless.rules.submit.task_request import TaskRequest
from agentless.stores import private

_PIECE = 1 << 20
_SETTLED = 2.0
"""Seconds after which a file that was changed has another time than one that is changed again."""


@dataclass
class Scan:
    """The files of an upload. `notes` are sentences for the user."""

    entries: dict[str, Entry] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    size: int = 0


def sent(served: Client, asked: TaskRequest, say: Callable[[str], None] = lambda _: None) -> TaskRequest:
    """The submission with a snapshot of each upload, which the controller has received."""
    if not asked.spec.uploads:
        return asked
    done = tuple(replace(each, snapshot=_surely(served, each, say)) for each in asked.spec.uploads)
    return replace(asked, spec=replace(asked.spec, uploads=done))


def _surely(served: Client, upload: Upload, say: Callable[[str], None]) -> str:
    """Send it, and again if the controller dies: the next one has what had arrived."""
    try:
        return _send(served, upload, say)
    except ControllerError:
        return _send(served, upload, say)


def _send(served: Client, upload: Upload, say: Callable[[str], None]) -> str:
    with _Known(upload.source) as known:
        found = scan(Path(upload.source), known)
    for note in found.notes[:5]:
        say(f"{upload.source}: {note}")
    if len(found.notes) > 5:
        say(f"{upload.source}: and {len(found.notes) - 5:,} more")
    answer = served.post("/v1/snapshots", {"files": rows_of(found.entries)})
    places = {entry.content: path for path, entry in found.entries.items() if entry.kind == "file"}
    wanted = {content: places[content] for content in answer["missing"]}
    if wanted:
        length = sum(HEAD + found.entries[path].size for path in wanted.values())
        served.post_bytes("/v1/contents", length, _bodies(Path(upload.source), wanted, found.entries))
    return str(answer["id"])


def _bodies(top: Path, wanted: Mapping[str, str], entries: Mapping[str, Entry]) -> Iterator[bytes]:
    for content, path in wanted.items():
        size, digest = entries[path].size, hashlib.sha256()
        yield content_head(content, size)
        try:
            with (top / path if path else top).open("rb") as file:
                while size and (data := file.read(min(size, _PIECE))):
                    size -= len(data)
                    digest.update(data)
                    yield data
        except OSError as error:
            raise UsageError(f"cannot read {top / path}: {error.strerror}") from None
        if size or digest.hexdigest() != content:
            raise UsageError(f"{top / path} changed during the upload; submit again")


def scan(top: Path, known: _Known) -> Scan:
    """Read a folder or file for a snapshot. Raises UsageError for what cannot be read or is too large."""
    found = Scan()
    try:
        mode = top.stat().st_mode
        if not stat.S_ISDIR(mode):
            if not stat.S_ISREG(mode):
                raise UsageError(f"--upload {top}: not a file or folder")
            _file(top, "", found, known)
            return found
        ignored, prefix = _rules_above(top)
        found.entries[""] = Entry("folder", stat.S_IMODE(mode) & 0o777)
        _folder(top, "", prefix, ignored, found, known)
    except OSError as error:
        raise UsageError(f"--upload {error.filename or top}: {error.strerror}") from None
    return found


def _folder(top: Path, below: str, prefix: str, ignored: Ignored, found: Scan, known: _Known) -> None:
    """Read a folder; `below` is its path below `top`, `prefix` the path of `top` within its repository."""
    if below.count("/") >= MOST_LEVELS:
        raise UsageError(f"--upload {top}: more than {MOST_LEVELS} nested folders; {INSTEAD}")
    here = top / below
    ignored = _with_rules(ignored, here, prefix + below + "/" * bool(below))
    with os.scandir(here) as listing:
        children = sorted(listing, key=lambda entry: entry.name)
    for child in children:
        path = f"{below}/{child.name}" if below else child.name
        is_folder = child.is_dir(follow_symlinks=False)
        if child.name == ".git" or child.name.startswith(UNFINISHED) or ignored.has(prefix + path, folder=is_folder):
            continue
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the name {os.fsencode(child.path)!r} is not UTF-8; rename the file") from None
        if child.is_symlink():
            target = os.readlink(child.path)
            if target.startswith("/") or os.path.normpath(os.path.join(below, target)).startswith(".."):
                found.notes.append(f"{path} is a link to {target}, which is not part of the upload")
            found.entries[path] = Entry("link", 0o777, 0, target)
        elif is_folder:
            mode = child.stat(follow_symlinks=False).st_mode
            found.entries[path] = Entry("folder", stat.S_IMODE(mode) & 0o777)
            _folder(top, path, prefix, ignored, found, known)
        elif child.is_file(follow_symlinks=False):
            _file(Path(child.path), path, found, known)
        else:
            found.notes.append(f"skipped {path}: not a file")
        if len(found.entries) > MAX_FILES:
            raise UsageError(f"--upload {top}: more than {MAX_FILES:,} files; {INSTEAD}")


def _file(place: Path, path: str, found: Scan, known: _Known) -> None:
    status = place.stat()
    found.size += status.st_size
    if found.size > MAX_BYTES:
        raise UsageError(f"--upload {place}: more than {format_size(MAX_BYTES)} to upload; {INSTEAD}")
    digest, size = known.digest(place, path, status)
    found.entries[path] = Entry("file", stat.S_IMODE(status.st_mode) & 0o777, size, digest)


def _rules_above(top: Path) -> tuple[Ignored, str]:
    """The ignore rules of the repository around a folder, and its path there with a trailing slash.

    Rules that leave out the folder itself are not meant for somebody who has named it.
    """
    repository = next((folder for folder in (top, *top.parents) if (folder / ".git").exists()), None)
    if repository is None:
        return Ignored(), ""
    rules = Ignored(_lines(repository / ".git" / "info" / "exclude"))
    if repository == top:
        return rules, ""
    parts = top.relative_to(repository).parts
    for depth in range(len(parts)):
        folder = "/".join(parts[:depth])
        rules = _with_rules(rules, repository / folder, folder + "/" * bool(folder))
        if rules.has("/".join(parts[: depth + 1]), folder=True):
            return Ignored(), ""
    return rules, "/".join(parts) + "/"


def _with_rules(ignored: Ignored, folder: Path, path: str) -> Ignored:
    lines = _lines(folder / ".gitignore")
    return ignored.below(lines, path) if lines else ignored


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []


class _Known:
    """A cache of digests: by path the size, times and SHA-256 of files that were read before."""

    def __init__(self, source: str) -> None:
        name = hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._path = paths.state_dir() / "read" / name
        self._had: dict[str, list[Any]] = {}
        self._have: dict[str, list[Any]] = {}
        self._began = time.time()

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._path.read_bytes())
            self._had = found if isinstance(found, dict) else {}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or self._have == self._had:
            return
        unfinished = self._path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            private.make(unfinished)
            unfinished.write_text(json.dumps(self._have))
            unfinished.replace(self._path)

    def digest(self, place: Path, path: str, status: os.stat_result) -> tuple[str, int]:
        """The SHA-256 and the size of a file."""
        mark = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        had = self._had.get(path)
        if had and had[:4] == mark:
            self._have[path] = had
            return had[4], status.st_size
        digest, size = hashlib.sha256(), 0
        with place.open("rb") as file:
            while data := file.read(_PIECE):
                digest.update(data)
                size += len(data)
        # One that was changed just now may change again within the same tick of the clock.
        if self._began - status.st_ctime > _SETTLED and size == status.st_size:
            self._have[path] = [*mark, digest.hexdigest()]
        return digest.hexdigest(), size
