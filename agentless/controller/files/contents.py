"""Contents of uploads, written into the store as they come in."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agentless.errors import AgentlessError, UsageError
from agentless.formats.contents import HEAD, parse_content_head
from agentless.stores.files.snapshots import ContentWriter, SnapshotStore


async def take_contents(store: SnapshotStore, stream: AsyncIterator[bytes]) -> int:
    """How many contents came; raises what is wrong once all of it has been read, so that the answer is heard."""
    reader, problem = _ContentReader(store), None
    try:
        async for chunk in stream:
            if problem is None:
                try:
                    reader.feed(chunk)
                except AgentlessError as error:
                    problem = error
    finally:
        reader.close()
    if problem:
        raise problem
    return reader.taken


class _ContentReader:
    """Splits the stream into contents; `taken` counts those that are in the store."""

    def __init__(self, store: SnapshotStore) -> None:
        self.taken = 0
        self._store = store
        self._buffer = b""
        self._left = 0
        self._writer: ContentWriter | None = None

    def feed(self, chunk: bytes) -> None:
        """The next bytes; raises StateError, or UsageError for a content that is not what its head says."""
        self._buffer += chunk
        while self._writer or len(self._buffer) >= HEAD:
            if self._writer is None:
                digest, self._left = parse_content_head(self._buffer[:HEAD])
                self._writer, self._buffer = self._store.writer(digest), self._buffer[HEAD:]
            data, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
            self._writer.write(data)
            self._left -= len(data)
            if self._left:
                return
            if not self._writer.finish():
                raise UsageError("a file changed during the upload; submit again")
            self.taken, self._writer = self.taken + 1, None

    def close(self) -> None:
        """Leave nothing of a content that did not come whole."""
        if self._writer:
            self._writer.close()
