"""Removes envs, and versions that nobody needs; never what is not ours."""

from __future__ import annotations

import re
from typing import Any

from agentless.controller.envs.envs import Envs, Tell, envs_of, ref_of_task
from agentless.controller.envs.moves import Moves
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError, Refused
from agentless.model.caller import Caller
from agentless.model.containers.claim import named_task
from agentless.model.images.env import EnvRef, Sight
from agentless.model.tasks.task_id import is_task_id
from agentless.rules.images.envs import assumed_words, env_named, prunable, version_named


class Prune:
    """Removes envs."""

    def __init__(self, envs: Envs, moves: Moves) -> None:
        self._envs = envs
        self._moves = moves

    async def remove(self, ref: EnvRef, by: Caller | str, tell: Tell) -> dict[str, Any]:
        """Remove an env or a version from all nodes that can be reached; what stays, and why, is in the answer."""
        envs, name = self._envs, ref.name
        async with envs.working(name, tell):
            record = env_named(envs.records, name)
            if ref.version is not None:
                version_named(envs.records, ref)
            users = [task for task in envs.users(name) if ref.version is None or ref_of_task(task) == ref]
            if users:
                ids = ", ".join(task.id for task in users[:3]) + (" and others" if len(users) > 3 else "")
                raise Refused(f"tasks use env {ref}: {ids}; stop them first: agentless stop {users[0].id}")
            if ref.version is None:
                envs.check_nobody_in(name)
            removed: list[dict[str, str]] = []
            stays: list[dict[str, str]] = []
            for link in envs.online():
                try:
                    await self._remove_from(link, ref, removed, stays)
                except AgentlessError as error:
                    stays.append({"node": link.node.name, "what": f"everything on {link.node.name}", "why": str(error)})
            kept = {number: each for number, each in record.versions.items() if ref.version in (None, number)}
            had = {node for version in kept.values() for node in version.nodes}
            had |= {record.home or ""} if ref.version is None else set()
            silent = [node for node in envs.nodes.links if node in had and not envs.nodes.links[node].online]
            stays.extend(
                {"node": node, "what": f"everything on {node}", "why": "cannot reach the node"} for node in silent
            )
            await envs.look_at(*envs.online())
            if ref.version is None:
                envs.change(name, back=None)
            if removed:
                envs.publish(name, "removed", f"{ref}, by {by}")
        return {"env": name, "removed": removed, "stays": stays}

    async def remove_container(self, name: str, by: Caller) -> dict[str, Any]:
        """Remove the build container of an env and keep its versions; the answer is as that of `remove`."""
        envs = self._envs
        async with envs.working(name):
            home = env_named(envs.records, name).home
            if home is None:
                raise Refused(f"env {name} has no build container; nothing removed")
            envs.check_nobody_in(name)
            link = await envs.reached(home, f"the build container of env {name} is on {home}")
            removed: list[dict[str, str]] = []
            await self._remove_container(link, name, removed)
            await envs.look_at(link)
            envs.publish(name, "removed", f"its build container on {home}, by {by}")
        return {"env": name, "removed": removed, "stays": []}

    async def _remove_container(self, link: NodeLink, name: str, removed: list[dict[str, str]]) -> None:
        if container := self._envs.sights.get(link.node.name, Sight()).container(name):
            link.runtime.check(await link.run(link.runtime.remove(container.id, force=True)))
            removed.append({"node": link.node.name, "what": "its build container"})

    async def _remove_from(
        self, link: NodeLink, ref: EnvRef, removed: list[dict[str, str]], stays: list[dict[str, str]]
    ) -> None:
        sight, name = self._envs.sights.get(link.node.name, Sight()), ref.name
        if ref.version is None:
            await self._remove_container(link, name, removed)
        # The newest first: an older one may be what it was made from.
        numbers = [
            each.ref.version or 0
            for each in sight.images
            if each.ref.name == name and ref.version in (None, each.ref.version)
        ]
        for number in sorted(numbers, reverse=True):
            await self._untag(link, EnvRef(name, number).image, removed, stays)

    async def _untag(
        self, link: NodeLink, image: str, removed: list[dict[str, str]], stays: list[dict[str, str]]
    ) -> None:
        result = await link.run(envs_of(link).remove_image(image))
        if result.ok or "no such image" in result.err.lower():
            removed.append({"node": link.node.name, "what": image})
        else:
            why = self._kept_by(link, result.err) or envs_of(link).complaint(result.err)
            stays.append({"node": link.node.name, "what": image, "why": why})

    def _kept_by(self, link: NodeLink, words: str) -> str:
        """Whose container keeps an image by these words of the engine, and what to do; empty if none does."""
        if "dependent child images" in words:
            return "another image there was made from it"
        if not (named := re.search("container ([0-9a-f]{12})", words)):
            return ""
        for each in link.containers:
            if each.id.startswith(named[1]) and (task := named_task(each)) and is_task_id(task):
                return f"the container of task {task} uses it; remove the task first: agentless rm {task}"
        for made in self._envs.sights.get(link.node.name, Sight()).containers:
            if made.id.startswith(named[1]):
                again = f"agentless env rm --build-container {made.env}"
                return f"the build container of env {made.env} was made from it; remove that first: {again}"
        remove = f"{' '.join(link.node.docker)} rm -f {named[1]}"
        return f"container {named[1]}, which is not one of agentless, uses it; to remove that, run there: {remove}"

    async def prune(self, by: Caller, *, dry_run: bool) -> dict[str, Any]:
        """Remove unused versions before the current one, and leftovers of interrupted work."""
        envs = self._envs
        await envs.look()
        removed: list[dict[str, str]] = []
        stays: list[dict[str, str]] = []
        for link in envs.online():
            sight = envs.sights.get(link.node.name, Sight())
            here = {image.ref.name for image in sight.images}
            stays += [
                {"node": link.node.name, "what": f"env {name}", "why": assumed_words(name, number)}
                for name, number in envs.assumed().items()
                if name in here
            ]
            engine = link.observation.engine
            now = envs.clock.now() + (engine.clock if engine else 0.0)
            for name in prunable(
                envs.records, sight, now, used=envs.used(), busy=envs.busy(), coming=self._moves.coming()
            ):
                if dry_run:
                    removed.append({"node": link.node.name, "what": name})
                elif name.startswith("agentless-env-"):
                    link.runtime.check(await link.run(link.runtime.remove(name, force=True)))
                    removed.append({"node": link.node.name, "what": name})
                else:
                    await self._untag(link, name, removed, stays)
        if removed and not dry_run:
            await envs.look_at(*envs.online())
            envs.publish("", "pruned", f"{len(removed)} images and containers, by {by}")
        return {"removed": removed, "stays": stays, "dry_run": dry_run}
