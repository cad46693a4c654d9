"""Questions to one node: about everything, about one task, about single containers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from agentless.controller.nodes.link.breakdowns import Breakdowns
from agentless.controller.nodes.link.cache import NodeCache
from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.link.limits import INSPECTED
from agentless.controller.nodes.link.sampler import Sampler
from agentless.errors import RuntimeFailed, Timeout, TooMuch, Unreachable
from agentless.model.command import Command, join_sections, split_sections
from agentless.model.containers.claim import named_task
from agentless.model.containers.container import Container
from agentless.model.nodes.node import EngineFacts, with_node
from agentless.ports import Engine
from agentless.remote.session import Session
from agentless.rules.nodes import container_limits

REFRESH_WITHIN = 60.0
"""Seconds for a full look."""
DESCRIBED_WITHIN = 30.0
"""Seconds that the engine gets to describe containers."""
STARTS_WITHIN = 5.0
"""Seconds that it gets for those which it may be starting: it describes them when their start is over, and a driver
that hangs can keep it from that for ever."""


class Inspector:
    """Asks a node for its containers, one question at a time, and writes what it answers into the cache.

    `refreshed_at` is when (Unix seconds, node's clock) the last full look was asked for that named all containers.
    """

    def __init__(
        self, session: Session, engines: NodeEngines, cache: NodeCache, sampler: Sampler, breakdowns: Breakdowns
    ) -> None:
        self.refreshed_at = 0.0
        self._session = session
        self._engines = engines
        self._cache = cache
        self._sampler = sampler
        self._breakdowns = breakdowns
        self._asking = asyncio.Lock()

    async def look(self, task: str, runtime: Engine) -> None:
        """Ask for the container of one task and report it, as present or absent."""
        async with self._asking:
            self._cache.check_online()
            asked = self._cache.now()
            result = await self._session.run(runtime.containers(task))
            runtime.check(result)
            found = runtime.parse_containers(result, self._cache.clock_ahead)
            self._check_excess(found)
            self._cache.listed()
            self._cache.saw(task, found, asked)

    async def look_at(self, containers: Mapping[str, str]) -> None:
        """Ask for these containers together and report the tasks that they are of, or were expected to be of."""
        async with self._asking:
            asked = self._cache.now()
            described = self._described(list(containers), self._cache.clock_ahead)
            found = [each async for some in described for each in some]
            for task in sorted({*containers.values(), *filter(None, map(named_task, found))}):
                others = (each for each in self._cache.of_task(task) if each.id not in containers)
                these = (*others, *(each for each in found if named_task(each) == task))
                self._check_excess(these)
                self._cache.saw(task, these, asked, about=containers)

    async def refresh(self) -> None:
        """Ask for everything in one round trip: GPUs, host, engine, containers."""
        runtime, units = self._engines.runtime, self._engines.units
        async with self._asking:
            asked = self._cache.now()
            sections = (*self._sampler.sections(), *runtime.facts(), *units.facts())
            result = await self._session.run(Command(join_sections(sections), timeout=REFRESH_WITHIN))
            answer = split_sections(result.stdout)
            if len(answer) < len(sections) and (said := result.err.strip()):
                raise Unreachable(with_node(self._cache.name, runtime.complaint(said)))
            engine = await self._inspected(runtime.parse_facts(answer, asked, self._cache.now()))
            beside = units.parse_facts(answer, asked, self._cache.now())
            engine = replace(engine, error=engine.error or beside.error)
            bare = beside.containers and tuple(replace(unit, clock=engine.clock) for unit in beside.containers)
            if engine.containers is not None:
                last = tuple(container for container in self._cache.containers if container.on_node_itself)
                engine = replace(engine, containers=(*engine.containers, *(last if bare is None else bare)))
            seen = self._sampler.with_answer(self._cache.observation, answer, asked)
            seen = replace(seen, error=None, engine=engine)
            self._cache.begun(seen, asked)
            self._cache.observe(seen)
            if engine.containers is not None:
                self._breakdowns.engine_answered()
                self.refreshed_at = asked + engine.clock
                self._cache.saw_all(asked, blind=bare is None)

    async def _inspected(self, engine: EngineFacts) -> EngineFacts:
        """With the containers that it has listed: those that have ended as we know it, and the others asked for."""
        if engine.listed is None:
            return engine
        runtime = self._engines.runtime
        known = {c.id: c for c in self._cache.containers if runtime.has_ended_so(c, engine.listed.get(c.id, ""))}
        found = list(known.values())
        asked = [each for each in engine.listed if each not in known]
        starting = {each for each in asked if engine.listed[each].startswith("Created")}
        try:
            async for some in self._described([each for each in asked if each not in starting], engine.clock):
                found += some
                if problem := container_limits.excess(found):
                    return replace(engine, error=problem)
            found += await self._starting([each for each in asked if each in starting], engine.clock)
            if problem := container_limits.excess(found):
                return replace(engine, error=problem)
        except RuntimeFailed as error:
            return replace(engine, error=str(error))
        return replace(engine, containers=tuple(found), error=engine.error or container_limits.endless(found))

    async def _starting(self, containers: Sequence[str], clock: float) -> tuple[Container, ...]:
        """Likewise those that it may be starting; when it does not say what they are, what is known of them."""
        try:
            described = self._described(containers, clock, within=STARTS_WITHIN)
            return tuple([each async for some in described for each in some])
        except Timeout:
            return tuple(container for container in self._cache.containers if container.id in containers)

    async def _described(
        self, containers: Sequence[str], clock: float, within: float = DESCRIBED_WITHIN
    ) -> AsyncIterator[tuple[Container, ...]]:
        """What the engine knows of them, of some at a time; of fewer where that is more than an answer may be.

        Raises RuntimeFailed with the engine's complaint.
        """
        runtime = self._engines.runtime
        waiting = [containers[at : at + INSPECTED] for at in reversed(range(0, len(containers), INSPECTED))]
        while waiting:
            some = waiting.pop()
            try:
                result = await self._session.run(replace(runtime.inspect(some), timeout=within))
            except TooMuch:
                if len(some) == 1:
                    raise
                half = len(some) // 2
                waiting += [some[half:], some[:half]]
                continue
            found = runtime.parse_containers(result, clock)
            if not runtime.says_gone(result, set(some).difference(c.id for c in found)):
                raise RuntimeFailed(runtime.complaint(result.err))
            yield found

    def _check_excess(self, found: Sequence[Container]) -> None:
        if problem := container_limits.excess((*self._cache.containers, *found)):
            raise RuntimeFailed(f"{self._cache.name}: {problem}")
