"""Snapshots of VPS: each is a version of the env of its VPS."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from agentless.controller.envs.envs import Envs, envs_of
from agentless.controller.envs.prune import Prune
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.ledger import Ledger
from agentless.controller.to_the_end import to_the_end
from agentless.controller.vps.names import VpsNames
from agentless.errors import AgentlessError, NotFound, Refused, RuntimeFailed
from agentless.model.images.env import EnvRecord, EnvRef, Version, check_message, labels_of_version
from agentless.model.images.snapshot import ON_STOP, check_vps_name, parse_snapshot, snapshot_words, snapshots_of
from agentless.model.tasks.task import Ended, Task
from agentless.model.view import SnapshotView
from agentless.rules.images.envs import next_number, version_named
from agentless.rules.views.publish import timestamp
from agentless.stores.state.vps import OwnSnapshot

_log = logging.getLogger(__name__)


class Snapshots:
    """Makes snapshots: on request, and when a VPS stops that is to have one then."""

    def __init__(self, envs: Envs, prune: Prune, names: VpsNames, ledger: Ledger, bus: EventBus) -> None:
        self._envs = envs
        self._names = names
        self._needed: set[EnvRef] = set()
        self._prune = prune
        self._ledger = ledger
        self._on_stop: dict[str, asyncio.Task[str]] = {}
        bus.subscribe(TaskChanged, self._changed)

    async def take(self, task: Task, message: str, by: str) -> SnapshotView:
        """Save the files of a VPS as they are now; one that runs is paused meanwhile. Mounts are not included."""
        ref, version = await self._take(task, check_message(message), by)
        return _view(task.spec.name or "", ref, version)

    def all(self, vps: str) -> list[SnapshotView]:
        """The snapshots of a VPS, oldest first, as of the last look at the nodes."""
        record = self._envs.records.get(snapshots_of(vps), EnvRecord())
        return [
            _view(vps, EnvRef(snapshots_of(vps), number), version)
            for number, version in sorted(record.versions.items())
        ]

    async def listed(self, vps: str) -> list[SnapshotView]:
        """Likewise, after a look at them."""
        await self._envs.look()
        return self.all(check_vps_name(vps))

    async def resolve(self, text: str, vps: str) -> EnvRef:
        """The snapshot that is meant; raises NotFound with those that there are."""
        await self._envs.look()
        ref = parse_snapshot(text, vps)
        try:
            ref, version = version_named(self._envs.records, ref)
        except (NotFound, Refused):
            there = ", ".join(each.snapshot for each in self.all(vps)) or "none"
            raise NotFound(f"no snapshot {snapshot_words(ref)}; snapshots of {vps}: {there}") from None
        self._envs.holder(ref, version.id)
        return ref

    async def latest(self, task: Task, why: str, by: str) -> EnvRef | None:
        """A snapshot of a VPS as it is now if its node answers, else the last that was made of it, if any."""
        name, link = task.spec.name or "", self._envs.nodes.links.get(task.node or "")
        if await self.settled(task.id) != "":
            if link and link.online and task.container:
                return (await self._take(task, why, by))[0]
            await self._envs.look()
        own = [each for each in self._names.record(name).snapshots if self._is_there(name, each)]
        return EnvRef(snapshots_of(name), own[-1].version) if own else None

    async def settled(self, task_id: str) -> str | None:
        """Wait for the snapshot that is made because a VPS has stopped; returns why it failed. None: there is none."""
        return await asyncio.shield(self._on_stop[task_id]) if task_id in self._on_stop else None

    @contextmanager
    def needing(self, ref: EnvRef) -> Iterator[None]:
        """Keep a snapshot meanwhile."""
        self._needed.add(ref)
        try:
            yield
        finally:
            self._needed.discard(ref)

    # ------------------------------------------------------------------ inside

    async def _take(self, task: Task, message: str, by: str) -> tuple[EnvRef, Version]:
        name = task.spec.name or ""
        if task.placement is None or task.container is None:
            raise Refused(f"VPS {name} is {task.state} and has no container yet")
        link = await self._envs.reached(task.placement.node, f"VPS {name} is on {task.placement.node}")
        envs_of(link)
        env = snapshots_of(name)
        async with self._envs.working(env):
            ref = await to_the_end(self._save(link, task.container, env, message, by))
            made = self._envs.records[env].versions[ref.version or 0]
        self._names.add_snapshot(name, OwnSnapshot(ref.version or 0, made.id, by == ON_STOP))
        self._ledger.publish(task, "snapshot-saved", f"{snapshot_words(ref)}, by {by}")
        return ref, made

    async def _save(self, link: NodeLink, container: str, env: str, message: str, by: str) -> EnvRef:
        envs, words = self._envs, envs_of(link)
        base = words.parse_facts(await link.run(words.base(container)))
        if base is None:
            raise RuntimeFailed(f"{link.node.name} no longer has the image of the container")
        ref = EnvRef(env, next_number(envs.records.get(env, EnvRecord()), envs.sights, env))
        envs.check_free(link, env, ref)
        labels = labels_of_version(ref, message, by, envs.clock.now())
        command = words.snapshot(container, base, ref, labels, secrets.token_hex(8))
        words.parse_named(ref, await link.collect(command))
        await envs.look_at(link)
        return ref

    def _changed(self, change: TaskChanged) -> None:
        task = change.after
        stopped = change.before.stop == "stop" and isinstance(task.status, Ended) and task.container is not None
        if stopped and task.spec.traits.comes_back and task.spec.terms.snapshot_on_stop:
            self._on_stop[task.id] = asyncio.create_task(self._keep(task))
            self._on_stop[task.id].add_done_callback(lambda _: self._on_stop.pop(task.id, None))

    async def _keep(self, task: Task) -> str:
        """Take a snapshot, and remove older ones that were made of it in the same way; returns why that failed."""
        try:
            await self.take(task, "", ON_STOP)
            await self._drop_older(task.spec.name or "", task.spec.terms.snapshot_on_stop)
        except AgentlessError as error:
            _log.warning("VPS %s: snapshot on stop: %s", task.spec.name, error)
            self._ledger.publish(task, "snapshot-failed", str(error))
            return str(error)
        return ""

    async def _drop_older(self, name: str, most: int) -> None:
        for each in [each for each in self._names.record(name).snapshots if each.on_stop][:-most]:
            ref = EnvRef(snapshots_of(name), each.version)
            if ref in self._needed:
                continue
            if self._is_there(name, each):
                await self._prune.remove(ref, ON_STOP, lambda _: None)
            if not self._is_there(name, each):
                self._names.drop_snapshot(name, each)

    def _is_there(self, name: str, snapshot: OwnSnapshot) -> bool:
        """Whether a node has it; another controller may have made one with this number."""
        record = self._envs.records.get(snapshots_of(name), EnvRecord())
        version = record.versions.get(snapshot.version)
        return version is not None and snapshot.image in version.all_ids


def _view(vps: str, ref: EnvRef, version: Version) -> SnapshotView:
    return SnapshotView(
        snapshot=snapshot_words(ref),
        vps=vps,
        image=ref.image,
        size_bytes=version.size,
        message=version.message,
        by=version.by,
        at=timestamp(version.at) or "",
        nodes=version.nodes,
    )
