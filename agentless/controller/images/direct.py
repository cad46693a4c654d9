"""Transfers of images without the controller in between: from node to node, or through a shared folder.

What travels is one archive without the layers that all of them have; a try that breaks begins anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping, Sequence

from agentless.controller.images.upload import UploadJob
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError, Refused, RuntimeFailed, Timeout, TooMuch
from agentless.model.command import ANSWER, Command, Result
from agentless.model.images.image import short
from agentless.model.images.transfer import Progress, Sent
from agentless.model.text import Excerpt
from agentless.remote.streams import Stream
from agentless.rules.images import layers

WITHIN = 12 * 3600.0
"""Seconds that a transfer may take."""

Outcomes = dict[str, Sent | AgentlessError]


async def reachable(source: NodeLink, targets: Sequence[NodeLink]) -> list[NodeLink]:
    """The nodes that the source can reach by ssh."""
    images = source.runtime.images
    direct = [link for link in targets if link.node.connection != "local" and not link.node.jump]
    if not direct:
        return []
    result = await source.run(images.reach([link.runtime.images.way() for link in direct]))
    numbers = {int(line) for line in result.out.split() if line.isdecimal()}
    return [link for number, link in enumerate(direct) if number in numbers]


async def straight(job: UploadJob, links: Sequence[NodeLink], kept: int, packer: str | None) -> Outcomes:
    """Send from the source to the others by its own ssh. Raises errors of the source."""
    began = asyncio.get_running_loop().time()
    source, image = job.source, job.image
    near = await reachable(source, links)
    others = [link for link in links if link not in near]
    found: Outcomes = {link.node.name: _unreached(source, link) for link in others}
    targets = [link for link in links if link not in others]
    if not targets:
        return found
    _say(job, targets, f"sending directly from {source.node.name}")
    ways = [link.runtime.images.way(link.runtime.images.load(image.id, packer).script) for link in targets]
    skip = layers.unwanted(image, kept)
    async with source.stream(source.runtime.images.straight(image.id, skip, packer, ways)) as stream:
        lines, words = await _read(stream)
    if "whole" not in lines:
        raise source.runtime.images.save_failed(image.id, words or "\n".join(lines))
    sent = next((int(line[5:]) for line in lines if line.startswith("sent ")), 0)
    for number, link in enumerate(targets):
        said = [line.partition(" ")[2] for line in lines if line.startswith(f"{number} ")]
        code = next((int(line[5:]) for line in said if line.startswith("code ")), 255)
        result = Result(code, "\n".join(said).encode())
        found[link.node.name] = await _taken(job, link, result, (sent, kept, "straight"), began)
    return found


async def shared(job: UploadJob, links: Sequence[NodeLink], kept: int, packer: str | None, folder: str) -> Outcomes:
    """Send through a folder that all of them have. Raises errors of the source."""
    began = asyncio.get_running_loop().time()
    source, image = job.source, job.image
    file = f"{folder.rstrip('/')}/agentless-{short(image.id)}-{secrets.token_hex(8)}.tar{_SUFFIX[packer]}"
    images = source.runtime.images
    try:
        _say(job, links, f"{source.node.name} is writing the image to {folder}")
        async with source.stream(images.share(image.id, layers.unwanted(image, kept), packer, file)) as stream:
            lines, words = await _read(stream)
        if stream.exit_code != 0 or len(lines) != 3 or lines[0] != "whole":
            raise images.save_failed(image.id, words or f"{folder} did not accept an archive")
        digest, size = lines[1], int(lines[2])
        _say(job, links, f"reading the image from {folder}")

        async def take(link: NodeLink) -> Sent | AgentlessError:
            try:
                result = await _streamed(link, link.runtime.images.take(image.id, packer, file, digest))
            except AgentlessError as error:
                return error
            return await _taken(job, link, result, (size, kept, "shared"), began)

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


async def _taken(
    job: UploadJob, link: NodeLink, result: Result, what: tuple[int, int, str], began: float
) -> Sent | AgentlessError:
    """The outcome on a node, which gets the tags now."""
    images, image = link.runtime.images, job.image
    sent, kept, how = what
    try:
        images.check_load(image.id, result)
        place = images.parse_look(image, await link.run(images.look(image, job.tags)))
    except AgentlessError as error:
        return error
    if not place.present:
        return RuntimeFailed(f"{link.node.name} does not have image {short(image.id)} after the transfer; retry")
    seconds = asyncio.get_running_loop().time() - began
    count = len(image.layers)
    return Sent(link.node.name, image.id, sent, image.size, count - kept, count, seconds, how)


def _say(job: UploadJob, links: Sequence[NodeLink], step: str) -> None:
    for link in links:
        job.tell(Progress(link.node.name, step, 0, None, 0, None, None))


def _unreached(source: NodeLink, link: NodeLink) -> Refused:
    return Refused(
        f"{source.node.name} cannot ssh to {link.node.name}: `ssh {link.node.host}` needs a key and a known_hosts "
        "entry there; set these up, or omit --via"
    )
