"""Uploaded files as a packed tar archive."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from agentless.errors import StateError
from agentless.formats import tar_writing
from agentless.model.files.snapshot import Entry
from agentless.rules.files.container_tree import FileOwner, FileTree

_PIECE = 1 << 20
_SENT = 1 << 18
_SAMPLES, _SAMPLE = 8, 1 << 15


def packed(tree: FileTree, owner: FileOwner, content: Callable[[str], Path], now: int) -> Iterator[bytes]:
    """The tree as a tar archive for `/`, packed by gzip; raises StateError when a content cannot be read."""
    ready = bytearray()
    for data in _packed(tree, owner, content, now):
        ready += data
        if len(ready) >= _SENT:
            yield bytes(ready)
            ready.clear()
    yield bytes(ready)


def _packed(tree: FileTree, owner: FileOwner, content: Callable[[str], Path], now: int) -> Iterator[bytes]:
    packer = zlib.compressobj(_level(tree, content), zlib.DEFLATED, 31)
    for path, entry in sorted(tree.items()):
        yield packer.compress(_header(path, entry, owner, now))
        if entry.kind == "file":
            left = entry.size
            try:
                with content(entry.content).open("rb") as file:
                    while data := file.read(_PIECE):
                        left -= len(data)
                        yield packer.compress(data)
            except OSError as error:
                raise StateError(f"cannot read an uploaded file: {error.strerror}") from None
            if left:
                raise StateError(f"the uploaded file {path} is damaged; submit again")
            yield packer.compress(tar_writing.padding(entry.size))
    yield packer.compress(tar_writing.END) + packer.flush()


def _level(tree: FileTree, content: Callable[[str], Path]) -> int:
    """How hard to pack: not at all where most of it cannot be packed, by what the largest files begin with."""
    largest = sorted((e for e in tree.values() if e.kind == "file"), key=lambda entry: -entry.size)[:_SAMPLES]
    sample = b""
    for entry in largest:
        with contextlib.suppress(OSError), content(entry.content).open("rb") as file:
            sample += file.read(_SAMPLE)
    return int(len(sample) < _SAMPLE or len(zlib.compress(sample, 1)) < 0.9 * len(sample))


def _header(path: str, entry: Entry, owner: FileOwner, now: int) -> bytes:
    is_link = entry.kind == "link"
    return tar_writing.header(
        path.lstrip("/"),
        entry.kind,
        entry.size if entry.kind == "file" else 0,
        mode=0o777 if is_link else entry.mode,
        mtime=now,
        link=entry.content if is_link else "",
        owner=(owner.uid, owner.gid),
    )
