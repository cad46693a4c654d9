"""Records the readings of all GPUs, and returns them as curves.

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
from agentless.model.scheduling.needs import parse_target
from agentless.model.usage.figures import GpuHistoryView, HistoryView
from agentless.ports import Clock
from agentless.rules.usage.series import LEVELS, Block, Curve, Grid, Piece, curves, level_for
from agentless.stores.records.samples import SampleStore

MOST = 200_000
"""So many points, of all GPUs together, may be asked for at once."""
_MINUTE = LEVELS[0].block

_log = logging.getLogger(__name__)


class Samples:
    """The history of all GPUs. `trouble` is why the last write failed."""

    def __init__(self, nodes: Nodes, homes: Homes, store: SampleStore, bus: EventBus, clock: Clock) -> None:
        self.trouble: str | None = None
        self._nodes = nodes
        self._homes = homes
        self._clock = clock
        self._store = store
        self._thread = ThreadPoolExecutor(1, "samples")
        self._sampled_at: dict[str, float] = {}
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

    async def history(self, targets: Sequence[str], span: float, points: int) -> HistoryView:
        """So many points of the last `span` seconds, for these GPUs (`node1::0`), or for all."""
        gpus = self._gpus(targets)
        if len(gpus) * points > MOST:
            raise UsageError(
                f"{len(gpus)} GPUs with {points} points each are too many; request at most {MOST:,} points in total"
            )
        grid = Grid(self._clock.now(), span, points)
        open_minute = [(uuid, number, block.copy()) for uuid, (number, block) in self._minute.items()]
        recent: dict[str, list[Piece]] = {gpu.reading.uuid: [] for _, gpu in gpus}
        for uuid, number, block in (*self._over, *open_minute):
            if uuid in recent:
                recent[uuid].append((number * _MINUTE, LEVELS[0].width, block))
        shown = await asyncio.get_running_loop().run_in_executor(self._thread, self._curves, recent, grid)
        views = (
            GpuHistoryView(name, gpu.reading.index, gpu.reading.uuid, **shown[gpu.reading.uuid]) for name, gpu in gpus
        )
        return HistoryView(grid.begin + grid.span, grid.step, tuple(views))

    # ------------------------------------------------------------------ inside

    def _observed(self, observed: NodeObserved) -> None:
        seen, name = observed.observation, observed.node
        at, sample = seen.sampled_at, seen.sample
        if sample is None or at is None or at == self._sampled_at.get(name):
            return
        self._sampled_at[name] = at
        number, second = divmod(int(at), _MINUTE)
        for reading in sample.gpus:
            if self._homes.known.get(reading.uuid, name) != name:
                continue  # another node names it, too: one of them tells
            minute = self._minute.get(reading.uuid)
            if minute is None or minute[0] != number:
                self._end([reading.uuid] if minute else ())
                minute = self._minute[reading.uuid] = (number, Block())
            minute[1].read(second, reading)

    def _end(self, uuids: Iterable[str]) -> None:
        """The minutes of these GPUs are over."""
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

    def _curves(self, recent: Mapping[str, list[Piece]], grid: Grid) -> dict[str, Mapping[str, Curve]]:
        """In the thread: what is written, together with what is not handed over yet."""
        level = level_for(grid.span, grid.points)
        known = self._store.pieces(recent.keys(), level, grid.begin)
        return {uuid: curves([*known.get(uuid, ()), *new], grid, level.width) for uuid, new in recent.items()}

    def _gpus(self, targets: Sequence[str]) -> list[tuple[str, Gpu]]:
        """The GPUs that these name, each with its node; all when none is named."""
        if not targets:
            return [(name, gpu) for name, node in self._nodes.cluster().nodes.items() for gpu in node.gpus]
        found: dict[tuple[str, int], Gpu] = {}
        for target in targets:
            needs = parse_target(target)
            if needs.node is None:
                raise UsageError(f"{target!r} is not a GPU; use node1::0, or node1 for all its GPUs")
            name = self._nodes.link(needs.node).node.name
            there = {gpu.reading.index: gpu for gpu in self._nodes.cluster([name]).nodes[name].gpus}
            for index in needs.indices or there:
                if index not in there:
                    raise NotFound(f"{name} has no GPU {index}; to list its GPUs, run: agentless gpus {name}")
                found[name, index] = there[index]
        return [(name, gpu) for (name, _), gpu in found.items()]
