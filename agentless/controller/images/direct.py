"""Transfers of images without the controller in between: from node to node, or through a shared folder.

What travels is one archive without the layers that all of them have; a try that breaks begins anew. It is all of the
image as soon as one of them uses containerd's store: such an archive can be cut only by who reads its manifest.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentless.controller.images.upload import UploadJob
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError, Refused, RuntimeFailed, Timeout, TooMuch
from agentless.model.command import ANSWER, Command, Result
from agentless.model.images.image import ImagePresence, short
from agentless.model.images.transfer import Progress, Sent
from agentless.model.text import Excerpt
from agentless.remote.streams import Stream
from agentless.rules.images import layers

WITHIN = 12 * 3600.0
"""Seconds that a transfer may take."""

Outcomes = dict[str, Sent | AgentlessError]
_ANY = ("sha256:",)
"""Any blob that a node misses is one that was sent, since all were."""
Target = tuple[NodeLink, ImagePresence]
"""A node, and what it has of the image."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """What was sent to a node and how, since when, and which nodes have containerd's store."""

    sent: int
    kept: int
    how: str
    began: float
    into: frozenset[str]


async def reachable(source: NodeLink, targets: Sequence[NodeLink]) -> list[NodeLink]:
    """The nodes that the source can reach by ssh."""
    images = source.runtime.images
    direct = [link for link in targets if link.node.connection != "local" and not link.node.jump]
    if not direct:
        return []
    result = await source.run(images.reach([link.runtime.images.way() for link in direct]))
    numbers = set(_numbers(result.out.split()))
    return [link for number, link in enumerate(direct) if number in numbers]


async def straight(job: UploadJob, places: Sequence[Target], packer: str | None) -> Outcomes:
    """Send from the source to the others by its own ssh. Raises errors of the source."""
    began = asyncio.get_running_loop().time()
    source, image, kept = job.source, job.image, _kept(places)
    links, into = [link for link, _ in places], _into(places)
    near = await reachable(source, links)
    others = [link for link in links if link not in near]
    found: Outcomes = {link.node.name: _unreached(source, link) for link in others}
    targets = [link for link in links if link not in others]
    if not targets:
        return found
    _say(job, targets, f"sending directly from {source.node.name}")
    ways = [
        link.runtime.images.way(link.runtime.images.take(image, packer, None, containerd=link.node.name in into).script)
        for link in targets
    ]
    skip = layers.unwanted(image, kept)
    async with source.stream(source.runtime.images.straight(image.id, skip, packer, ways)) as stream:
        lines, words = await _read(stream)
    if "whole" not in lines:
        raise source.runtime.images.save_failed(image.id, words or "\n".join(lines))
    sent = _numbers(lines, "sent ")
    if not sent:
        raise RuntimeFailed(f"{source.node.name} gave an answer that cannot be read")
    for number, link in enumerate(targets):
        said = [line.partition(" ")[2] for line in lines if line.startswith(f"{number} ")]
        result = Result(next(iter(_numbers(said, "code ")), 255), "\n".join(said).encode())
        found[link.node.name] = await _taken(job, link, result, _Taken(sent[0], kept, "straight", began, into))
    return found


async def shared(job: UploadJob, places: Sequence[Target], packer: str | None, folder: str) -> Outcomes:
    """Send through a folder that all of them have. Raises errors of the source."""
    began = asyncio.get_running_loop().time()
    source, image, kept = job.source, job.image, _kept(places)
    links, into = [link for link, _ in places], _into(places)
    file = f"{folder.rstrip('/')}/agentless-{short(image.id)}-{secrets.token_hex(8)}.tar{_SUFFIX[packer]}"
    images = source.runtime.images
    try:
        _say(job, links, f"{source.node.name} is writing the image to {folder}")
        async with source.stream(images.share(image.id, layers.unwanted(image, kept), packer, file)) as stream:
            lines, words = await _read(stream)
        size = _numbers(lines[1:])
        if stream.exit_code != 0 or len(lines) != 2 or lines[0] != "whole" or not size:
            raise images.save_failed(image.id, words or f"{folder} did not accept an archive")
        _say(job, links, f"reading the image from {folder}")

        async def take(link: NodeLink) -> Sent | AgentlessError:
            try:
                containerd = link.node.name in into
                result = await _streamed(link, link.runtime.images.take(image, packer, file, containerd=containerd))
            except AgentlessError as error:
                return error
            return await _taken(job, link, result, _Taken(size[0], kept, "shared", began, into))

        outcomes = await asyncio.gather(*(take(link) for link in links))
        return {link.node.name: outcome for link, outcome in zip(links, outcomes, strict=True)}
    finally:
        await asyncio.shield(_drop(file, [source, *links]))


_SUFFIX: Mapping[str | None, str] = {None: "", "zstd": ".zst", "gzip": ".gz"}


async def _drop(file: str, links: Sequence[NodeLink]) -> None:
    """Remove the file, by the first node that answers."""
    for link in links:
        with contextlib.suppress(AgentlessError):
            await link.run(link.runtime.images.drop(file))
            return


async def _streamed(link: NodeLink, command: Command) -> Result:
    """Run a command that takes long; it ends with the link."""
    async with link.stream(command) as stream:
        out = {1: Excerpt(0, 4000), 2: Excerpt(0, 4000)}
        try:
            async with asyncio.timeout(WITHIN):
                async for fd, data in stream:
                    out[fd].add(data)
        except TimeoutError:
            raise Timeout(f"{link.node.name} did not receive the image within {WITHIN / 3600:.0f} hours") from None
    return Result(stream.exit_code or 0, bytes(out[1]), bytes(out[2]))


async def _read(stream: Stream) -> tuple[list[str], str]:
    """The lines of its standard output, and the end of its standard error."""
    out, err = b"", Excerpt()
    try:
        async with asyncio.timeout(WITHIN):
            async for fd, data in stream:
                if fd != 1:
                    err.add(data)
                    continue
                out += data
                if len(out) > ANSWER:
                    raise TooMuch(f"the node sent more than {ANSWER >> 20} MiB of messages about the image; gave up")
    except TimeoutError:
        raise Timeout(f"the image was not sent within {WITHIN / 3600:.0f} hours; gave up") from None
    return [line.strip() for line in out.decode("utf-8", "replace").splitlines()], str(err)


def _numbers(lines: Sequence[str], word: str = "") -> list[int]:
    """The numbers of the lines that are this word and a number; no size has more than 15 digits."""
    found = (re.fullmatch(f"{word}([0-9]{{1,15}})", line) for line in lines)
    return [int(match[1]) for match in found if match]


async def _taken(job: UploadJob, link: NodeLink, result: Result, what: _Taken) -> Sent | AgentlessError:
    """The outcome on a node, which gets the tags now."""
    images, image, loaded = link.runtime.images, job.image, ""
    try:
        if link.node.name in what.into:
            loaded = images.loaded_id(result)
            images.check_load(loaded or image.id, result, _ANY)
            there = images.parse_description(loaded, await link.collect(images.describe(loaded)))
            if there.config != image.names[-1]:
                return RuntimeFailed(f"{link.node.name} loaded image {short(image.id)} under another ID")
        else:
            images.check_load(image.names[-1], result)
        place = images.parse_look(image, await link.run(images.look(image, job.tags, loaded)))
        await link.run(images.forget(image.id))  # what earlier tries through the controller have left
    except AgentlessError as error:
        return error
    if not place.present:
        return RuntimeFailed(f"{link.node.name} does not have image {short(image.id)} after the transfer; retry")
    seconds = asyncio.get_running_loop().time() - what.began
    count = len(image.layers)
    return Sent(link.node.name, image.id, what.sent, image.size, count - what.kept, count, seconds, what.how)


def _kept(places: Sequence[Target]) -> int:
    return min(0 if place.containerd else place.kept for _, place in places)


def _into(places: Sequence[Target]) -> frozenset[str]:
    return frozenset(link.node.name for link, place in places if place.containerd)


def _say(job: UploadJob, links: Sequence[NodeLink], step: str) -> None:
    for link in links:
        job.tell(Progress(link.node.name, step, 0, None, 0, None, None))


def _unreached(source: NodeLink, link: NodeLink) -> Refused:
    return Refused(
        f"{source.node.name} cannot ssh to {link.node.name}: `ssh {link.node.host}` needs a key and a known_hosts "
        "entry there; set these up, or omit --via"
    )
