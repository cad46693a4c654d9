"""Samples of one node's GPUs and of the machine, and how often they are taken."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from itertools import count

from agentless.controller.nodes.link.cache import NodeCache
from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.link.limits import FRAME, SAMPLE_BYTES, flooded
from agentless.errors import NoSession, Unreachable
from agentless.model.command import Command, Result, Section, join_sections, split_sections
from agentless.model.nodes.cluster import Observation
from agentless.model.text import Excerpt
from agentless.ports import Probe
from agentless.remote import host_facts, host_load
from agentless.remote.concurrency import cancel
from agentless.remote.host_load import HostReading
from agentless.remote.session import Session
from agentless.remote.token_bucket import TokenBucket
from agentless.render import Renderer

SAMPLE_EVERY = 2.0
"""Seconds between two samples of a node."""
SAMPLE_SOON = 0.5
"""Seconds between two samples of a node on which somebody waits for a GPU that a stranger uses."""
SAMPLE_WITHIN = 60.0
"""Seconds for a sample that is asked for by itself."""

HOST_EVERY = 5
"""The machine is asked with every so many samples, about every 10 s: more often costs more than it tells."""

FRAME_END = "@@agentless ."
SAMPLES = """\
turn=0
while :; do
sleep {every:g}
frame=$({body})
printf '%s\\n%s\\n' "$frame" '{end}'
turn=$((turn + 1))
done
"""
BODY = """\
{gpus}
if [ "$((turn % {host_every}))" = 0 ] || [ "$turn" = 1 ]; then
{host}
fi
"""
"""Two readings of the machine, one after the other, at the beginning: it takes two to know a rate."""
"""A sample is sent in one piece: every write would be a packet of its own, and packets are what sampling many nodes
costs. It is collected in one go, however long, since a shell that adds line to line copies all of it each time; what a
driver that hangs keeps open is not the pipe that this waits for, see `model/command` and the vendor's probe."""


class Sampler:
    """Keeps the sample in the cache fresh."""

    def __init__(
        self, session: Session, probe: Probe, engines: NodeEngines, renderer: Renderer, cache: NodeCache
    ) -> None:
        self._session = session
        self._probe = probe
        self._renderer = renderer
        self._engines = engines
        self._cache = cache
        self._paces: dict[object, float] = {}
        self._changed = asyncio.Event()
        self._root = "/"
        self._before: HostReading | None = None

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
            self._changed.set()

    def sections(self) -> tuple[Section, ...]:
        """What a full look asks of the GPUs and the machine: also how GPUs are joined, and the kernel log."""
        return (
            *self._probe.sections(self._renderer, topology=True),
            *host_facts.sections(self._renderer, self._probe.pci),
        )

    def with_answer(self, seen: Observation, answer: dict[str, Result], asked: float) -> Observation:
        """The observation with what a full look at `asked` was answered."""
        if seen.sampled_at is None or seen.sampled_at <= asked:
            # Else a driver that hung has kept this answer for so long that there is a newer one.
            sample = self._cache.recognised(self._probe.parse(answer))
            seen = replace(seen, sample=sample, sampled_at=self._cache.now())
        host = host_facts.parse(answer)
        if host.slurmd is None and seen.host:
            host = replace(host, slurmd=seen.host.slurmd)
        return replace(
            seen,
            topology=self._probe.parse_topology(answer) or seen.topology,
            faults=self._probe.parse_faults(answer),
            host=host,
            load=seen.load if seen.error is None else None,  # that of before the break is old
        )

    async def sample(self, *, streamed: bool) -> None:
        """Sample until the link breaks, at the pace that is wanted by then; raises what broke."""
        self._before = None  # of another boot, maybe
        script = self._script()
        turns = count()
        while True:
            self._changed.clear()
            if self._moved():
                script = self._script()
            sampling = self._follow(script, self.every) if streamed else self._ask(script, self.every, next(turns))
            loops = [asyncio.create_task(sampling), asyncio.create_task(self._changed.wait())]
            try:
                await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
                if loops[0].done():
                    loops[0].result()
            except NoSession:
                await self._ask(script, self.every, next(turns))
            finally:
                await cancel(*loops)

    def _script(self) -> str:
        """The body of a sample, which says in which `turn` of the stream it is taken."""
        self._root = self._engine_root
        gpus = join_sections(self._probe.sections(self._renderer))
        host = join_sections([host_load.section(self._renderer, self._root)])
        return BODY.format(gpus=gpus, host=host, host_every=HOST_EVERY)

    @property
    def _engine_root(self) -> str:
        """The folder whose disk matters: an engine that does not answer has not moved."""
        engine = self._cache.observation.engine
        return (engine.root if engine else None) or self._root

    def _moved(self) -> bool:
        return self._engine_root != self._root

    async def _ask(self, script: str, every: float, turn: int) -> None:
        """Ask for the next sample, where there is no session to stream them."""
        await asyncio.sleep(every)
        command = Command(f"turn={turn}\n{script}", timeout=SAMPLE_WITHIN)
        self._take((await self._session.run(command)).stdout)

    async def _follow(self, script: str, every: float) -> None:
        """Take each sample that a stream brings."""
        mark = f"{FRAME_END}\n".encode()
        time = asyncio.get_running_loop().time
        early = -math.inf
        command = Command(SAMPLES.format(every=every, body=script, end=FRAME_END))
        async with self._session.stream(command, own=True, wait=False) as stream:
            buffer, allowed, said = bytearray(), TokenBucket(*SAMPLE_BYTES), Excerpt(0, 1000)
            async for fd, data in stream:
                if allowed.take(len(data)) or len(buffer) > FRAME:
                    raise flooded(self._session, fd, f"more than {FRAME >> 20} MiB for a sample")
                if fd != 1:
                    said.add(data)
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
                self._take(frame)
        words = str(said).strip()
        why = f"; {self._engines.runtime.complaint(words)}" if words else ""
        raise Unreachable(f"{self._cache.name} ended the stream of samples{why}")

    def _take(self, frame: bytes) -> None:
        sections = split_sections(frame)
        reading, load = host_load.parse(sections), self._cache.observation.load
        if reading:
            host = self._cache.observation.host
            load = host_load.load_of(reading, self._before, self._root, host.cores if host else None, load)
            self._before = reading
        self._cache.sampled(self._probe.parse(sections), load)
        if self._moved():
            self._changed.set()
