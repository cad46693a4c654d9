"""An image from one node to others: the source is read once, and each gets the layers that it lacks.

Through the controller, layers lie in a `LayerSpool` meanwhile, from which each node reads at its own pace. What a node
has taken when its link breaks is kept there as an image without a name, so that the next try goes on from it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentless.controller.images.direct import Outcomes, reachable, shared, straight
from agentless.controller.images.source import SharedReads
from agentless.controller.images.upload import ImageUpload, UploadJob
from agentless.controller.nodes.doctor.link_speed import Speeds
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError, LayerMissing, NoAnswer, Refused, RuntimeFailed
from agentless.model.command import Command, Result
from agentless.model.images.image import Image, ImagePresence, short
from agentless.model.images.transfer import Progress, Sent, Via
from agentless.remote.concurrency import cancel

AT_ONCE = 8
"""Nodes that are sent to at the same time, in all."""
TRIES = 3
KNOWN = 256
"""Images whose description is remembered: it never changes."""

SLOW = 12e6
"""Bytes per second to the slowest node below which the nodes themselves are asked for a better way."""
FAST = 40e6
"""The same above which it is not worth while to have gzip compress; zstd always is."""

ReportProgress = Callable[[Progress], None]


def _silent(_: Progress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Way:
    """The requested way; `folder` is the shared folder, "" if there is none."""

    via: Via
    folder: str


class ImageDistribution:
    """Copies images from node to node."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._going: dict[tuple[str, str], asyncio.Event] = {}
        self._speeds = Speeds()
        self._reads = SharedReads()
        self._known: dict[tuple[str, str], Image] = {}

    async def send(
        self,
        image: str,
        source: NodeLink,
        targets: Sequence[NodeLink],
        *,
        tags: Sequence[str],
        tell: ReportProgress = _silent,
        shared_dir: str | None = None,
        via: Via = "auto",
    ) -> dict[str, Sent | AgentlessError]:
        """Bring the image with this id to the targets, which have it with these tags afterwards.

        Gives for each target what it took, or why it failed; raises only what went wrong with the source. `tell` hears
        of the progress. Cancelled, it ends everything that it has begun on the nodes.
        """
        if via == "shared" and not shared_dir:
            raise Refused("the nodes share no folder; set shared_dir under defaults: in the inventory")
        began = asyncio.get_running_loop().time()
        names = tuple(tag if ":" in tag.rpartition("/")[2] else f"{tag}:latest" for tag in tags)
        job = UploadJob(await self._describe(image, source), source, names, tell)
        way = _Way(via, shared_dir or "")
        found: dict[str, Sent | AgentlessError] = {}
        waiting, whole = {link.node.name: link for link in targets}, set[str]()
        for left in reversed(range(TRIES)):
            places = await self._look(job, waiting)
            found |= {name: place for name, place in places.items() if isinstance(place, AgentlessError)}
            found |= {
                name: _present(job, name, place, asyncio.get_running_loop().time() - began)
                for name, place in places.items()
                if isinstance(place, ImagePresence) and place.present
            }
            lacking = {
                name: place for name, place in places.items() if isinstance(place, ImagePresence) and not place.present
            }
            sent = await self._round(job, way, waiting, lacking, whole)
            again = {name for name, outcome in sent.items() if isinstance(outcome, LayerMissing) and left}
            whole |= again if left == 1 else set()
            found |= {name: outcome for name, outcome in sent.items() if name not in again}
            waiting = {name: waiting[name] for name in (*again, *(lacking.keys() - sent.keys()))}
            if not waiting:
                break
        return found | {name: _contended(job, name) for name in waiting}

    # ------------------------------------------------------------------ looking

    async def _describe(self, image: str, source: NodeLink) -> Image:
        key = source.node.name, image
        if key not in self._known:
            images = source.runtime.images
            await source.ready()
            found = images.parse_description(image, await source.collect(images.describe(image)))
            while len(self._known) >= KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[key] = found
        return self._known[key]

    async def _look(self, job: UploadJob, links: Mapping[str, NodeLink]) -> dict[str, ImagePresence | AgentlessError]:
        async def look(link: NodeLink) -> ImagePresence | AgentlessError:
            images = link.runtime.images
            try:
                place = images.parse_look(job.image, await _run(link, images.look(job.image, job.tags)))
                return await self._with_blobs(link, place) if place.containerd and place.kept else place
            except AgentlessError as error:
                return error

        places = await asyncio.gather(*(look(link) for link in links.values()))
        return dict(zip(links, places, strict=True))

    async def _with_blobs(self, link: NodeLink, place: ImagePresence) -> ImagePresence:
        """What the layers that a node has are called in its store; none of them counts if that cannot be said."""
        if place.present:
            return place
        try:
            return replace(place, blobs=(await self._describe(place.nearest, link)).blobs[: place.kept])
        except RuntimeFailed:
            return replace(place, kept=0)

    # ------------------------------------------------------------------ sending

    async def _round(
        self,
        job: UploadJob,
        way: _Way,
        links: Mapping[str, NodeLink],
        places: Mapping[str, ImagePresence],
        whole: set[str],
    ) -> Outcomes:
        """Send to the nodes that lack layers. Where another request is sending the same image, wait for that."""
        busy = [self._going[job.image.id, name] for name in places if (job.image.id, name) in self._going]
        mine = {name: place for name, place in places.items() if (job.image.id, name) not in self._going}
        ended = asyncio.Event()
        self._going |= {(job.image.id, name): ended for name in mine}
        try:
            mine = {name: replace(place, kept=0, blobs=()) if name in whole else place for name, place in mine.items()}
            sent = await self._send(job, way, links, mine) if mine else {}
        finally:
            for name in mine:
                del self._going[job.image.id, name]
            ended.set()
        for other in busy:
            await other.wait()
        return sent

    async def _send(
        self,
        job: UploadJob,
        way: _Way,
        links: Mapping[str, NodeLink],
        places: Mapping[str, ImagePresence],
    ) -> Outcomes:
        """Send by the requested way, or the best one."""
        targets = [(links[name], place) for name, place in places.items()]
        if way.via == "shared":
            return await shared(job, targets, _packer(job.image, places, SLOW), way.folder)
        if way.via == "straight":
            return await straight(job, targets, _packer(job.image, places, SLOW))
        speed = FAST
        if way.via == "auto" or _packer(job.image, places, SLOW) != "zstd":
            speed = await self._speeds.slowest([job.source, *(links[name] for name in places)])
        packer = _packer(job.image, places, speed)
        done: Outcomes = {}
        # An archive straight from a node has all that the node's own `docker save` writes, for containerd's store.
        alike = [links[name] for name, place in places.items() if not place.containerd]
        if way.via == "auto" and speed < SLOW and (near := await reachable(job.source, alike)):
            found: Outcomes = {}
            with contextlib.suppress(RuntimeFailed):  # then through here, like the others
                found = await straight(job, [(link, places[link.node.name]) for link in near], packer)
            done = {name: outcome for name, outcome in found.items() if isinstance(outcome, Sent)}
        if rest := {name: place for name, place in places.items() if name not in done}:
            done |= await self._through(job, links, rest, packer)
        return done

    async def _through(
        self, job: UploadJob, links: Mapping[str, NodeLink], places: Mapping[str, ImagePresence], packer: str | None
    ) -> Outcomes:
        """Send through the controller."""
        async with self._reads.take(job, min(place.kept for place in places.values()), packer) as read:
            uploads = [ImageUpload(job, links[name], place, packer, read.spool) for name, place in places.items()]
            sending = asyncio.gather(*map(self._upload, uploads))
            try:
                both: set[asyncio.Future[Any]] = {read.reading, sending}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if read.failed and not sending.done():
                    self._known.pop((job.source.node.name, job.image.id), None)
                    read.reading.result()
                return dict(zip(places, await sending, strict=True))
            finally:
                await cancel(sending)

    async def _upload(self, upload: ImageUpload) -> Sent | AgentlessError:
        async with self._slots:
            try:
                return await upload.run()
            except AgentlessError as error:
                if not isinstance(error, NoAnswer):
                    await upload.forget()
                return error


async def _run(link: NodeLink, command: Command) -> Result:
    await link.ready()
    return await link.run(command)


def _present(job: UploadJob, node: str, place: ImagePresence, seconds: float) -> Sent:
    return Sent(node, job.image.id, 0, place.size or job.image.size, 0, len(job.image.layers), seconds, "current")


def _packer(image: Image, places: Mapping[str, ImagePresence], speed: float) -> str | None:
    """A compressor that all nodes have and that is faster than the network. zstd is faster than any network."""
    everyone = image.packers.intersection(*(place.packers for place in places.values()))
    if "zstd" in everyone:
        return "zstd"
    return "gzip" if "gzip" in everyone and speed < FAST else None


def _contended(job: UploadJob, node: str) -> Refused:
    return Refused(f"another transfer of image {short(job.image.id)} to {node} did not finish; retry")
