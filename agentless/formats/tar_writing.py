"""Writes the parts of a tar archive: headers, padding, the end."""

from __future__ import annotations

import tarfile
from typing import Literal

from agentless.formats.tar import BLOCK, Kind

END = bytes(2 * BLOCK)
Form = Literal[1, 2]
GNU: Form = tarfile.GNU_FORMAT
PAX: Form = tarfile.PAX_FORMAT
"""They differ for names over 100 bytes and files from 8 GiB on. A GNU header has the same length for any size."""
_TYPES: dict[Kind, bytes] = {
    "file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE,
}  # fmt: skip


def header(
    name: str,
    kind: Kind = "file",
    size: int = 0,
    *,
    mode: int = 0o644,
    mtime: int = 0,
    link: str = "",
    owner: tuple[int, int] = (0, 0),
    form: Form = PAX,
) -> bytes:
    """The header of a member, after which come `size` bytes and their padding. `owner` is a uid and a gid."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode, info.mtime, info.linkname = _TYPES[kind], size, mode, mtime, link
    info.uid, info.gid = owner
    return info.tobuf(form, "utf-8", "surrogateescape")


def file(name: str, data: bytes, *, form: Form = PAX) -> bytes:
    """A file with its content."""
    return header(name, size=len(data), form=form) + data + padding(len(data))


def padding(size: int) -> bytes:
    """The padding after a content of this size."""
    return bytes(-size % BLOCK)


def padded(size: int) -> int:
    """The bytes of a content of this size in an archive, with padding."""
    return size + -size % BLOCK
