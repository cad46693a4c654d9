"""An image in a file: compressed while it comes, and sent without the names that it may have had elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from agentless.errors import UsageError

CHUNK = 256 * 1024
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


def check_target(path: Path) -> None:
    """Raise UsageError for a name that does not say how it is written."""
    if not path.name.endswith((".tar.zst", ".tar")):
        raise UsageError(f"{path}: name the file ….tar.zst, or ….tar to have it uncompressed")


def write(path: Path, archive: Iterable[bytes]) -> int:
    """Write an archive as the name of the file says, and give the file's size; there is a whole one, or none."""
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
    """The archive in a file, without names; raises UsageError for a file that is none."""
    try:
        with path.open("rb") as file:
            begin = file.read(4)
            file.seek(0)
            with _opened(file, begin) as plain:
                yield from nameless(plain)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise UsageError(f"{path} is no whole archive of an image: {error}") from None


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
    """What `docker save` has written, without names: where it is loaded, it must not take one from another image."""
    seen = False
    with tarfile.open(fileobj=archive, mode="r|") as members:
        for member in members:
            name = member.name.removeprefix("./")
            if name == "repositories":
                continue
            content = members.extractfile(member) if member.isreg() else None
            if content is not None and name in ("manifest.json", "index.json"):
                seen = True
                data = _without_names(name, content.read())
                member.size = len(data)
                yield member.tobuf() + data + bytes(-len(data) % tarfile.BLOCKSIZE)
                continue
            yield member.tobuf()
            while content is not None and (chunk := content.read(CHUNK)):
                yield chunk
            if content is not None and member.size % tarfile.BLOCKSIZE:
                yield bytes(-member.size % tarfile.BLOCKSIZE)
    if not seen:
        raise ValueError("there is no manifest in it")
    yield bytes(2 * tarfile.BLOCKSIZE)


def _without_names(name: str, data: bytes) -> bytes:
    found = json.loads(data)
    if name == "manifest.json":
        for image in found:
            image["RepoTags"] = None
    else:
        for image in found.get("manifests", ()):
            for key in _NAMES:
                image.get("annotations", {}).pop(key, None)
    return json.dumps(found).encode()
