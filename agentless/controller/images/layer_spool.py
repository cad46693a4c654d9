"""Layers on their way through the controller: written once, read by each node at its own pace and in its own order.

They lie in a file without a name, packed as they came, so that nothing is left of them whatever ends this process. The
order is why: `docker save` writes layers in the order of their hashes, and what a broken link leaves behind on a node
can be used only from the bottom up.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agentless.controller.in_thread import in_thread
from agentless.errors import AgentlessError, RuntimeFailed, StateError
from agentless.formats.tree import write_at

CHUNK = 1 << 20
RESERVE = 1 << 30
"""Bytes of its file system that are left free, or a twentieth of it if that is less."""


@dataclass(slots=True)
class SpooledLayer:
    """A layer of `size` bytes unpacked: `stored` bytes in the file from `start` on, which unpack to `unpacked`."""

    size: int
    start: int
    stored: int = 0
    unpacked: int = 0
    whole: bool = False

    def unpacked_at(self, at: int) -> int:
        """About how many unpacked bytes its first `at` bytes hold."""
        return min(self.size, self.unpacked * at // self.stored) if self.stored else 0


class LayerSpool:
    """The layers of one image, by diff id, and its configuration. `layers` are those that have begun to come."""

    def __init__(self) -> None:
        try:
            self._file = tempfile.TemporaryFile(dir=_folder(), buffering=0)  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise _full(error) from None
        self.config = b""
        self.layers: dict[str, SpooledLayer] = {}
        self._end = 0
        self._news = asyncio.Event()
        self._error: AgentlessError | None = None
        self._complete = False

    def begin(self, name: str, size: int) -> SpooledLayer:
        """Begin a layer. One at a time."""
        spooled = self.layers[name] = SpooledLayer(size, self._end)
        self._tell()
        return spooled

    def rename(self, name: str, layer: str) -> None:
        """Give a layer that came under another name its id."""
        if name in self.layers:
            self.layers.setdefault(layer, self.layers.pop(name))
            self._tell()

    async def put(self, spooled: SpooledLayer, data: bytes, unpacked: int) -> None:
        """Append to a layer; `unpacked` is its unpacked size so far."""
        try:
            await in_thread(_write, self._file.fileno(), data, self._end)
        except OSError as error:
            raise _full(error) from None
        self._end += len(data)
        spooled.stored += len(data)
        spooled.unpacked = unpacked
        self._tell()

    def end(self, spooled: SpooledLayer) -> None:
        """Complete a layer."""
        spooled.whole, spooled.unpacked = True, spooled.size
        self._tell()

    def finish(self, error: AgentlessError | None = None) -> None:
        """Say that no more layers will come, because of an error if there is one."""
        self._complete, self._error = True, error
        self._tell()

    async def find(self, layer: str) -> SpooledLayer:
        """Wait until the layer with this id has begun."""
        while layer not in self.layers:
            await self._wait(f"layer {layer} is missing from the image archive")
        return self.layers[layer]

    async def configuration(self) -> bytes:
        """The configuration of the image."""
        while not self.config:
            await self._wait("the image's configuration does not match its ID; rejected")
        return self.config

    async def read(self, spooled: SpooledLayer) -> AsyncIterator[bytes]:
        """The bytes of a layer, as they arrive."""
        at = 0
        while True:
            size = min(CHUNK, spooled.stored - at)
            if size:
                yield await in_thread(os.pread, self._file.fileno(), size, spooled.start + at)
                at += size
            elif spooled.whole:
                return
            else:
                await self._wait("the image archive is incomplete")

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    async def _wait(self, otherwise: str) -> None:
        if self._error is not None:
            raise self._error
        if self._complete:
            raise RuntimeFailed(otherwise)
        await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _write(file: int, data: bytes, at: int) -> None:
    disk = os.fstatvfs(file)
    reserve = min(RESERVE, disk.f_blocks * disk.f_frsize // 20)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize - len(data) < reserve:
        raise OSError(errno.ENOSPC, f"less than {reserve >> 20} MiB would be left free")
    write_at(file, data, at)


def _folder() -> str:
    """The folder for temporary files: /var/tmp, since /tmp may be in memory."""
    large = "/var/tmp"  # noqa: S108 - a file without a name
    return large if os.access(large, os.W_OK) and "TMPDIR" not in os.environ else tempfile.gettempdir()


def _full(error: OSError) -> StateError:
    return StateError(
        f"cannot store the image in {_folder()}: {error.strerror}; free some space there, or set TMPDIR to another "
        "folder and restart the controller"
    )
