"""Samples of one node's GPUs, and how often they are taken."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

from agentless.controller.nodes.link.cache import NodeCache
from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.link.limits import FRAME, SAMPLE_BYTES, flooded
from agentless.errors import NoSession, Unreachable
from agentless.model.command import Command, Result, Section, join_sections, split_sections
from agentless.model.nodes.cluster import Observation
from agentless.model.text import Excerpt
from agentless.ports import Probe
from agentless.remote import host_facts
from agentless.remote.concurrency import cancel
from agentless.remote.session import Session
from agentless.remote.token_bucket import TokenBucket
from agentless.render import Renderer

SAMPLE_EVERY = 2.0
"""Seconds between two samples of a node."""
SAMPLE_SOON = 0.5
"""Seconds between two samples of a node on which somebody waits for a GPU that a stranger uses."""
SAMPLE_WITHIN = 60.0
"""Seconds for a sample that is asked for by itself."""

FRAME_END = "@@agentless ."
SAMPLES = """\
while :; do
sleep {every:g}
frame=$({body})
printf '%s\\n%s\\n' "$frame" '{end}'
done
"""
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
        self._repaced = asyncio.Event()

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
        topology = self._probe.parse_topology(answer) or seen.topology
        return replace(seen, topology=topology, faults=self._probe.parse_faults(answer), host=host_facts.parse(answer))

    async def sample(self, *, streamed: bool) -> None:
        """Sample until the link breaks, at the pace that is wanted by then; raises what broke."""
        script = join_sections(self._probe.sections(self._renderer))
        while True:
            self._repaced.clear()
            sampling = self._follow(script, self.every) if streamed else self._ask(script, self.every)
            loops = [asyncio.create_task(sampling), asyncio.create_task(self._repaced.wait())]
            try:
                await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
                if loops[0].done():
                    loops[0].result()
            except NoSession:
                await self._ask(script, self.every)
            finally:
                await cancel(*loops)

    async def _ask(self, script: str, every: float) -> None:
        """Ask for the next sample, where there is no session to stream them."""
        await asyncio.sleep(every)
        self._take((await self._session.run(Command(script, timeout=SAMPLE_WITHIN))).stdout)

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
        self._cache.sampled(self._probe.parse(split_sections(frame)))
