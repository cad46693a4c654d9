"""Envs in the making: a build container, programs in it, and the versions that are made of it or of a Dockerfile."""

from __future__ import annotations

import asyncio
import codecs
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentless.controller.envs.envs import Envs, Tell, envs_of
from agentless.controller.envs.moves import Moves, first_of
from agentless.controller.nodes.conversation import conversed
from agentless.controller.nodes.endings import Endings
from agentless.controller.nodes.login import Login
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.program import Place, Program, started
from agentless.controller.to_the_end import to_the_end
from agentless.errors import AgentlessError, NotFound, Refused, RuntimeFailed, UsageError
from agentless.model.caller import Caller
from agentless.model.containers.claim import TASK
from agentless.model.images.env import (
    BuildContainer,
    EnvRecord,
    EnvRef,
    FileChanges,
    ImageFacts,
    Sight,
    check_message,
    check_name,
    is_ours,
    labels_of_version,
    parse_ref,
)
from agentless.model.terminal import Attachment
from agentless.rules.images.envs import env_named, next_number, version_named


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a build: the Dockerfile's path in the context, the images of ours that it begins with."""

    dockerfile: str
    bases: tuple[str, ...] = ()
    node: str | None = None
    message: str = ""


class Builds:
    """Makes envs and their versions. What it has begun to change, it brings to an end, whoever has gone meanwhile."""

    def __init__(self, envs: Envs, moves: Moves) -> None:
        self._envs = envs
        self._moves = moves
        self._endings = Endings(lambda _: False)

    async def create(self, name: str, image: str, node: str | None, by: Caller, tell: Tell) -> dict[str, Any]:
        """Make a build container of an image, which is pulled if the node lacks it."""
        check_name(name)
        envs = self._envs
        async with envs.working(name, tell):
            record = envs.records.get(name, EnvRecord())
            if record.there:
                raise Refused(f"env {name} already exists; to see it, run: agentless env history {name}")
            link = await self._place(node, None if is_ours(image) else image)
            envs.check_free(link, name)
            base = await self._base(link, image, tell)
            if base.labels.get(TASK):
                raise Refused(
                    f"image {image} was made from a task's container, so its labels would claim the GPUs of that "
                    "task; use the task's own image as base"
                )
            await to_the_end(self._make(link, name, base))
            for volume in base.volumes:
                tell({"kind": "say", "text": f"{volume} is a volume of the image: versions do not include its files"})
            envs.publish(name, "created", f"from {image} on {link.node.name}, by {by}")
        return {"env": name, "node": link.node.name, "image": image}

    @asynccontextmanager
    async def open(self, name: str, command: Sequence[str], attached: Attachment, by: Caller) -> AsyncIterator[Program]:
        """A program in the build container, as `Terminals.open`; without a container one is made of the env."""
        async with self._entered(name) as place, started(place, command, attached) as program:
            self._envs.publish(name, "shell-opened", f"agentless env shell, by {by}")
            yield program

    @asynccontextmanager
    async def log_in(self, name: str, by: Caller) -> AsyncIterator[Login]:
        """Let somebody run any number of programs in the build container."""
        async with self._entered(name) as place:
            yield Login(place, partial(self._tell, name, by))

    @asynccontextmanager
    async def _entered(self, name: str) -> AsyncIterator[Place]:
        """The build container, which stays while somebody is in it."""
        envs = self._envs
        async with envs.working(name):
            link, container = await self._container(name)
            envs.programs[name] += 1
        try:
            yield Place(link, link.runtime, container.id, self._endings)
        finally:
            envs.programs[name] -= 1

    def _tell(self, name: str, by: Caller, event: str, words: str) -> None:
        self._envs.publish(name, event, f"agentless ssh, by {by}: {words}")

    async def save(self, name: str, message: str, by: Caller, tell: Tell) -> dict[str, Any]:
        """Make the build container as it is now the next version."""
        message, envs = check_message(message), self._envs
        async with envs.working(name, tell):
            record = env_named(envs.records, name)
            link, container = await self._existing(name)
            base = await self._image_of(link, container)
            changes = await self._changes(link, container)
            if not changes and record.versions:
                return {"env": name, "version": None, "changes": str(changes)}
            return await to_the_end(self._save(link, name, container, base, changes, message, by, tell))

    async def start(self, name: str, by: Caller) -> dict[str, Any]:
        """Start the build container; of an env that has none, it is made of the current version."""
        envs = self._envs
        async with envs.working(name):
            home = env_named(envs.records, name).home
            before = envs.sights.get(home or "", Sight()).container(name)
            link, _ = await self._container(name)
            changed = before is None or before.state != "running"
            if changed:
                envs.publish(name, "started", f"the build container on {link.node.name}, by {by}")
        return {"env": name, "node": link.node.name, "changed": changed}

    async def stop(self, name: str, by: Caller) -> dict[str, Any]:
        """Stop the build container, with the programs in it; raises Refused if a shell is open in it."""
        envs = self._envs
        async with envs.working(name):
            link, container = await self._existing(name)
            envs.check_nobody_in(name)
            changed = container.state == "running"
            if changed:
                link.runtime.check(await link.run(envs_of(link).stop(container.id)))
                await envs.look_at(link)
                envs.publish(name, "stopped", f"the build container on {link.node.name}, by {by}")
        return {"env": name, "node": link.node.name, "changed": changed}

    async def build(
        self, name: str, wish: Wish, by: Caller, context: AsyncIterable[bytes], tell: Tell
    ) -> dict[str, Any]:
        """Build the context that comes in, on a node, as the next version; its output is told as it comes."""
        check_name(name)
        message, envs = check_message(wish.message), self._envs
        async with envs.working(name, tell):
            record = envs.records.get(name, EnvRecord())
            link = await self._place(wish.node or record.home, None)
            envs.check_free(link, name)
            for base in wish.bases:
                if ":" not in base:
                    raise UsageError(f"base {base} has no version; add one to the FROM line, such as {base}:1")
                await self._base(link, base, tell)
            ref = EnvRef(name, next_number(record, envs.sights, name))
            labels = labels_of_version(ref, message, by.name, envs.clock.now())
            mark, words = secrets.token_hex(8), envs_of(link)
            tell({"kind": "say", "text": f"building {ref} on {link.node.name}"})

            async with link.session.dialogue(words.build(ref, wish.dockerfile, labels, mark)) as shell:
                made = words.parse_built(ref, await conversed(shell, mark, context, _printer(tell)))
            await envs.look_at(link)
            envs.publish(name, "built", f"{ref} on {link.node.name}, by {by}")
            kept = await self._follow(name, ref, made)
        return {"env": name, "version": ref.version, "node": link.node.name, "size_bytes": made.size, "kept": kept}

    async def rollback(self, ref: EnvRef, by: Caller, tell: Tell, *, force: bool) -> dict[str, Any]:
        """Make an older version the current one, the one before it if none is named, and reset the build container."""
        envs = self._envs
        async with envs.working(ref.name, tell):
            record = env_named(envs.records, ref.name)
            if ref.version is None:
                before = [number for number in record.versions if number < (record.current or 0)]
                if not before:
                    raise Refused(f"env {ref.name} has no version before the current one")
                ref = EnvRef(ref.name, max(before))
            ref, version = version_named(envs.records, ref)
            number = ref.version or 0
            back = None if number == record.highest else (number, record.highest)
            envs.change(ref.name, back=back, unsettled=False)
            envs.publish(ref.name, "rolled-back", f"{ref} is the current version, by {by}")
            facts = ImageFacts(version.id, version.size)
            kept = await self._follow(ref.name, ref, facts, force=force)
        return {"env": ref.name, "version": ref.version, "kept": kept}

    # ------------------------------------------------------------------ inside

    async def _container(self, name: str) -> tuple[NodeLink, BuildContainer]:
        """The build container, running; of an env that has none it is made of the current version."""
        envs = self._envs
        record = env_named(envs.records, name)
        if record.home is None:
            ref, version = version_named(envs.records, EnvRef(name))
            link = envs.holder(ref, version.id)
            envs.check_free(link, name)
            await to_the_end(self._make(link, name, await self._known(link, link.id_here(version.id))))
            return link, _container_of(envs, link, name)
        link, container = await self._existing(name)
        if container.state != "running":
            link.runtime.check(await link.run(envs_of(link).start(container.id)))
            await envs.look_at(link)
        return link, container

    async def _existing(self, name: str) -> tuple[NodeLink, BuildContainer]:
        """The build container, whatever its state; raises Refused if there is none."""
        envs = self._envs
        home = env_named(envs.records, name).home
        if home is None:
            raise Refused(f"env {name} has no build container; to create one, run: agentless env shell {name}")
        link = await envs.reached(home, f"the build container of env {name} is on {home}")
        return link, _container_of(envs, link, name)

    async def _make(self, link: NodeLink, name: str, image: ImageFacts, old: str | None = None) -> None:
        words = envs_of(link)
        words.parse_create(await link.run(words.create(name, image, old)))
        await self._envs.look_at(link)

    async def _save(
        self,
        link: NodeLink,
        name: str,
        container: BuildContainer,
        base: ImageFacts,
        changes: FileChanges,
        message: str,
        by: Caller,
        tell: Tell,
    ) -> dict[str, Any]:
        envs, words = self._envs, envs_of(link)
        ref = EnvRef(name, next_number(envs.records[name], envs.sights, name))
        envs.check_free(link, name, ref)
        labels = labels_of_version(ref, message, by.name, envs.clock.now())
        tell({"kind": "say", "text": f"saving {ref} on {link.node.name}"})
        command = words.save(container.id, base, ref, labels, secrets.token_hex(8))
        made = words.parse_named(ref, await link.collect(command))
        await envs.look_at(link)
        envs.publish(name, "saved", f"{ref} on {link.node.name}, by {by}")
        return {
            "env": name,
            "version": ref.version,
            "node": link.node.name,
            "size_bytes": made.size,
            "added_bytes": max(0, made.size - base.size),
            "changes": str(changes),
            "paths": changes.paths,
            "kept": await self._refreshed(link, name, container, base, made),
        }

    async def _refreshed(
        self, link: NodeLink, name: str, container: BuildContainer, base: ImageFacts, made: ImageFacts
    ) -> str | None:
        """Make the build container anew of what was saved, so that the next version holds only what is new from here.

        Why that was not done, None if it was or need not be: the version is there in either case.
        """
        try:
            if await self._in_use(link, name, container):
                return (
                    "its build container was kept: programs are running in it; the next version includes these "
                    "changes too"
                )
            if not base.volumes:
                await self._make(link, name, made, container.id)
        except AgentlessError as error:
            return f"its build container was not recreated: {error}"
        return None

    async def _follow(self, name: str, ref: EnvRef, image: ImageFacts, *, force: bool = False) -> str | None:
        """Make the build container anew from a version, unless something would be lost: then why it was not."""
        envs = self._envs
        home = envs.records[name].home
        if home is None:
            return None
        link = envs.nodes.links.get(home)
        if link is None or not link.online:
            return f"its build container is unchanged: cannot reach {home}"
        container = _container_of(envs, link, name)
        if container.image == link.id_here(image.id) and not force:
            return None
        base = await self._image_of(link, container)
        changes = await self._changes(link, container)
        again = f"to discard that, run: agentless env rollback {ref} --force"
        if not force and (changes or base.volumes):
            return f"its build container is unchanged: it has unsaved changes ({changes}); {again}"
        if not force and await self._in_use(link, name, container):
            return f"its build container is unchanged: programs are running in it; {again}"
        if await envs.facts(link, link.id_here(image.id)) is None:
            await self._moves.bring(ref, image.id, link, lambda _: None)
        await to_the_end(self._make(link, name, await self._known(link, link.id_here(image.id)), container.id))
        return None

    async def _in_use(self, link: NodeLink, name: str, container: BuildContainer) -> bool:
        if self._envs.programs[name]:
            return True
        if container.state != "running":
            return False
        words = envs_of(link)
        return bool(words.parse_programs(await link.run(words.programs(container.id))))

    async def _changes(self, link: NodeLink, container: BuildContainer) -> FileChanges:
        words = envs_of(link)
        return words.parse_diff(await link.run(words.diff(container.id)))

    async def _image_of(self, link: NodeLink, container: BuildContainer) -> ImageFacts:
        return await self._known(link, container.image)

    async def _known(self, link: NodeLink, image: str) -> ImageFacts:
        found = await self._envs.facts(link, image)
        if found is None:
            raise RuntimeFailed(f"{link.node.name} no longer has image {image}")
        return found

    async def _place(self, node: str | None, image: str | None) -> NodeLink:
        """The node that is named, else the first that answers and has the image, else the first that answers."""
        envs = self._envs
        if node is not None:
            return await envs.reached(node, f"{node} was requested")
        links = envs.online()
        if image is not None:
            found = await asyncio.gather(*(envs.facts(link, image) for link in links), return_exceptions=True)
            links = [link for link, facts in zip(links, found, strict=True) if isinstance(facts, ImageFacts)] or links
        return first_of(links)

    async def _base(self, link: NodeLink, image: str, tell: Tell) -> ImageFacts:
        """The image that is begun with: pulled if it is missing; one of ours is brought from another node."""
        envs = self._envs
        if is_ours(image):
            ref, version = version_named(envs.records, parse_ref(image.lower().rpartition("agentless/")[2]))
            if link.node.name not in version.nodes:
                tell({"kind": "say", "text": f"copying {ref} to {link.node.name}"})
                await self._moves.bring(ref, version.id, link, lambda _: None)
            return await self._known(link, link.id_here(version.id))
        found = await envs.facts(link, image)
        if found is None:
            tell({"kind": "say", "text": f"pulling {image} on {link.node.name}"})
            await link.pull(image)
            found = await self._known(link, image)
        return found


def _container_of(envs: Envs, link: NodeLink, name: str) -> BuildContainer:
    container = envs.sights.get(link.node.name, Sight()).container(name)
    if container is None:
        raise NotFound(f"the build container of env {name} is no longer on {link.node.name}; retry")
    return container


def _printer(tell: Tell) -> Callable[[bytes], None]:
    """Tells the output of a program as text; a character may come in two pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def heard(data: bytes) -> None:
        if text := decoder.decode(data.translate(None, b"\0\r")):
            tell({"kind": "output", "text": text})

    return heard
