"""The server's side of SFTP, over what a shell in the container can do."""

from __future__ import annotations

import asyncio
import posixpath
import re
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NoReturn, cast

import asyncssh
from asyncssh.sftp import run_sftp_server

from agentless.controller.nodes.login import Login
from agentless.controller.nodes.program import Program
from agentless.controller.ssh.files import BLOCK, PIECE, Files
from agentless.controller.ssh.ports.warm import Taken, Warm
from agentless.model.command import escaped
from agentless.model.text import printable

SMALL = 32 * 1024
"""Bytes of a file that is written by the shell itself; a larger one has a program of its own."""
_closing: set[asyncio.Task[None]] = set()
_LARGEST = (1 << 32) - 1
"""What a time or a user's number can be in the protocol."""
KEPT = 3
"""Pieces before and after the one that is read, since a client asks for many parts of a file at once."""
_STAT = re.compile(rb"([0-9a-f]{1,8}) ([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) (-?[0-9]{1,18}) (-?[0-9]{1,18}) ")
_ENTRY = re.compile(_STAT.pattern + rb"\./([^/]+)/\n")
_ERRORS = (
    (b"No such file", asyncssh.SFTPNoSuchFile),
    (b"nonexistent", asyncssh.SFTPNoSuchFile),
    (b"an't open", asyncssh.SFTPNoSuchFile),
    (b"Permission denied", asyncssh.SFTPPermissionDenied),
    (b"not supported", asyncssh.SFTPOpUnsupported),
)
"""What a reason says, and its error in the protocol; else a plain failure."""


async def serve_files(
    login: Login,
    shell: tuple[Program, bytes],
    channel: asyncssh.SSHServerChannel[bytes],
    streams: tuple[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]],
) -> None:
    """Serve until the user leaves. `shell` is a program of `Login.files`, and what it has printed already."""
    files, writers = Files(*shell), Warm(login.writer, 1)
    try:
        await run_sftp_server(_Server(channel, files, writers, await files.begin()), *streams, 3)
    finally:
        closing = asyncio.create_task(writers.close())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)


class OpenEnd(asyncssh.SSHWriter[bytes]):
    """A writer that the library cannot close: a client wants an exit code first."""

    def close(self) -> None:
        """Leave the channel open."""


@dataclass
class _File:
    """An open file: what has been read ahead, and what has still to be written."""

    path: bytes
    append: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    ahead: dict[int, asyncio.Task[bytes]] = field(default_factory=dict)
    start: int = 0
    waiting: bytearray = field(default_factory=bytearray)
    fresh: bool = False
    writer: Taken | None = None
    position: int = 0
    failure: asyncssh.SFTPError | None = None
    final_mode: int | None = None


class _Server(asyncssh.SFTPServer):
    """Requests of the protocol as requests to the shell."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], files: Files, writers: Warm, folder: bytes) -> None:
        super().__init__(channel)
        self._files = files
        self._writers = writers
        self._folder = folder

    def _say(self, line: str) -> None:
        """A line on the user's terminal: clients show no reasons, but words of their own."""
        self.channel.write_stderr(f"{line}\r\n".encode())

    # ------------------------------------------------------------------ names

    def map_path(self, path: bytes) -> bytes:
        """An absolute path."""
        return posixpath.join(self._folder, path)

    async def _ask(self, what: str, *arguments: bytes) -> bytes:
        answer = await self._files.ask(what, *arguments)
        return answer.output if answer.ok else _fail(answer.output)

    def format_user(self, uid: int | None) -> str:
        """The number: names are those of this machine."""
        return str(uid)

    def format_group(self, gid: int | None) -> str:
        """As `format_user`."""
        return str(gid)

    async def stat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return _attributes(await self._ask("stat", self.map_path(path)))

    async def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return _attributes(await self._ask("lstat", self.map_path(path)))

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        listing = await self._ask("list", self.map_path(path))
        for entry in _ENTRY.finditer(listing):
            yield asyncssh.SFTPName(entry[7], attrs=_attributes(entry[0]))

    async def realpath(self, path: bytes) -> bytes:
        return (await self._ask("real", self.map_path(path))).removesuffix(b"\n")

    async def readlink(self, path: bytes) -> bytes:
        return (await self._ask("readlink", self.map_path(path))).removesuffix(b"\n")

    async def remove(self, path: bytes) -> None:
        await self._ask("remove", self.map_path(path))

    async def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        await self._ask("mkdir", self.map_path(path))
        await self.setstat(path, attrs)

    async def rmdir(self, path: bytes) -> None:
        await self._ask("rmdir", self.map_path(path))

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._ask("rename", self.map_path(oldpath), self.map_path(newpath))

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._ask("replace", self.map_path(oldpath), self.map_path(newpath))

    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        if oldpath.startswith(b"-"):
            oldpath = b"./" + oldpath
        await self._ask("symlink", oldpath, self.map_path(newpath))

    async def link(self, oldpath: bytes, newpath: bytes) -> None:
        await self._ask("link", self.map_path(oldpath), self.map_path(newpath))

    async def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        path = self.map_path(path)
        if attrs.size is not None:
            await self._ask("size", path, b"%d" % attrs.size)
        owner = b"%d:%d" % (attrs.uid, attrs.gid) if attrs.uid is not None and attrs.gid is not None else b""
        mode = b"" if attrs.permissions is None else b"%o" % stat.S_IMODE(attrs.permissions)
        accessed, modified = (b"" if each is None else b"%d" % each for each in (attrs.atime, attrs.mtime))
        if owner or mode or accessed or modified:
            await self._ask("set", path, b",".join((owner, mode, accessed, modified)))

    async def statvfs(self, path: bytes) -> asyncssh.SFTPVFSAttrs:
        numbers = [int(word) for word in (await self._ask("space", self.map_path(path))).split()]
        size, blocks, free, available, files, free_files, longest = numbers
        return asyncssh.SFTPVFSAttrs(
            bsize=size, frsize=size, blocks=blocks, bfree=free, bavail=available, files=files, ffree=free_files,
            favail=free_files, fsid=0, flag=0, namemax=longest,
        )  # fmt: skip

    # ------------------------------------------------------------------ open files

    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> _File:
        path = self.map_path(path)
        file = _File(path, append=bool(pflags & asyncssh.FXF_APPEND))
        mode = 0o666 if attrs.permissions is None else stat.S_IMODE(attrs.permissions)
        how = None
        if pflags & asyncssh.FXF_CREAT and pflags & asyncssh.FXF_EXCL:
            how = "exclusive"
        elif pflags & asyncssh.FXF_TRUNC:
            how = "create"
        elif pflags & asyncssh.FXF_CREAT:
            how = "open"
        if how:
            made = await self._ask(how, path, b"%o" % mode)
            file.fresh = how != "open"
            if made and not mode & 0o200:
                file.final_mode = mode
        elif stat.S_ISDIR((await self.stat(path)).permissions or 0):
            raise asyncssh.SFTPFailure("Is a directory")
        return file

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        """From the pieces around the place that is read; the next one is asked for meanwhile."""
        file = _opened(file_obj)
        if file.waiting or file.writer:
            await self.fsync(file)
        number, at = divmod(offset, PIECE)
        piece = await asyncio.shield(self._piece(file, number))
        if len(piece) < PIECE:
            file.ahead.pop(number, None)  # the file may grow
        else:
            following = self._piece(file, number + 1)
            if at + size > PIECE:
                piece += await asyncio.shield(following)
        file.ahead = {each: task for each, task in file.ahead.items() if abs(each - number) < KEPT}
        return piece[at : at + size]

    def _piece(self, file: _File, number: int) -> asyncio.Task[bytes]:
        if number not in file.ahead:
            blocks = number * (PIECE // BLOCK)
            file.ahead[number] = asyncio.create_task(self._ask("read", file.path, b"%d" % blocks))
        return file.ahead[number]

    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        """Little is kept until the file is closed, more goes to a program that writes it."""
        file = _opened(file_obj)
        async with file.turn:
            file.ahead.clear()
            end = file.position if file.writer else file.start + len(file.waiting)
            if offset != end and not file.append:
                await self._flush(file)
                file.start = offset
            if file.writer is None:
                file.waiting += data
                if len(file.waiting) > SMALL:
                    await self._begin(file)
            else:
                await file.writer.program.write(data)
                file.position += len(data)
        return len(data)

    async def _begin(self, file: _File) -> None:
        """Start a program that writes this file, with what waits."""
        file.writer = await self._writers.take()
        where = b"append 0" if file.append else b"%d %d" % divmod(file.start, BLOCK)
        line = b"%s %s\n" % (escaped(file.path), where)
        await file.writer.program.write(line + file.waiting)
        file.position = file.start + len(file.waiting)
        file.waiting.clear()
        file.fresh = False

    async def _flush(self, file: _File) -> None:
        """Have all of it in the file.

        What fails once fails from then on, since clients only look at the last answer.
        """
        if file.failure:
            raise file.failure
        try:
            await self._write_all(file)
        except asyncssh.SFTPError as error:
            file.failure = error
            self._say(f"agentless: {printable(file.path.decode('utf-8', 'replace'))}: {error.reason}")
            raise

    async def _write_all(self, file: _File) -> None:
        if file.waiting and not file.append and not (file.fresh and file.start == 0):
            await self._begin(file)
        if file.waiting:
            await self._ask_written(file)
        elif file.writer:
            writer, file.writer = file.writer, None
            file.start = file.position
            try:
                await writer.program.write_eof()
                said = b""
                while chunk := await writer.program.read():
                    said = (said + chunk[1])[-BLOCK:]
                if await writer.program.wait() != 0:
                    _fail(said)
            finally:
                writer.end()

    async def _ask_written(self, file: _File) -> None:
        data = bytes(file.waiting)
        file.start += len(data)
        file.waiting.clear()
        file.fresh = False
        await self._ask("append" if file.append else "write", file.path, data)

    async def close(self, file_obj: object) -> None:
        file = _opened(file_obj)
        await self.fsync(file)
        if file.final_mode is not None:
            await self._ask("set", file.path, b",%o,," % file.final_mode)

    async def fsync(self, file_obj: object) -> None:
        file = _opened(file_obj)
        async with file.turn:
            await self._flush(file)

    async def fstat(self, file_obj: object) -> asyncssh.SFTPAttrs:
        await self.fsync(file_obj)
        return await self.stat(_opened(file_obj).path)

    async def fsetstat(self, file_obj: object, attrs: asyncssh.SFTPAttrs) -> None:
        await self.fsync(file_obj)
        await self.setstat(_opened(file_obj).path, attrs)

    async def fstatvfs(self, file_obj: object) -> asyncssh.SFTPVFSAttrs:
        return await self.statvfs(_opened(file_obj).path)


def _opened(file: object) -> _File:
    """What `open` has returned; the library passes it on as it is."""
    return cast(_File, file)


def _attributes(line: bytes) -> asyncssh.SFTPAttrs:
    found = _STAT.match(line)
    if found is None:
        raise asyncssh.SFTPFailure("the container has no stat that can be used")
    mode, size = int(found[1], 16), int(found[2])
    uid, gid, accessed, modified = (max(0, min(int(found[at]), _LARGEST)) for at in range(3, 7))
    return asyncssh.SFTPAttrs(size=size, uid=uid, gid=gid, permissions=mode, atime=accessed, mtime=modified)


def _fail(reason: bytes) -> NoReturn:
    words = printable(reason.decode("utf-8", "replace").strip().rpartition(": ")[2])[:200] or "failed"
    for part, error in _ERRORS:
        if part in reason:
            raise error(words)
    raise asyncssh.SFTPFailure(words)
