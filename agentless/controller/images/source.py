"""Reading an image from its node: once, for however many requests want it at that time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agentless.controller.images.archive_reader import BrokenOffError, fetch, fetch_whole
from agentless.controller.images.layer_spool import Depot
from agentless.controller.images.upload import Job
from agentless.rules.images import layers


@dataclass(slots=True)
class Supply:
    """The layers of an image above the lowest `kept`, as they come. `users` are the requests that they are for."""

    depot: Depot
    reading: asyncio.Task[None]
    kept: int
    users: int = 0

    @property
    def failed(self) -> bool:
        """Whether no more will come of it than has."""
        return self.reading.done() and (self.reading.cancelled() or self.reading.exception() is not None)


class Supplies:
    """Those under way. Since a depot keeps all that has come, a request may join one in the middle."""

    def __init__(self) -> None:
        self._supplies: dict[tuple[str, str, str | None], Supply] = {}

    @contextlib.asynccontextmanager
    async def take(self, job: Job, kept: int, packer: str | None) -> AsyncIterator[Supply]:
        """The layers above the lowest `kept`; the last request to leave ends the reading."""
        key = job.source.node.name, job.image.id, packer
        supply = self._supplies.get(key)
        if supply is None or supply.kept > kept or supply.failed:
            depot = Depot()
            supply = Supply(depot, asyncio.create_task(_read(job, kept, packer, depot)), kept)
            self._supplies[key] = supply
        supply.users += 1
        try:
            yield supply
        finally:
            supply.users -= 1
            if not supply.users:
                if self._supplies.get(key) is supply:
                    del self._supplies[key]
                supply.reading.cancel()
                await asyncio.gather(supply.reading, return_exceptions=True)
                supply.depot.close()


async def _read(job: Job, kept: int, packer: str | None, depot: Depot) -> None:
    images, image = job.source.runtime.images, job.image
    try:
        if image.containerd:
            async with job.source.stream(images.whole(image.id, packer)) as stream:
                await fetch_whole(stream, image, depot)
        else:
            command = images.save(image.id, layers.unwanted(image, kept), packer)
            async with job.source.stream(command) as stream:
                await fetch(stream, image, kept, packer, depot)
        depot.finish()
    except BrokenOffError as error:
        raise images.save_failed(image.id, error.words) from None
