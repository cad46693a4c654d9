"""The output of `image-save.sh.j2`, taken apart and put into a spool."""

from __future__ import annotations

import asyncio
import re

from agentless.controller.images.layer_spool import CHUNK, LayerSpool
from agentless.errors import Timeout
from agentless.formats.tar_writing import padded, padding
from agentless.model.images.image import Image
from agentless.model.text import Excerpt
from agentless.remote.streams import Stream
from agentless.rules.images import compressed, layers
from agentless.rules.images.blobs import digest_of, file_of

SMALL = 4 << 20
SMALL_ONES, FILES = 128 << 20, 10_000
"""Bytes, and number, of the files in an archive that are small and not known by name: they are held in memory."""
OTHERS = 64
"""The most large files in an archive that are not known by name and are no layers, such as attestations."""
SILENCE = 600.0
"""Seconds without a byte after which a node is given up."""
FIRST_SILENCE = 3600.0
"""The same before the first byte: Docker writes the whole image to its disk before it hands out any of it."""
_LINE = re.compile(rb"([pr]) (\d+) ([\w./-]+)")


class BrokenOffError(Exception):
    """The source ended before the archive did; `words` is the end of its standard error."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class _Output:
    """The standard output of a stream; `said` is the end of its standard error. Raises Timeout if nothing comes."""

    def __init__(self, stream: Stream) -> None:
        self.said = ""
        self._stream = stream
        self._err = Excerpt()
        self._patience = FIRST_SILENCE

    async def more(self) -> bytes | None:
        """The next bytes, None at the end."""
        while True:
            try:
                async with asyncio.timeout(self._patience):
                    fd, data = await anext(self._stream)
            except StopAsyncIteration:
                self.said = str(self._err)
                return None
            except TimeoutError:
                raise Timeout(f"received nothing of the image for {self._patience:.0f} s; gave up") from None
            self._patience = SILENCE
            if fd == 1:
                return data
            self._err.add(data)


class _Reader:
    """The standard output of a stream, in pieces of the reader's choice; raises BrokenOffError at its end."""

    def __init__(self, stream: Stream) -> None:
        self._output = _Output(stream)
        self._data = b""

    async def line(self) -> bytes:
        """The bytes up to the next newline."""
        while b"\n" not in self._data:
            if len(self._data) > 4096:
                raise BrokenOffError("invalid answer")
            self._data += await self._more()
        line, _, self._data = self._data.partition(b"\n")
        return line

    async def some(self) -> bytes:
        """The next bytes."""
        data, self._data = self._data or await self._more(), b""
        return data

    def back(self, data: bytes) -> None:
        """Give back bytes, to be read next."""
        self._data = data

    async def _more(self) -> bytes:
        data = await self._output.more()
        if data is None:
            raise BrokenOffError(self._output.said)
        return data


async def fetch(stream: Stream, image: Image, kept: int, packer: str | None, spool: LayerSpool) -> None:
    """Write the layers of the stream above the lowest `kept` into the spool.

    Raises BrokenOffError, NoAnswer or StateError.
    """
    reader, known = _Reader(stream), layers.layer_files(image)
    sizes = {file_of(blob.digest): blob.size for blob in image.blobs}
    small: dict[str, bytes] = {}
    held = 0
    try:
        while (line := await reader.line()) != b".":
            match = _LINE.fullmatch(line)
            if match is None:
                raise BrokenOffError("invalid answer")
            kind, size, name = match[1], int(match[2]), match[3].decode()
            if kind == b"r" and name not in known and size <= SMALL:
                small[name] = (await _all(reader, padded(size)))[:size]
                held += size
                if len(small) > FILES or held > SMALL_ONES:
                    raise BrokenOffError("the image archive contains too many files with unknown names")
                if digest_of(small[name]) == (image.config or image.id):
                    spool.config = small[name]
            else:
                if len(spool.layers) > len(image.layers) + OTHERS or size != sizes.get(name, size):
                    raise BrokenOffError("invalid answer")
                await _layer(reader, spool, known.get(name, name), size, packer, is_packed=kind == b"p")
            if _is_all(image, kept, spool):
                return
        for name, layer in layers.by_manifest(small.pop("manifest.json", b""), image).items():
            spool.rename(name, layer)
            if name in small and layer not in spool.layers:
                await _small(spool, layer, small[name], packer)
    except ValueError as error:
        raise BrokenOffError(f"cannot read the image archive: {error}") from None


def _is_all(image: Image, kept: int, spool: LayerSpool) -> bool:
    """Whether the rest of the archive is not needed.

    Old engines name the top layer after the whole image. When all others have come, the one of an unknown name is that.
    """
    missing = set(image.layers[kept:]).difference(spool.layers)
    unnamed = [name for name in spool.layers if name.endswith("/layer.tar")]
    if missing == {image.layers[-1]} and len(unnamed) == 1:
        spool.rename(unnamed[0], image.layers[-1])
        missing.clear()
    return bool(spool.config) and not missing


async def _all(reader: _Reader, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await reader.some()
    reader.back(data[size:])
    return data[:size]


async def _small(spool: LayerSpool, layer: str, data: bytes, packer: str | None) -> None:
    size = len(data)
    spooled = spool.begin(layer, size)
    await spool.put(spooled, compressed.pack(packer, data + padding(size)), size)
    spool.end(spooled)


async def _layer(
    reader: _Reader, spool: LayerSpool, name: str, size: int, packer: str | None, *, is_packed: bool
) -> None:
    if packer and not is_packed:
        if size > SMALL:
            raise BrokenOffError("invalid answer")
        await _small(spool, name, (await _all(reader, padded(size)))[:size], packer)
        return
    spooled, piece = spool.begin(name, size), compressed.piece(packer, padded(size))
    most = padded(size) + size // 64 + CHUNK  # no compressor adds as much to what it cannot compress
    waiting: list[bytes] = []
    length = 0
    while not piece.over:
        data = await reader.some()
        taken = piece.feed(data)
        waiting.append(data[:taken])
        length += taken
        if spooled.stored + length > most:
            raise BrokenOffError("invalid answer")
        reader.back(data[taken:])
        if length >= CHUNK // 2 or piece.over:
            await spool.put(spooled, b"".join(waiting), min(piece.unpacked, size))
            waiting, length = [], 0
    spool.end(spooled)
