"""Envs: their records, what nodes have of them, and locks. `builds`, `moves` and `prune` change them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.errors import AgentlessError, Refused, RuntimeFailed, Unreachable
from agentless.model.images.env import NULL, EnvRecord, EnvRef, ImageFacts, Sight, Version, container_of_env, parse_ref
from agentless.model.nodes.node import unreachable
from agentless.model.tasks.task import Task
from agentless.model.view import EnvVersionView, EnvView
from agentless.ports import Clock, EnvCommands
from agentless.rules.images.envs import env_named, version_named, with_seen_versions
from agentless.rules.views.publish import timestamp
from agentless.stores.state.envs import EnvStore

FRESH = 2.0
"""Seconds for which a look is good enough for a submit: those of a script come many at a time."""

Tell = Callable[[Mapping[str, Any]], None]
"""Takes a line about how an operation goes on; what it may be is in `routes/envs`."""

_log = logging.getLogger(__name__)


class Envs:
    """The records of envs, as true as the last look at the nodes; `sights` is what each had then.

    `silent` are nodes whose engine did not answer the last look: their sight is an earlier one. `programs` counts what
    is open in the build container of an env.
    """

    def __init__(self, store: EnvStore, nodes: Nodes, ledger: Ledger, lookup: Lookup, clock: Clock) -> None:
        self.nodes = nodes
        self.tasks = ledger.tasks
        self.clock = clock
        self._store = store
        self._ledger = ledger
        self._lookup = lookup
        self.records: dict[str, EnvRecord] = store.load()
        self.sights: dict[str, Sight] = {}
        self.silent: set[str] = set()
        self.programs: Counter[str] = Counter()
        self._looked = 0.0
        self._asking = asyncio.Lock()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    # ----------------------------------------------------------------- reading

    async def look(self, *, within: float = 0.0) -> None:
        """Ask all nodes that can be reached what they have, unless that was done `within` so many seconds."""
        async with self._asking:
            if within and 0 <= self.clock.now() - self._looked <= within:
                return
            await self.nodes.heard()
            await self._look(self.online())
            self._looked = self.clock.now()

    async def look_at(self, *links: NodeLink) -> None:
        """Ask these nodes."""
        async with self._asking:
            await self._look(links)

    async def _look(self, links: Iterable[NodeLink]) -> None:
        asked = {link.node.name: link for link in links}
        answers = await asyncio.gather(*map(_seen, asked.values()))
        seen = {name: sight for name, sight in zip(asked, answers, strict=True) if sight is not None}
        self.silent = (self.silent | asked.keys()) - seen.keys()
        keeping = {name for name, link in self.nodes.links.items() if link.runtime.envs}
        self.sights = {name: each for name, each in {**self.sights, **seen}.items() if name in keeping}
        gone = {node: Sight() for node in self._mentioned() - keeping}
        self.remember(with_seen_versions(self.records, {**gone, **seen}, self.clock.now()))
        for name, link in self.nodes.links.items():
            versions = [each for record in self.records.values() for each in record.versions.values()]
            link.image_ids = {each.id: each.ids[name] for each in versions if name in each.ids}

    def _mentioned(self) -> set[str]:
        found = {record.home for record in self.records.values() if record.home}
        return found.union(*(v.nodes for record in self.records.values() for v in record.versions.values()))

    def remember(self, records: Mapping[str, EnvRecord]) -> None:
        """Keep these, on disk if they are others than before."""
        if records != self.records:
            with self._ledger.stores.writing("state"):
                self._store.save(records)
            self.records = dict(records)

    def change(self, name: str, **fields: Any) -> None:
        """Keep another value of a record."""
        record = self.records.get(name, EnvRecord())
        self.remember({**self.records, name: replace(record, **fields)})

    async def resolve(self, text: str) -> tuple[EnvRef, Version]:
        """The version that `NAME` or `NAME:N` means now; raises NotFound, Refused or UsageError."""
        ref = parse_ref(text)
        await self.look(within=FRESH)
        return version_named(self.records, ref)

    def users(self, name: str) -> list[Task]:
        """The live tasks that want this env."""
        tasks = {**self._lookup.others(ended=False), **self.tasks.live}
        return [task for task in tasks.values() if task.live and (ref := ref_of_task(task)) and ref.name == name]

    def used(self) -> set[EnvRef]:
        """The versions that live tasks want."""
        tasks = {**self._lookup.others(ended=False), **self.tasks.live}
        return {ref for task in tasks.values() if task.live and (ref := ref_of_task(task))}

    # ---------------------------------------------------------------- one at a time

    @asynccontextmanager
    async def working(self, name: str, tell: Tell = lambda _: None) -> AsyncIterator[None]:
        """Work on an env, when nobody else does, after a look at the nodes."""
        if self._locks[name].locked():
            tell({"kind": "say", "text": f"waiting for another operation on env {name}"})
        async with self._locks[name]:
            await self.look()
            yield

    def busy(self) -> list[str]:
        """The envs that something is being done to."""
        return [name for name, lock in self._locks.items() if lock.locked()]

    def check_nobody_in(self, name: str) -> None:
        """Raise Refused if somebody works in the build container."""
        if self.programs[name]:
            raise Refused(f"a shell is open in the build container of env {name}; close it first")

    # ------------------------------------------------------------------- nodes

    async def reached(self, node: str, why: str) -> NodeLink:
        """The link to a node that answers; `why` it is needed begins the sentence when it does not."""
        link = self.nodes.link(node)
        await link.ready()
        if not link.online:
            raise Unreachable(f"{why}: {unreachable(node, link.observation.error)}")
        return link

    def online(self) -> list[NodeLink]:
        """The nodes that answer and can keep envs, in the order of the inventory."""
        return [link for link in self.nodes.links.values() if link.online and link.runtime.envs]

    def holder(self, ref: EnvRef, image: str, beside: Iterable[str] = ()) -> NodeLink:
        """A node that has this image and answers; raises with the nodes that have it and do not."""
        version = self.records.get(ref.name, EnvRecord()).versions.get(ref.version or 0)
        names = version.nodes if version and image in version.all_ids else ()
        nodes = [name for name in names if name not in set(beside)]
        for name in nodes:
            if name in self.nodes.links and self.nodes.links[name].online:
                return self.nodes.links[name]
        if not nodes:
            raise RuntimeFailed(
                f"no node has {ref} any more; to see what is left, run: agentless env history {ref.name}"
            )
        raise Unreachable(f"cannot reach any node that has {ref}: {', '.join(nodes)}")

    def check_free(self, link: NodeLink, name: str, ref: EnvRef | None = None) -> None:
        """Raise Refused where a node keeps no envs, or has something of a stranger's by a name of ours."""
        envs_of(link)
        foreign = self.sights.get(link.node.name, Sight()).foreign
        if container_of_env(name) in foreign:
            raise Refused(
                f"{link.node.name} has a container {container_of_env(name)} that agentless did not create; remove or "
                "rename it there, or choose another env name"
            )
        if ref and ref.image in foreign:
            raise Refused(
                f"{link.node.name} has an image {ref.image} that agentless did not create; remove or rename it there"
            )

    async def facts(self, link: NodeLink, image: str) -> ImageFacts | None:
        """How an image is to be run, None when the node has none."""
        words = envs_of(link)
        return words.parse_facts(await link.run(words.facts(image)))

    # -------------------------------------------------------------- publishing

    def views(self) -> list[EnvView]:
        """All envs by name."""
        return [self.view(name) for name in sorted(self.records) if self.records[name].there]

    def view(self, name: str) -> EnvView:
        """One of them; raises NotFound."""
        record = env_named(self.records, name)
        versions = tuple(
            EnvVersionView(
                version=number,
                image=EnvRef(name, number).image,
                id=each.id,
                size_bytes=each.size,
                message=each.message,
                by=each.by,
                at=timestamp(each.at) or "",
                current=number == record.current,
                nodes=each.nodes,
            )
            for number, each in sorted(record.versions.items())
        )
        away = [
            link.node.name for link in self.nodes.links.values() if not link.online or link.node.name in self.silent
        ]
        container = self.sights.get(record.home or "", Sight()).container(name)
        current = next((each for each in versions if each.current), None)
        return EnvView(
            name=name,
            node=record.home,
            state=container.state if container and record.home not in away else None,
            version=current.version if current else None,
            size_bytes=current.size_bytes if current else None,
            nodes=current.nodes if current else (),
            offline=tuple(away),
            versions=versions,
            assumed=record.assumed,
        )

    def assumed(self) -> dict[str, int]:
        """The envs whose current version is only assumed, each with that."""
        return {name: record.current or 0 for name, record in self.records.items() if record.assumed}

    def publish(self, name: str, event: str, cause: str) -> None:
        """Tell that something has happened to an env."""
        self._ledger.tell({"kind": "env", "at": self.clock.now(), "event": event, "cause": cause, "env": name})


def ref_of_task(task: Task) -> EnvRef | None:
    """The version that a task runs in, None if it is in no env."""
    container = task.spec.container
    return None if container is None or container == NULL else parse_ref(container)


def envs_of(link: NodeLink) -> EnvCommands:
    """What is said to a node about envs; raises Refused where it keeps none."""
    if link.runtime.envs is None:
        raise Refused(
            f"{link.node.name} uses {link.node.engine_title}, which does not support envs; choose a node with Docker, "
            "or use --image"
        )
    return link.runtime.envs


async def _seen(link: NodeLink) -> Sight | None:
    try:
        words = envs_of(link)
        return words.parse_look(await link.run(words.look()))
    except AgentlessError as error:
        _log.info("cannot list envs: %s", error)
        return None
