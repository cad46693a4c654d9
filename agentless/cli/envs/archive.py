"""An image in a file: compressed while it is written, and sent without its names."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from agentless.errors import UsageError
from agentless.formats.tar import BadArchive, Fed, Member, Parsing, Tar
from agentless.formats.tar_writing import END, header, padding

CHUNK = 256 * 1024
MOST_JSON = 16 << 20
"""The most bytes of a manifest or an index, which has a few KiB in an image."""
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


def check_archive_path(path: Path) -> None:
    """Raise UsageError if the suffix does not say how to write the file."""
    if not path.name.endswith((".tar.zst", ".tar")):
        raise UsageError(f"{path}: the file name must end with .tar.zst, or with .tar for an uncompressed archive")


def write(path: Path, archive: Iterable[bytes]) -> int:
    """Write an archive, compressed as its suffix says, and return its size. A failed write leaves no file."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with contextlib.ExitStack() as stack:
            file: Any = stack.enter_context(fresh.open("xb"))
            if path.name.endswith(".zst"):
                import zstandard

                file = stack.enter_context(zstandard.ZstdCompressor(threads=-1).stream_writer(file))
            for chunk in archive:
                file.write(chunk)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return path.stat().st_size


def read(path: Path) -> Iterator[bytes]:
    """The archive in a file, without names; raises UsageError if it is not one."""
    try:
        with path.open("rb") as file:
            begin = file.read(4)
            file.seek(0)
            with _opened(file, begin) as plain:
                yield from nameless(plain)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (BadArchive, EOFError, ValueError, zlib.error) as error:
        raise UsageError(f"{path} is not a complete image archive: {error}") from None


@contextlib.contextmanager
def _opened(file: BinaryIO, begin: bytes) -> Iterator[BinaryIO]:
    if begin == _ZSTD:
        import zstandard

        try:
            with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as plain:
                yield cast("BinaryIO", plain)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
    elif begin.startswith(_GZIP):
        import gzip

        with gzip.open(file) as unpacked:
            yield cast("BinaryIO", unpacked)
    else:
        yield file


def nameless(archive: BinaryIO) -> Iterator[bytes]:
    """What `docker save` wrote, without names: loading it must not take a name from another image."""
    ready: list[bytes] = []
    fed = Fed(_nameless(Tar(), ready.append))
    try:
        while data := archive.read(CHUNK):
            fed.feed(data)
            yield from ready
            ready.clear()
        fed.end()
        yield from ready
    finally:
        fed.close()


def _nameless(tar: Tar, put: Callable[[bytes], None]) -> Parsing[None]:
    seen = False
    while member := (yield from tar.next()):
        name = member.name.removeprefix("./")
        if name == "repositories" or member.kind == "other":
            continue
        if member.kind == "file" and name in ("manifest.json", "index.json"):
            if member.size > MOST_JSON:
                raise ValueError(f"its {name} is larger than {MOST_JSON >> 20} MiB")
            data = bytearray(member.size)
            yield from tar.content(partial(_fill, data))
            fresh = _without_names(name, bytes(data))
            put(_header(member, len(fresh)) + fresh + padding(len(fresh)))
            seen = True
        else:
            put(_header(member, member.size))
            end = 0

            def take(offset: int, data: bytes) -> None:
                nonlocal end
                if offset != end:
                    raise ValueError("it contains a sparse file")
                end += len(data)
                put(data)

            if member.kind == "file":
                yield from tar.content(take)
                if end != member.size:
                    raise ValueError("it contains a sparse file")
                put(padding(end))
    if not seen:
        raise ValueError("it contains no manifest")
    put(END)


def _fill(whole: bytearray, offset: int, data: bytes) -> None:
    whole[offset : offset + len(data)] = data


def _header(member: Member, size: int) -> bytes:
    return header(member.name, member.kind, size, mode=member.mode, mtime=int(member.mtime), link=member.link)


def _without_names(name: str, data: bytes) -> bytes:
    try:
        found = json.loads(data)
        images = found if name == "manifest.json" else found.get("manifests") or []
        for image in images:
            if name == "manifest.json":
                image["RepoTags"] = None
            else:
                annotations = image.get("annotations") or {}
                for key in _NAMES:
                    annotations.pop(key, None)
        return json.dumps(found).encode()
    except (AttributeError, TypeError, ValueError, RecursionError):
        raise ValueError(f"its {name} is invalid") from None
