"""The link to one node: keeps it connected, sampled and watched, and holds the last that was heard of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from agentless.controller.nodes.shared_streams import Reader, SharedStreams
from agentless.errors import (
    AgentlessError,
    AuthFailed,
    HostKeyRejected,
    NodeBroken,
    NoSession,
    RuntimeFailed,
    Timeout,
    TooMuch,
    Unreachable,
)
from agentless.model.command import SECTION, Command, Result, join_sections, split_sections
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.node import Breakdown, EngineFacts, NodeConfig, unreachable
from agentless.model.tasks.claim import claim_of
from agentless.model.tasks.container import Container, is_container_id
from agentless.model.tasks.task import Task
from agentless.model.text import both_ends
from agentless.ports import Clock, ContainerEngine, Engine, HostEngine, Probe
from agentless.remote import host_facts
from agentless.remote.session import Allowance, Session, Stream, backoff
from agentless.rules.nodes import breakdown, container_limits
from agentless.rules.nodes.exclusion import recognised
from agentless.rules.nodes.twins import Boot, boot_of

SAMPLE_EVERY = 2.0
"""Seconds between two samples of a node."""
SAMPLE_SOON = 0.5
"""Seconds between two samples of a node on which somebody waits for a GPU that a stranger uses."""
REFRESH_EVERY = 60.0
"""Seconds between two full looks at a node, in case an event was missed."""
ENGINE_RETRY = 2.0
"""Seconds between two looks at a node whose engine does not answer."""
RESTS = 5
"""So many times as long as such a look took it is left alone: one that says a lot, or slowly, is not asked for ever."""
INSPECTED = 200
"""Containers that the engine is asked about at once."""
DESCRIBED_WITHIN = 30.0
"""Seconds that it gets to describe them."""
STARTS_WITHIN = 5.0
"""Seconds that the engine gets to describe containers which it may be starting: it does when their start is over, and a
driver that hangs can keep it from that for ever."""
OVERLAP = 5.0
"""Seconds before the last full look from which on events are asked for: none may fall between the two."""
REJECTED_RETRY = 60.0
"""Seconds before a server that rejected us, or that we rejected, is tried again unasked: hammering gets one banned.

So it is with one that said too much: to hear all that again at once would be the load that it was ended for."""
HELD = 30.0
"""Seconds that a link must have held for the next try after a break to be a first one.

A server that drops us soon after each login is not to be called every second."""
STREAMED = 4
"""Sessions that a node must give for samples to have one of their own; else they are asked for, one by one."""
FOLLOWED = 3
"""Likewise for events. A node that gives fewer leaves one to commands, and where it gives two, the other to users."""
RELAYED = 2.0
"""Seconds between two looks at whether they may have theirs."""
REFRESH_WITHIN = 60.0
"""Seconds for a full look."""
FRAME = 2 * SECTION
"""Bytes of a sample: its one section, and the marks."""
SAMPLE_BYTES = 2 * FRAME, SECTION
"""Bytes that the stream of samples may bring at once, as after a link was slow, and with each second; one has 3 KB."""
EVENT = 1000
"""Bytes of an event. A task's id is cut to fewer on the node."""
EVENT_BYTES = 1 << 20, 64 << 10
"""Bytes that the stream of events may bring at once, for a thousand tasks that end together, and with each second."""
LOOKS = 500, 20
"""Looks at a single task that events may cause at once, and with each second; those beyond wait, and so does the node.

One costs a node 50 ms and us 3: by that a node full of restarting containers cannot take the time of the others."""

SETTLE = 0.25
"""Seconds for which a start alone is not looked at: it says little that the launch has not, and its end may come."""

_UNIT = "unit"
_FRAME_END = "@@agentless ."
_SAMPLES = """\
while :; do
sleep {every:g}
frame=$({body})
printf '%s\\n%s\\n' "$frame" '{end}'
done
"""
"""A sample is sent in one piece: every write would be a packet of its own, and packets are what sampling many nodes
costs. It is collected in one go, however long, since a shell that adds line to line copies all of it each time; what a
driver that hangs keeps open is not the pipe that this waits for, see `model/command` and `gpus/nvidia/probe`."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sighting:
    """The containers of ours that a node named. `asked_at` is when the question left (Unix seconds).

    `only` is the task whose container was asked for, None when it was all of them: the absence of others says nothing.
    Nor does that of what runs without a container when `blind`: systemd did not answer. `about` are the ids of the
    containers that were asked for, None when it was whatever the task has: of another one its absence says nothing.
    """

    containers: tuple[Container, ...]
    asked_at: float
    only: str | None = None
    blind: bool = False
    about: Collection[str] | None = None


class Link:
    """One node, as far as it can be reached.

    `on_change(link)` is told whenever what is known has changed; `on_sighting(link, sighting)` whenever the node was
    asked for its containers.
    """

    def __init__(
        self,
        node: NodeConfig,
        session: Session,
        probe: Probe,
        runtime: ContainerEngine,
        units: HostEngine,
        clock: Clock,
        on_change: Callable[[Link], None],
        on_sighting: Callable[[Link, Sighting], None],
    ) -> None:
        self.node = node
        self.session = session
        self.runtime = runtime
        self.units = units
        self.observation = Observation()
        self.failure: AgentlessError | None = None
        self.answered = asyncio.Event()
        self._paces: dict[object, float] = {}
        self._repaced = asyncio.Event()
        self.offline_since: float | None = clock.now()
        self._probe = probe
        self._clock = clock
        self._on_change = on_change
        self._on_sighting = on_sighting
        self._named: Mapping[str, float] = {}
        self._ended: set[str] = set()
        self._refreshed_at = 0.0
        self.booted_at: float | None = None
        self._boot: Boot | None = None
        self._wake = asyncio.Event()
        self._asking = asyncio.Lock()
        self._loop: asyncio.Task[None] | None = None
        self._listed_at: float | None = None  # the engine has last said so
        self._shared = SharedStreams(self.stream)

    def runtime_of(self, task: Task) -> Engine:
        """What runs this task here."""
        return self.units if task.spec.on_node_itself else self.runtime

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers of ours that it has named last."""
        engine = self.observation.engine
        return (engine.containers or ()) if engine else ()

    @property
    def online(self) -> bool:
        """Whether it answers now."""
        return self.observation.error is None

    @property
    def has_stranger(self) -> bool:
        """Whether a process outside all containers uses one of its GPUs."""
        sample = self.observation.sample
        return sample is not None and any(process.container is None for process in sample.processes or ())

    @property
    def silence(self) -> str | None:
        """Why it does not say which containers of ours it has, None when it does."""
        seen = self.observation
        if seen.error is not None or seen.engine is None:
            return seen.error or "it has not answered yet"
        return None if seen.engine.containers is not None else seen.engine.error or "its containers cannot be listed"

    @property
    def known_until(self) -> float | None:
        """Up to when (Unix seconds) its containers are known, while it does not say; None: it has never said."""
        sampled, engine = self.observation.sampled_at, self.observation.engine
        if self._listed_at is None or sampled is None or engine is None or engine.containers is None:
            return self._listed_at
        return max(self._listed_at, sampled)  # the engine would have told of a change for as long as the link was there

    @property
    def every(self) -> float:
        """Seconds between two samples."""
        return min(self._paces.values(), default=SAMPLE_EVERY)

    def pace(self, who: object, every: float | None) -> None:
        """Sample it so often for somebody (seconds), None: as usual."""
        before = self.every
        if every is None:
            self._paces.pop(who, None)
        else:
            self._paces[who] = every
        if self.every != before:
            self._repaced.set()

    def start(self) -> None:
        """Begin to connect, and stay connected."""
        self._loop = asyncio.create_task(self._keep(), name=f"link {self.node.name}")

    async def close(self) -> None:
        """End the loops and the connection."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self.session.close()

    async def ready(self, *, within: float = 20.0) -> None:
        """Wait until the node has answered or is known not to; a node in back-off is tried at once."""
        if not self.online:
            self.answered.clear()
            self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.answered.wait()

    async def run(self, command: Command, heard: Callable[[bytes], None] | None = None) -> Result:
        """Run a short command on the node; raises NoAnswer. `heard` is as in `Session.run`."""
        if not self.online:
            raise Unreachable(unreachable(self.node.name, self.observation.error))
        return await self.session.run(command, heard)

    def stream(self, command: Command, *, own: bool = False) -> contextlib.AbstractAsyncContextManager[Stream]:
        """Run a command whose output is wanted as it comes; `own`: it may have a session kept for the controller."""
        return self.session.stream(command, own=own)

    def followed(self, command: Command, tail: int | None) -> contextlib.AbstractAsyncContextManager[Reader]:
        """Likewise, for all who ask for the same; see `SharedStreams.stream`."""
        return self._shared.stream(command, tail)

    async def pull(self, image: str, *, missing: bool = True) -> None:
        """Have the node fetch a plain image, which may be there if not `missing`; raises RuntimeFailed or NoAnswer."""
        said = b""
        async with self.stream(self.runtime.images.pull(image)) as stream:
            async for _, data in stream:
                said = both_ends(said, data)
        if stream.exit_code != 0:
            why = self.runtime.complaint(said.decode("utf-8", "replace"))
            name = self.node.name
            what = (
                f"is not on {name} and cannot be pulled" if missing else f"cannot be pulled on {name} (--pull always)"
            )
            raise RuntimeFailed(f"image {image} {what}: {why}")

    def failed(self, task: Task, error: NodeBroken) -> None:
        """A launch of this task has failed here for a reason of the node: from now on it is degraded."""
        before, bare = self.observation.broken, task.spec.on_node_itself
        broken = breakdown.failed(before, error, self._clock.now(), bare=bare)
        self._set_broken(replace(broken, reason=broken.reason.removeprefix(f"{self.node.name}: ")))

    def succeeded(self, task: Task) -> None:
        """This task has started here: what it shows to work is not broken any more."""
        broken = self.observation.broken
        if broken and broken.is_tried_by(bare=task.spec.on_node_itself, gpus=task.spec.needs.gpus > 0):
            self._set_broken(None)

    def mended(self) -> str | None:
        """Somebody says that launches succeed again; why they did not, None when they did."""
        broken = self.observation.broken
        if broken is None:
            return None
        self._set_broken(None)
        return broken.reason

    def _restarted(self) -> None:
        """The engine was away, or the whole node: a breakdown may be over."""
        if self.observation.broken:
            self._set_broken(breakdown.restarted(self.observation.broken))

    def _set_broken(self, broken: Breakdown | None) -> None:
        self._observe(replace(self.observation, broken=broken))

    async def look(self, task: str, runtime: Engine | None = None) -> None:
        """Ask for the container of one task and report it, as present or absent. None: the engine's."""
        runtime = runtime or self.runtime
        async with self._asking:
            asked = self._clock.now()
            result = await self.run(runtime.containers(task))
            runtime.check(result)
            engine = self.observation.engine
            found = runtime.parse_containers(result, engine.clock if engine else 0.0)
            if problem := container_limits.excess((*self.containers, *found)):
                raise RuntimeFailed(f"{self.node.name}: {problem}")
            self._listed_at = self._clock.now()
            self._remember(task, found)
            self._on_sighting(self, Sighting(found, asked, task))

    async def refresh(self) -> None:
        """Ask for everything in one round trip: GPUs, host, engine, containers."""
        async with self._asking:
            asked = self._clock.now()
            sections = (
                *self._probe.sections(topology=True),
                *host_facts.sections(),
                *self.runtime.facts(),
                *self.units.facts(),
            )
            result = await self.session.run(Command(join_sections(sections), timeout=REFRESH_WITHIN))
            answer = split_sections(result.stdout)
            if len(answer) < len(sections) and (said := result.err.strip()):
                raise Unreachable(f"{self.node.name}: {self.runtime.complaint(said)}")
            engine = await self._inspect(self.runtime.parse_facts(answer, asked, self._clock.now()))
            beside = self.units.parse_facts(answer, asked, self._clock.now())
            engine = replace(engine, error=engine.error or beside.error)
            units = beside.containers and tuple(replace(unit, clock=engine.clock) for unit in beside.containers)
            if engine.containers is not None:
                last = tuple(container for container in self.containers if container.on_node_itself)
                engine = replace(engine, containers=(*engine.containers, *(last if units is None else units)))
            seen = self.observation
            if seen.sampled_at is None or seen.sampled_at <= asked:
                # Else a driver that hung has kept this answer for so long that there is a newer one.
                seen = replace(seen, sample=self._recognised(answer), sampled_at=self._clock.now())
            seen = replace(
                seen,
                error=None,
                host=host_facts.parse(answer),
                engine=engine,
                topology=self._probe.parse_topology(answer) or seen.topology,
                faults=self._probe.parse_faults(answer),
            )
            if boot := boot_of(seen):
                if self._boot and boot.follows(self._boot):
                    self.booted_at = asked
                self._boot = boot
            self._observe(seen)
            if engine.containers is not None:
                if seen.broken and seen.broken.fault == "engine":
                    self._set_broken(None)
                self._ended.intersection_update(c.id for c in engine.containers if c.over)
                self._refreshed_at, self._listed_at = asked + engine.clock, self._clock.now()
                self._on_sighting(self, Sighting(engine.containers, asked, blind=units is None))

    async def _inspect(self, engine: EngineFacts) -> EngineFacts:
        """With the containers that it has listed: those that have ended as we know it, and the others asked for."""
        if engine.listed is None:
            return engine
        known = {c.id: c for c in self.containers if self.runtime.has_ended_so(c, engine.listed.get(c.id, ""))}
        found = list(known.values())
        asked = [each for each in engine.listed if each not in known]
        starting = {each for each in asked if engine.listed[each].startswith("Created")}
        try:
            async for more in self._described([each for each in asked if each not in starting], engine.clock):
                found += more
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
            return tuple([each async for more in described for each in more])
        except Timeout:
            return tuple(container for container in self.containers if container.id in containers)

    async def _described(
        self, containers: Sequence[str], clock: float, within: float = DESCRIBED_WITHIN
    ) -> AsyncIterator[tuple[Container, ...]]:
        """What the engine knows of them, of some at a time; of fewer where that is more than an answer may be.

        Raises RuntimeFailed with the engine's complaint.
        """
        waiting = [containers[at : at + INSPECTED] for at in reversed(range(0, len(containers), INSPECTED))]
        while waiting:
            some = waiting.pop()
            try:
                result = await self.session.run(replace(self.runtime.inspect(some), timeout=within))
            except TooMuch:
                if len(some) == 1:
                    raise
                half = len(some) // 2
                waiting += [some[half:], some[:half]]
                continue
            found = self.runtime.parse_containers(result, clock)
            if not self.runtime.says_gone(result, set(some).difference(c.id for c in found)):
                raise RuntimeFailed(self.runtime.complaint(result.err))
            yield found

    # ------------------------------------------------------------------ loops

    async def _keep(self) -> None:
        attempt, time = 0, asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            since = math.inf
            try:
                await self.session.connect()
                await self.refresh()
                self._restarted()
                self.failure, self.offline_since, since = None, None, time()
                self.answered.set()
                await self._watch()
            except AgentlessError as error:
                self._gone(error)
            except Exception as error:  # noqa: BLE001 - one node must not end the controller
                _log.exception("%s: the link broke in an unforeseen way", self.node.name)
                self._gone(Unreachable(f"agentless failed here: {error!r}; please report it"))
            await self.session.close()
            if time() - since >= HELD:
                attempt = 0
            wait = backoff(attempt, random.random())  # noqa: S311 - jitter
            if isinstance(self.failure, (AuthFailed, HostKeyRejected, TooMuch)):
                wait = REJECTED_RETRY
            attempt += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def _gone(self, error: AgentlessError) -> None:
        self.failure = error
        if self.offline_since is None:
            self.offline_since = self._clock.now()
        self._observe(replace(self.observation, error=str(error).removeprefix(f"{self.node.name}: ")))
        self.answered.set()

    async def _watch(self) -> None:
        """Sample and follow until one of them breaks; raises what broke."""
        while True:
            streamed, followed = self._may_have(STREAMED), self._may_have(FOLLOWED)
            loops = [
                asyncio.create_task(self._samples(streamed=streamed)),
                asyncio.create_task(self._events(followed=followed)),
                asyncio.create_task(self._refreshes()),
            ]
            try:
                while (streamed, followed) == (self._may_have(STREAMED), self._may_have(FOLLOWED)):
                    done, _ = await asyncio.wait(loops, timeout=RELAYED, return_when=asyncio.FIRST_EXCEPTION)
                    for loop in done:
                        loop.result()
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)

    def _may_have(self, sessions: int) -> bool:
        """Whether the node gives so many sessions, as far as is known."""
        known = self.session.sessions
        return known is None or known.total is None or known.total >= sessions

    async def _samples(self, *, streamed: bool) -> None:
        while True:
            self._repaced.clear()
            sampling = self._sample(self.every) if streamed else self._sample_once(self.every)
            loops = [asyncio.create_task(sampling), asyncio.create_task(self._repaced.wait())]
            try:
                await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
                if loops[0].done():
                    loops[0].result()
            except NoSession:
                await self._sample_once(self.every)
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)

    async def _sample_once(self, every: float) -> None:
        """Ask for the next sample, where there is no session to stream them."""
        await asyncio.sleep(every)
        result = await self.session.run(Command(join_sections(self._probe.sections()), timeout=REFRESH_WITHIN))
        self._sampled(result.stdout)

    def _sampled(self, frame: bytes) -> None:
        sample = self._living(self._recognised(split_sections(frame)))
        self._observe(replace(self.observation, sample=sample, sampled_at=self._clock.now()))

    async def _sample(self, every: float) -> None:
        body = join_sections(self._probe.sections())
        mark = f"{_FRAME_END}\n".encode()
        time = asyncio.get_running_loop().time
        early = -math.inf
        command = Command(_SAMPLES.format(every=every, body=body, end=_FRAME_END))
        async with self.session.stream(command, own=True, wait=False) as stream:
            buffer, allowed, said = bytearray(), Allowance(*SAMPLE_BYTES), b""
            async for fd, data in stream:
                if allowed.take(len(data)) or len(buffer) > FRAME:
                    raise self._flooded(fd, f"more than {FRAME >> 20} MiB for a sample")
                if fd != 1:
                    said = (said + data)[-1000:]
                    continue
                start = max(0, len(buffer) - len(mark))
                buffer += data
                if (end := buffer.rfind(mark, start)) < 0:
                    continue
                frame = bytes(buffer[:end]).rpartition(mark)[2]
                del buffer[: end + len(mark)]
                if time() < early:
                    continue  # one that came with another, or of a node that does not wait between them
                early = time() + every / 2
                self._sampled(frame)
        why = f"; {self.runtime.complaint(words)}" if (words := said.decode("utf-8", "replace").strip()) else ""
        raise Unreachable(f"{self.node.name} ended the stream of samples{why}")

    async def _events(self, *, followed: bool) -> None:
        """Follow them; where there is no session for that, look again and again."""
        took = 0.0
        while True:
            # Of an engine that did not answer the last full look nothing is known that events could change.
            was_away = self.silence is not None
            if not was_away and followed:
                with contextlib.suppress(NoSession):
                    await self._follow_events()
                    was_away = True
            await asyncio.sleep(min(REFRESH_EVERY, max(ENGINE_RETRY, took * RESTS)))
            began = asyncio.get_running_loop().time()
            await self.refresh()
            took = asyncio.get_running_loop().time() - began
            if was_away:
                self._restarted()

    async def _follow_events(self) -> None:
        """Look at each container that something happens to, until the stream ends: the engine went away.

        What happens while it looks is looked at together afterwards.
        """
        events = self.units.watch(self.runtime.events(max(0.0, self._refreshed_at - OVERLAP)))
        async with self.session.stream(events, own=True, wait=False) as stream:
            changes, looks = _Changes(), Allowance(*LOOKS)
            reading = asyncio.create_task(self._read_events(stream, changes))
            try:
                while some := await changes.take():
                    await asyncio.sleep(looks.take(len(some)))
                    await self._look_at(some)
                await reading  # raises what has broken
                self._listed_at = self._clock.now()
            except RuntimeFailed:
                return  # the engine goes away; what else the link carries goes on
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read_events(self, stream: Stream, changes: _Changes) -> None:
        buffer, allowed = b"", Allowance(*EVENT_BYTES)
        try:
            async for fd, data in stream:
                if allowed.take(len(data)) or len(buffer) > EVENT:
                    raise self._flooded(fd, "endless events of its containers")
                if fd != 1:
                    continue
                *lines, buffer = (buffer + data).split(b"\n")
                over = {_task_of(container) for container in self.containers if container.over}
                for line in (raw.decode("utf-8", "replace") for raw in lines if raw.strip()):
                    watched = self.units.parse_watched(line)
                    if watched is None:
                        action, _, rest = line.partition(" ")
                        await changes.put(rest, at_once=action != "start")
                    elif watched[0] != "over" or watched[1] not in over:
                        await changes.put(f"{_UNIT} {watched[1]}")
        finally:
            changes.end()

    async def _look_at(self, changes: Collection[str]) -> None:
        """Look at what has changed: at units one by one, at containers together."""
        ids = dict[str, str]()
        for container, _, task in sorted(change.partition(" ") for change in changes):
            if container == _UNIT:
                await self.look(task, self.units)
            elif is_container_id(container):
                ids[container] = task
        if not ids:
            return
        async with self._asking:
            asked = self._clock.now()
            engine = self.observation.engine
            found = [
                each async for more in self._described(list(ids), engine.clock if engine else 0.0) for each in more
            ]
            for task in sorted({*ids.values(), *filter(None, map(_task_of, found))}):
                others = (c for c in self.containers if _task_of(c) == task and c.id not in ids)
                these = (*others, *(c for c in found if _task_of(c) == task))
                if problem := container_limits.excess((*self.containers, *these)):
                    raise RuntimeFailed(f"{self.node.name}: {problem}")
                self._remember(task, these)
                self._on_sighting(self, Sighting(these, asked, task, about=ids))

    async def _refreshes(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_EVERY)
            await self.refresh()

    # ------------------------------------------------------------------ memory

    def _remember(self, task: str, found: tuple[Container, ...]) -> None:
        engine = self.observation.engine
        if engine is None or engine.containers is None:
            return
        before = {container.id for container in engine.containers if _task_of(container) == task}
        live = {container.id for container in found if container.live}
        self._ended = (self._ended | before) - live
        others = tuple(container for container in engine.containers if container.id not in before)
        sample = self.observation.sample and self._living(self.observation.sample)
        self._observe(replace(self.observation, sample=sample, engine=replace(engine, containers=(*others, *found))))

    def _flooded(self, fd: int, what: str) -> TooMuch:
        what = what if fd == 1 else "endless errors"
        return TooMuch(f"{self.node.name} sends {what}; see what docker, nvidia-smi and the shell print there")

    def _recognised(self, answer: dict[str, Result]) -> GpuSample:
        self._named, sample = recognised(self._named, self._probe.parse(answer), self._clock.now())
        return sample

    def _living(self, sample: GpuSample) -> GpuSample:
        """The sample without processes of containers that have ended since: a freed GPU is free at once."""
        if not sample.processes:
            return sample
        return replace(sample, processes=tuple(p for p in sample.processes if p.container not in self._ended))

    def _observe(self, observation: Observation) -> None:
        self.observation = observation
        self._on_change(self)


class _Changes:
    """What the stream of events has named and nobody has looked at yet."""

    def __init__(self) -> None:
        self._pending: dict[str, None] = {}
        self._news, self._urgent, self._taken = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._ended = False

    async def put(self, change: str, *, at_once: bool = True) -> None:
        """One more; waits while there are many."""
        while len(self._pending) >= INSPECTED:
            self._taken.clear()
            await self._taken.wait()
        self._pending[change] = None
        self._news.set()
        if at_once:
            self._urgent.set()

    def end(self) -> None:
        """There are no more."""
        self._ended = True
        self._news.set()
        self._urgent.set()

    async def take(self) -> Collection[str]:
        """Those that there are, once there are some; none when there will be no more."""
        await self._news.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE):
                await self._urgent.wait()
        found, self._pending = self._pending, {}
        self._taken.set()
        if not self._ended:
            self._news.clear()
            self._urgent.clear()
        return found


def _task_of(container: Container) -> str | None:
    claim = claim_of(container)
    return claim.task if claim else None
