"""One image to one node out of a depot: archive after archive, from its lowest layer up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from agentless.controller.images.archive_reader import WHOLE
from agentless.controller.images.layer_spool import Depot
from agentless.controller.nodes.connection import Link
from agentless.errors import AgentlessError, Timeout
from agentless.model.command import Result
from agentless.model.images.image import Image
from agentless.model.images.transfer import Progress, Sent
from agentless.rules.images import compressed, layers

STEP = 96 << 20
"""Bytes of layers after which those sent so far are made an image: a broken link does not cost them."""
SILENCE = 600.0
"""Seconds in which a node takes nothing of what is offered after which it is given up."""
APPLY_WITHIN = 3600.0
"""Seconds in which a node must have made an image of what it has got."""
PIECE = 256 * 1024
"""Bytes handed to the transport at once: others use the event loop between two of them."""
LOOK_EVERY = 5.0
TELL_EVERY = 0.2
RATE_AFTER = 1.0
"""Seconds from the first byte on in which no rate is told: the pipes take the first bytes at once."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be sent, from where, with which tags; and who hears how far it is."""

    image: Image
    source: Link
    tags: tuple[str, ...]
    tell: Callable[[Progress], None]


class _Step:
    """An archive on its way. `offered`: since when the node has not taken the next bytes.

    `over`: since when it has all of them.
    """

    def __init__(self, before: asyncio.Task[None] | None) -> None:
        self.before = before
        self.wanted = ""
        self.fed = asyncio.Event()
        self.offered: float | None = None
        self.over: float | None = None


class Delivery:
    """Sends what a node lacks: `kept` layers, from the bottom, it has."""

    def __init__(self, job: Job, link: Link, kept: int, packer: str | None, depot: Depot) -> None:
        self._image, self._tags, self._tell = job.image, job.tags, job.tell
        self._link, self._packer, self._depot = link, packer, depot
        self._kept = self._at = kept
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._first: float | None = None
        self._told = 0.0
        self._sent = self._done = 0

    async def run(self) -> Sent:
        """Send it. Raises what went wrong on the node or on the way there, or what the depot says.

        While the node makes an image of one archive, the next one is already on its way.
        """
        image = self._image
        self._say("waiting for the first layer")
        loads: list[asyncio.Task[None]] = []
        try:
            while not loads or self._at < len(image.layers):  # one that lacks no layer lacks the configuration
                step = _Step(loads[-1] if loads else None)
                loads.append(asyncio.create_task(self._load(step)))
                fed = asyncio.create_task(step.fed.wait())
                await asyncio.wait({fed, loads[-1]}, return_when=asyncio.FIRST_COMPLETED)
                fed.cancel()
                if loads[-1].done():
                    loads[-1].result()
                for load in loads[-2:-1]:
                    await load
            for load in loads[-1:]:
                await load
        finally:
            for load in loads:
                load.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
        return self._over("layers" if self._kept else "whole")

    async def run_whole(self) -> Sent:
        """Send the archive as it came. Raises as `run`."""
        self._say("waiting for the whole archive")
        step, images = _Step(None), self._link.runtime.images
        feeding = self._link.session.feed(images.load(self._image.id, self._packer), self._copy(step))
        images.check_load(self._image.id, await self._watched(step, feeding))
        images.parse_look(self._image, await self._link.run(images.look(self._image, self._tags)))
        return self._over("whole")

    async def forget(self) -> None:
        """Remove from the node what a try that failed has left there."""
        with contextlib.suppress(AgentlessError):
            await self._link.run(self._link.runtime.images.forget(self._image.id))

    async def _load(self, step: _Step) -> None:
        images = self._link.runtime.images
        command = images.load(self._image.id, self._packer)
        images.check_load(step.wanted, await self._watched(step, self._link.session.feed(command, self._archive(step))))

    async def _watched(self, step: _Step, feeding: Coroutine[Any, Any, Result]) -> Result:
        """What comes of it, unless the node does nothing for too long."""
        task = asyncio.create_task(feeding)
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_EVERY))[0]:
                now = self._clock()
                if step.offered is not None and now - step.offered > SILENCE:
                    raise Timeout(f"{self._link.node.name} took nothing of the image for {SILENCE:.0f} s; try again")
                if step.over is not None and now - step.over > APPLY_WITHIN:
                    raise Timeout(
                        f"{self._link.node.name} made no image of what it got for {APPLY_WITHIN:.0f} s; see whether "
                        "its Docker daemon works"
                    )
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _archive(self, step: _Step) -> AsyncIterator[bytes]:
        """An archive of the next layers, up to some size or to the last; its configuration and manifest come last."""
        image, begun, size = self._image, self._at, 0
        at = begun
        while at < len(image.layers) and size < STEP:
            layer = image.layers[at]
            at += 1
            if layer in image.layers[begun : at - 1]:
                continue
            self._say(f"sending layer {at - self._kept} of {len(image.layers) - self._kept}")
            parcel = await self._depot.find(layer)
            head = layers.file(layers.layer_file(layer), parcel.size)
            async for piece in self._offer(step, compressed.pack(self._packer, head)):
                yield piece
            done, passed = self._done, 0
            async for data in self._depot.read(parcel):
                async for piece in self._offer(step, data):
                    yield piece
                passed += len(data)
                self._done = done + parcel.unpacked_at(passed)
                self._say(f"sending layer {at - self._kept} of {len(image.layers) - self._kept}")
            self._done = done + parcel.size
            size += parcel.size
        self._at = at
        step.fed.set()
        last = at == len(image.layers)
        config = await self._depot.configuration() if last else layers.partial(image, at)
        step.wanted = layers.id_of(config)
        if step.before is not None:
            await asyncio.wait({step.before})
            step.before.result()
        if last:
            self._say("verifying")
        head = layers.head_of(config, image.layers[:at], self._tags if last else ())
        async for piece in self._offer(step, compressed.pack(self._packer, head)):
            yield piece
        step.over = self._clock()

    async def _copy(self, step: _Step) -> AsyncIterator[bytes]:
        parcel = await self._depot.find(WHOLE)
        passed = 0
        async for data in self._depot.read(parcel):
            async for piece in self._offer(step, data):
                yield piece
            passed += len(data)
            self._done = parcel.unpacked_at(passed)
            self._say("sending the whole archive")
        step.over = self._clock()

    def _over(self, how: str) -> Sent:
        self._say("done", last=True)
        count, seconds = len(self._image.layers), self._clock() - self._began
        size, lacking = self._image.size, count - self._kept
        return Sent(self._link.node.name, self._image.id, self._sent, size, lacking, count, seconds, how)

    async def _offer(self, step: _Step, data: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            self._first = self._first or self._clock()
            step.offered = self._clock()
            yield piece
            step.offered = None
            self._sent += len(piece)

    def _say(self, step: str, *, last: bool = False) -> None:
        now = self._clock()
        if not last and now - self._told < TELL_EVERY and self._sent:
            return
        self._told = now
        took = now - self._first if self._first is not None else 0.0
        total = self._total()
        rate = eta = None
        if took > RATE_AFTER:
            rate, speed = self._sent / took, self._done / took
            eta = (total - self._done) / speed if total is not None and speed > 0 else None
        self._tell(Progress(self._link.node.name, step, self._done, total, self._sent, rate, eta))

    def _total(self) -> int | None:
        """Bytes of the layers that it lacks; before all have begun to come, about as the engine says of all of them."""
        wanted, parcels = set(self._image.layers[self._kept :]), self._depot.parcels
        if wanted <= parcels.keys():
            return sum(parcels[layer].size for layer in wanted)
        return None if self._kept else max(self._image.size, self._done)
