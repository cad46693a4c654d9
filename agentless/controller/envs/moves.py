"""Moves envs: to nodes that need one for a task, to named nodes, to a file and from a file."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from agentless.controller.envs.envs import Envs, Tell, envs_of
from agentless.controller.images.distribution import ImageDistribution
from agentless.controller.nodes.conversation import conversed
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError, Refused, RuntimeFailed, Unreachable, UsageError
from agentless.inventory.inventory import Inventory
from agentless.model.caller import Caller
from agentless.model.images.env import (
    BY,
    ENV,
    MESSAGE,
    VERSION,
    EnvRecord,
    EnvRef,
    ImageFacts,
    Sight,
    Version,
    check_name,
    labels_of_version,
)
from agentless.model.images.transfer import Progress, Sent, Via
from agentless.model.nodes.node import unreachable, with_node
from agentless.model.text import Excerpt
from agentless.rules.images.envs import next_number, version_named


class _Coming:
    """An image on its way to a node, for all who wait for it there."""

    def __init__(self, bring: Callable[[Callable[[Progress], None]], Coroutine[Any, Any, Sent]]) -> None:
        self.listeners: list[Callable[[Progress], None]] = []
        self.work = asyncio.create_task(bring(self._tell))

    def _tell(self, progress: Progress) -> None:
        for listener in list(self.listeners):
            listener(progress)


class Moves:
    """Sends envs."""

    def __init__(self, envs: Envs, distribution: ImageDistribution) -> None:
        self._envs = envs
        self._distribution = distribution
        self._coming: dict[tuple[str, str], _Coming] = {}
        self._shared_dir: str | None = None

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its shared folder, if it has one."""
        self._shared_dir = inventory.shared_dir

    async def bring(self, ref: EnvRef, image: str, link: NodeLink, tell: Callable[[Progress], None]) -> Sent:
        """Bring a version to a node, once however many ask for it. Raises what is in the way.

        It ends when none of them waits any more.
        """
        key = (link.node.name, image)
        coming = self._coming.get(key)
        if coming is None or coming.work.done():
            coming = self._coming[key] = _Coming(partial(self._bring, ref, image, link))
        coming.listeners.append(tell)
        try:
            return await asyncio.shield(coming.work)
        finally:
            coming.listeners.remove(tell)
            if (coming.work.done() or not coming.listeners) and self._coming.get(key) is coming:
                del self._coming[key]
            if not coming.listeners:
                coming.work.cancel()
                await asyncio.gather(coming.work, return_exceptions=True)

    def coming(self) -> list[str]:
        """The ids of the images that are on their way to nodes for tasks, as any node calls them."""
        wanted = {image for _, image in self._coming}
        versions = [each for record in self._envs.records.values() for each in record.versions.values()]
        return [*wanted, *(id_ for each in versions if each.all_ids & wanted for id_ in each.all_ids)]

    async def _bring(self, ref: EnvRef, image: str, link: NodeLink, tell: Callable[[Progress], None]) -> Sent:
        envs = self._envs
        await envs.look()
        name = link.node.name
        self._check_name_is_free(link, ref, image)
        if (version := _version(envs, ref, image)) and name in version.nodes:
            return Sent(name, image, 0, version.size, 0, 0, 0.0, "current")
        source = envs.holder(ref, image, beside=[name])
        found = await self._distribution.send(
            source.id_here(image), source, [link], tags=[ref.image], tell=tell, shared_dir=self._shared_dir
        )
        sent = found[name]
        if isinstance(sent, AgentlessError):
            raise sent
        await envs.look_at(link)
        await self._check_arrived(link, ref, image, source)
        return sent

    async def push(self, ref: EnvRef, nodes: Sequence[str], via: Via, by: Caller, tell: Tell) -> dict[str, Any]:
        """Bring a version to nodes, all if none is named; what became of each."""
        envs = self._envs
        async with envs.working(ref.name, tell):
            ref, version = version_named(envs.records, ref)
            every = [link for link in envs.nodes.links.values() if link.runtime.envs]
            links = [envs.nodes.link(node) for node in dict.fromkeys(nodes)] or every
            await asyncio.gather(*(link.ready() for link in links if nodes))
            done: dict[str, Sent | AgentlessError] = {}
            for link in links:
                name = link.node.name
                if not link.online:
                    done[name] = _unreachable(link)
                elif name in version.nodes:
                    done[name] = Sent(name, version.id, 0, version.size, 0, 0, 0.0, "current")
                else:
                    try:
                        self._check_name_is_free(link, ref, version.id)
                    except AgentlessError as error:
                        done[name] = error
            targets = [link for link in links if link.node.name not in done]
            if targets:
                source = envs.holder(ref, version.id)
                tell({"kind": "say", "text": f"copying {ref} from {source.node.name} to {_names(targets)}"})
                done |= await self._distribution.send(
                    source.id_here(version.id),
                    source,
                    targets,
                    tags=[ref.image],
                    tell=lambda progress: tell({"kind": "progress", **asdict(progress)}),
                    shared_dir=self._shared_dir,
                    via=via,
                )
                await envs.look_at(*targets)
                for link in targets:
                    if isinstance(done[link.node.name], Sent):
                        try:
                            await self._check_arrived(link, ref, version.id, source)
                        except AgentlessError as error:
                            done[link.node.name] = error
                arrived = [each.node for each in done.values() if isinstance(each, Sent) and each.how != "current"]
                envs.publish(ref.name, "pushed", f"{ref} to {', '.join(arrived) or 'no node'}, by {by}")
            rows = [_row(link.node.name, done[link.node.name]) for link in links]
            return {"env": ref.name, "version": ref.version, "size_bytes": version.size, "nodes": rows}

    async def export(self, ref: EnvRef) -> tuple[EnvRef, AsyncIterator[tuple[int, bytes]]]:
        """The archive of a version, as frames, from a node that has it."""
        await self._envs.look()
        ref, version = version_named(self._envs.records, ref)
        link = self._envs.holder(ref, version.id)
        return ref, self._archive(link, link.id_here(version.id))

    async def _archive(self, link: NodeLink, image: str) -> AsyncIterator[tuple[int, bytes]]:
        tail = Excerpt()
        async with link.stream(envs_of(link).export(image)) as stream:
            async for fd, data in stream:
                if fd == 1:
                    yield 1, data
                else:
                    tail.add(data)
        if stream.exit_code != 0:
            raise RuntimeFailed(with_node(link.node.name, envs_of(link).complaint(str(tail))))

    async def take_in(
        self, name: str | None, node: str | None, by: Caller, archive: AsyncIterable[bytes], tell: Tell
    ) -> dict[str, Any]:
        """Make the image in an archive a version: the one that it was, if that can be, else the next of its env.

        `name` is the env, None: as it was called where it was made.
        """
        envs = self._envs
        if name is not None:
            check_name(name)
        await envs.look()
        link = await envs.reached(node, f"cannot copy an env to {node}") if node else first_of(envs.online())
        envs.check_free(link, name or "import")
        mark = secrets.token_hex(8)
        passing = EnvRef(name or "import", None)
        words = envs_of(link)
        tell({"kind": "say", "text": f"to {link.node.name}"})
        async with link.session.dialogue(words.load(words.passing(passing, mark), mark)) as shell:
            loaded = words.parse_loaded(await conversed(shell, mark, archive))
        # Now it is there, under a passing name: that goes, whoever listens.
        return await asyncio.shield(self._named(link, passing, loaded, mark, name, by))

    async def _named(
        self, link: NodeLink, passing: EnvRef, loaded: ImageFacts, mark: str, name: str | None, by: Caller
    ) -> dict[str, Any]:
        envs, words = self._envs, envs_of(link)
        try:
            name = check_name(name or loaded.labels.get(ENV) or "")
        except UsageError:
            await link.run(words.remove_image(words.passing(passing, mark)))
            raise UsageError(
                "the archive does not name its env; specify a name: agentless env import FILE NAME"
            ) from None
        async with envs.working(name):
            versions = envs.records.get(name, EnvRecord()).versions
            same = next((n for n, each in versions.items() if each.is_image(loaded.id, loaded.content)), None)
            ref, labels = self._place(name, loaded, by) if same is None else (EnvRef(name, same), None)
            known = same is not None and self._has(link, ref)
            if known:
                await link.run(words.remove_image(words.passing(passing, mark)))
                made = loaded
            else:
                envs.check_free(link, name, ref)
                command = words.adopt(ref, labels, words.passing(passing, mark))
                made = words.parse_named(ref, await link.run(command))
            await envs.look_at(link)
        if not known:
            envs.publish(name, "imported", f"{ref} on {link.node.name}, by {by}")
        return {
            "env": name, "version": ref.version, "node": link.node.name, "size_bytes": made.size, "new": not known,
        }  # fmt: skip

    def _place(self, name: str, loaded: ImageFacts, by: Caller) -> tuple[EnvRef, dict[str, str] | None]:
        """The number it gets, and the labels that it needs for that; None: it has them."""
        envs = self._envs
        record = envs.records.get(name, EnvRecord())
        number = loaded.labels.get(VERSION, "")
        free = next_number(record, envs.sights, name)
        if loaded.labels.get(ENV) == name and number.isascii() and number.isdigit() and free <= int(number) < 10**9:
            return EnvRef(name, int(number)), None
        ref = EnvRef(name, free)
        was = f"{loaded.labels[ENV]}:{number}" if loaded.labels.get(ENV) and number else "an archive"
        message = loaded.labels.get(MESSAGE) or f"imported from {was}"
        maker = loaded.labels.get(BY) or by.name
        return ref, labels_of_version(ref, message, maker, envs.clock.now())

    def _has(self, link: NodeLink, ref: EnvRef) -> bool:
        sight = self._envs.sights.get(link.node.name, Sight())
        return any(image.ref == ref for image in sight.images)

    def _check_name_is_free(self, link: NodeLink, ref: EnvRef, image: str) -> None:
        """Raise Refused where the node has another image of this name."""
        self._envs.check_free(link, ref.name, ref)
        sight, version = self._envs.sights.get(link.node.name, Sight()), _version(self._envs, ref, image)
        other = next((each for each in sight.images if each.ref == ref), None)
        if other and not (version.is_image(other.id, other.content) if version else other.id == image):
            raise Refused(
                f"{link.node.name} has a different {ref}, by {other.by or 'somebody'}: two controllers used the same "
                "number; save the env again to get a new number"
            )

    async def _check_arrived(self, link: NodeLink, ref: EnvRef, image: str, source: NodeLink) -> None:
        """Compare what the target has with the version: if it is another image, it loses the name, and this raises."""
        envs, node = self._envs, link.node.name
        sight, version = envs.sights.get(node, Sight()), _version(envs, ref, image)
        other = next((each for each in sight.images if each.ref == ref), None)
        same = version is None or other is None or version.is_image(other.id, other.content)
        if same and ref.image not in sight.foreign:
            return
        await link.run(envs_of(link).remove_image(ref.image))
        await envs.look_at(link)
        if version and not version.content:
            raise RuntimeFailed(
                f"cannot check that {node} received {ref}, so it was removed there: not all nodes that have it "
                f"({', '.join(version.nodes)}) answer, or they describe it differently; save the env again to get a "
                "new version"
            )
        raise RuntimeFailed(
            f"{source.node.name} sent {node} a different image than {ref}, which was removed there; check who uses "
            f"Docker on {source.node.name}"
        )


def _version(envs: Envs, ref: EnvRef, image: str) -> Version | None:
    """The version, if its image is the one that some node calls so."""
    version = envs.records.get(ref.name, EnvRecord()).versions.get(ref.version or 0)
    return version if version and image in version.all_ids else None


def _unreachable(link: NodeLink) -> AgentlessError:
    """What to say of a node that does not answer."""
    return link.failure or Unreachable(unreachable(link.node.name, link.observation.error))


def first_of(links: Iterable[NodeLink]) -> NodeLink:
    """The first node; raises Unreachable when none answers."""
    for link in links:
        return link
    raise Unreachable("cannot reach any node with Docker; to see why, run: agentless doctor")


def _row(node: str, sent: Sent | AgentlessError) -> dict[str, Any]:
    if isinstance(sent, AgentlessError):
        return {"node": node, "error": str(sent), "exit_code": sent.exit_code}
    return {**asdict(sent), "error": None, "exit_code": 0}


def _names(links: Iterable[NodeLink]) -> str:
    return ", ".join(link.node.name for link in links)
