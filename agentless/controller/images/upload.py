"""One image from a spool to one node: archive after archive, from its lowest layer up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from agentless.controller.images.layer_spool import LayerSpool, SpooledLayer
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError, RuntimeFailed, Timeout
from agentless.model.command import Result
from agentless.model.images.image import Image, ImagePresence, short
from agentless.model.images.transfer import Progress, Sent
from agentless.remote.concurrency import cancel
from agentless.rules.images import blobs, compressed, layers

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
class UploadJob:
    """An image to send, its source and its tags; `tell` gets the progress."""

    image: Image
    source: NodeLink
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


class ImageUpload:
    """Sends the layers that a node lacks; `place` is what it has."""

    def __init__(
        self, job: UploadJob, link: NodeLink, place: ImagePresence, packer: str | None, spool: LayerSpool
    ) -> None:
        self._image, self._tags, self._tell = job.image, job.tags, job.tell
        self._link, self._packer, self._spool = link, packer, spool
        self._containerd = place.containerd
        self._form = (
            blobs.BlobArchive(job.image, place.blobs) if place.containerd else layers.DockerArchive(job.image, job.tags)
        )
        self._kept = self._at = place.kept
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._first: float | None = None
        self._reported_at = 0.0
        self._sent = self._done = 0

    async def run(self) -> Sent:
        """Send layer by layer. Raises errors of the node, of the link, and of the spool.

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
            if self._containerd:
                await self._name(step.wanted)
        finally:
            await cancel(*loads)
        return self._over("layers" if self._kept else "whole")

    async def forget(self) -> None:
        """Remove what a failed try has left on the node."""
        with contextlib.suppress(AgentlessError):
            await self._link.run(self._link.runtime.images.forget(self._image.id))

    async def _load(self, step: _Step) -> None:
        images = self._link.runtime.images
        command = images.load(self._image, self._packer, containerd=self._containerd)
        result = await self._watched(step, self._link.session.feed(command, self._archive(step)))
        images.check_load(step.wanted, result, self._form.sent)

    async def _name(self, loaded: str) -> None:
        """Give the image its tags, now that all of it is there, and remove those that held its layers meanwhile."""
        images = self._link.runtime.images
        place = images.parse_look(self._image, await self._link.run(images.look(self._image, self._tags, loaded)))
        if not place.present:
            raise RuntimeFailed(
                f"{self._link.node.name} does not have image {short(self._image.id)} after the transfer; retry"
            )
        await self.forget()

    async def _watched(self, step: _Step, feeding: Coroutine[Any, Any, Result]) -> Result:
        """The result; raises Timeout if the node does nothing for too long."""
        task = asyncio.create_task(feeding)
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_EVERY))[0]:
                now = self._clock()
                if step.offered is not None and now - step.offered > SILENCE:
                    raise Timeout(f"{self._link.node.name} did not accept image data for {SILENCE:.0f} s; retry")
                if step.over is not None and now - step.over > APPLY_WITHIN:
                    raise Timeout(
                        f"{self._link.node.name} did not create the image within {APPLY_WITHIN:.0f} s; check its "
                        "Docker daemon"
                    )
            return task.result()
        finally:
            await cancel(task)

    async def _archive(self, step: _Step) -> AsyncIterator[bytes]:
        """An archive of the next layers, up to some size or to the last; its configuration and manifest come last."""
        image, begun, size = self._image, self._at, 0
        at = begun
        while at < len(image.layers) and size < STEP:
            layer = image.layers[at]
            at += 1
            if layer in image.layers[begun : at - 1]:
                continue
            words = f"sending layer {at - self._kept} of {len(image.layers) - self._kept}"
            self._say(words)
            spooled = await self._spool.find(layer)
            head = self._form.header(layer, spooled.size)
            async for piece in self._offer(step, compressed.pack(self._packer, head)):
                yield piece
            async for piece in self._content(step, spooled, words):
                yield piece
            size += spooled.size
        self._at = at
        step.fed.set()
        last = at == len(image.layers)
        config = await self._spool.configuration() if last else layers.partial(image, at)
        head, step.wanted = self._form.end(config, at)
        if step.before is not None:
            await asyncio.wait({step.before})
            step.before.result()
        if last:
            self._say("verifying")
        async for piece in self._offer(step, compressed.pack(self._packer, head)):
            yield piece
        step.over = self._clock()

    async def _content(self, step: _Step, spooled: SpooledLayer, words: str) -> AsyncIterator[bytes]:
        done, passed = self._done, 0
        async for data in self._spool.read(spooled):
            async for piece in self._offer(step, data):
                yield piece
            passed += len(data)
            self._done = done + spooled.unpacked_at(passed)
            self._say(words)
        self._done = done + spooled.size

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
        if not last and now - self._reported_at < TELL_EVERY and self._sent:
            return
        self._reported_at = now
        took = now - self._first if self._first is not None else 0.0
        total = self._total()
        rate = eta = None
        if took > RATE_AFTER:
            rate, speed = self._sent / took, self._done / took
            eta = (total - self._done) / speed if total is not None and speed > 0 else None
        self._tell(Progress(self._link.node.name, step, self._done, total, self._sent, rate, eta))

    def _total(self) -> int | None:
        """Bytes to send; an estimate of the engine until all layers have begun to arrive."""
        wanted, known = set(self._image.layers[self._kept :]), self._spool.layers
        if wanted <= known.keys():
            return sum(known[layer].size for layer in wanted)
        return None if self._kept else max(self._image.size, self._done)
