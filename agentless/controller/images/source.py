"""Reads an image from its node, once for all requests that want it at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agentless.controller.images.archive_reader import BrokenOffError, fetch
from agentless.controller.images.layer_spool import LayerSpool
from agentless.controller.images.upload import UploadJob
from agentless.remote.concurrency import cancel
from agentless.rules.images import layers


@dataclass(slots=True)
class SharedRead:
    """The layers of an image above the lowest `kept`, as they arrive. `users` is the number of requests."""

    spool: LayerSpool
    reading: asyncio.Task[None]
    kept: int
    users: int = 0

    @property
    def failed(self) -> bool:
        """Whether the reading has ended with an error."""
        return self.reading.done() and (self.reading.cancelled() or self.reading.exception() is not None)


class SharedReads:
    """Reads under way. Since a spool keeps all that has come, a request may join one in the middle."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, str, str | None], SharedRead] = {}

    @contextlib.asynccontextmanager
    async def take(self, job: UploadJob, kept: int, packer: str | None) -> AsyncIterator[SharedRead]:
        """The layers above the lowest `kept`; the last request to leave ends the reading."""
        key = job.source.node.name, job.image.id, packer
        read = self._reads.get(key)
        if read is None or read.kept > kept or read.failed:
            spool = LayerSpool()
            read = SharedRead(spool, asyncio.create_task(_read(job, kept, packer, spool)), kept)
            self._reads[key] = read
        read.users += 1
        try:
            yield read
        finally:
            read.users -= 1
            if not read.users:
                if self._reads.get(key) is read:
                    del self._reads[key]
                await cancel(read.reading)
                read.spool.close()


async def _read(job: UploadJob, kept: int, packer: str | None, spool: LayerSpool) -> None:
    images, image = job.source.runtime.images, job.image
    try:
        command = images.save(image.id, layers.unwanted(image, kept), packer)
        async with job.source.stream(command) as stream:
            await fetch(stream, image, kept, packer, spool)
        spool.finish()
    except BrokenOffError as error:
        raise images.save_failed(image.id, error.words) from None
