"""Records the readings of all GPUs and nodes, and returns them as curves.

The minute that it is lives in memory; a thread of its own has the rest, so that no disk holds up the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from agentless.controller.nodes.health.homes import Homes
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus, NodeObserved
from agentless.errors import NotFound, StateError, UsageError
from agentless.model.nodes.cluster import Gpu
from agentless.model.nodes.device import GpuNumber
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.host_load import HostLoad
from agentless.model.scheduling.needs import parse_target
from agentless.model.usage.figures import GpuHistoryView, HistoryView, NodeHistoryView
from agentless.ports import Clock
from agentless.rules.nodes.unified import with_memory
from agentless.rules.usage.series import GPU, LEVELS, NODE, Block, Curve, Grid, Kind, Piece, curves, level_for
from agentless.stores.records.samples import SampleStore

MOST = 200_000
"""So many points, of all GPUs together, may be asked for at once."""
_MINUTE = LEVELS[0].block

_log = logging.getLogger(__name__)


class Samples:
    """The history of all GPUs and nodes. `trouble` is why the last write failed."""

    def __init__(self, nodes: Nodes, homes: Homes, store: SampleStore, bus: EventBus, clock: Clock) -> None:
        self.trouble: str | None = None
        self._nodes = nodes
        self._homes = homes
        self._clock = clock
        self._store = store
        self._thread = ThreadPoolExecutor(1, "samples")
        self._sampled_at: dict[str, float] = {}
        self._loads: dict[str, HostLoad] = {}
        self._minute: dict[str, tuple[int, Block]] = {}
        self._over: list[tuple[str, int, Block]] = []
        bus.subscribe(NodeObserved, self._observed)

    def tick(self) -> None:
        """Write the minutes that are over."""
        now = int(self._clock.now()) // _MINUTE
        self._end(uuid for uuid, (number, _) in list(self._minute.items()) if number != now)
        if self._over:
            self._hand_over()

    async def close(self) -> None:
        """Write everything."""
        self._end(list(self._minute))
        self._hand_over()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    async def history(self, targets: Sequence[str], span: float, points: int, nodes: Sequence[str] = ()) -> HistoryView:
        """So many points of the last `span` seconds, for these GPUs (`node1::0`) and nodes, or for all GPUs."""
        gpus = self._gpus(targets) if targets or not nodes else []
        names = [self._nodes.link(name).node.name for name in dict.fromkeys(nodes)]
        if (len(gpus) + len(names)) * points > MOST:
            what = f"{len(gpus)} GPUs" + (f" and {len(names)} nodes" if names else "")
            raise UsageError(f"{what} with {points} points each are too many; request at most {MOST:,} points in total")
        grid = Grid(self._clock.now(), span, points)
        shown = await self._shown([gpu.reading.uuid for _, gpu in gpus], grid, GPU)
        loads = await self._shown([_series(name) for name in names], grid, NODE) if names else {}
        views = (
            GpuHistoryView(
                name, gpu.reading.index, gpu.reading.uuid, **shown[gpu.reading.uuid], number=gpu.reading.number
            )
            for name, gpu in gpus
        )
        of_nodes = (NodeHistoryView(name, **loads[_series(name)]) for name in names)
        return HistoryView(grid.begin + grid.span, grid.step, tuple(views), tuple(of_nodes))

    # ------------------------------------------------------------------ inside

    def _observed(self, observed: NodeObserved) -> None:
        seen, name = observed.observation, observed.node
        at, sample = seen.sampled_at, seen.sample
        if sample is None or at is None or at == self._sampled_at.get(name):
            return
        self._sampled_at[name] = at
        for reading in sample.gpus:
            if self._homes.known.get(reading.gpu, name) == name:  # else another node names it, too: one of them tells
                self._read(reading.uuid, at, with_memory(reading, seen), GPU)
        if seen.load is not None and seen.load is not self._loads.get(name):
            self._loads[name] = seen.load
            self._read(_series(name), at, seen.load, NODE)

    def _read(self, key: str, at: float, reading: GpuReading | HostLoad, kind: Kind) -> None:
        number, second = divmod(int(at), _MINUTE)
        minute = self._minute.get(key)
        if minute is None or minute[0] != number:
            self._end([key] if minute else ())
            minute = self._minute[key] = (number, Block(kind))
        minute[1].read(second, reading)

    async def _shown(self, keys: Sequence[str], grid: Grid, kind: Kind) -> dict[str, Mapping[str, Curve]]:
        """The curves of these GPUs or nodes."""
        open_minute = [(key, number, block.copy()) for key, (number, block) in self._minute.items()]
        recent: dict[str, list[Piece]] = {key: [] for key in keys}
        for key, number, block in (*self._over, *open_minute):
            if key in recent:
                recent[key].append((number * _MINUTE, LEVELS[0].width, block))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._curves, recent, grid, kind)

    def _end(self, uuids: Iterable[str]) -> None:
        """The minutes of these GPUs and nodes are over."""
        self._over += [(uuid, *self._minute.pop(uuid)) for uuid in uuids]

    def _hand_over(self) -> None:
        over, self._over = self._over, []
        now = self._clock.now()
        written = asyncio.get_running_loop().run_in_executor(self._thread, self._store.add, over, now)
        written.add_done_callback(self._written)

    def _written(self, written: asyncio.Future[None]) -> None:
        error = written.exception()
        if error is not None and not isinstance(error, StateError):
            _log.error("unexpected error while writing GPU samples", exc_info=error)
        self.trouble = self._store.warning if error is None else str(error)

    def _curves(self, recent: Mapping[str, list[Piece]], grid: Grid, kind: Kind) -> dict[str, Mapping[str, Curve]]:
        """In the thread: what is written, together with what is not handed over yet."""
        level = level_for(grid.span, grid.points)
        known = self._store.pieces(recent.keys(), level, grid.begin, kind)
        return {key: curves([*known.get(key, ()), *new], grid, level.width, kind) for key, new in recent.items()}

    def _gpus(self, targets: Sequence[str]) -> list[tuple[str, Gpu]]:
        """The GPUs that these name, each with its node; all when none is named."""
        if not targets:
            return [(name, gpu) for name, node in self._nodes.cluster().nodes.items() for gpu in node.gpus]
        found: dict[tuple[str, GpuNumber], Gpu] = {}
        for target in targets:
            needs = parse_target(target)
            if needs.node is None:
                raise UsageError(f"{target!r} is not a GPU; use node1::0, or node1 for all its GPUs")
            name = self._nodes.link(needs.node).node.name
            there = {gpu.reading.number: gpu for gpu in self._nodes.cluster([name]).nodes[name].gpus}
            for index in needs.indices or there:
                if index not in there:
                    raise NotFound(f"{name} has no GPU {index}; to list its GPUs, run: agentless gpus {name}")
                found[name, index] = there[index]
        return [(name, gpu) for (name, _), gpu in found.items()]


def _series(node: str) -> str:
    """The key of a node, which no GPU has: a UUID has no spaces."""
    return f"node {node}"
