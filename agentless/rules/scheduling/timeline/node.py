"""The capacity of a node over time: what is taken until when, and when a task fits.

A `NodeTimeline` is made for one planning pass and thrown away. Times are Unix seconds. A load whose end is unknown
ends at `FAR`, so that a later start can still be promised; one that is over its time ends at `SOON`.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter

from agentless.model.nodes.cluster import Allocation, Node
from agentless.model.nodes.gpu import GpuReading, GpuTopology
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.model.tasks.task import Placement
from agentless.rules.nodes.cgroup_limits import lacking
from agentless.rules.nodes.gpu_access import why_no_gpus, withheld
from agentless.rules.scheduling.gpu_choice import choose
from agentless.rules.scheduling.load import Load, pinned
from agentless.rules.scheduling.shape import Amounts, Shape
from agentless.rules.scheduling.timeline.gpu import FAR, GpuTimeline

SOON = 1.0
"""A task that is over its time is expected to end in so many seconds."""

NOTHING: Mapping[str, float] = {}
"""No estimated lengths."""

Kinds = tuple[tuple[str, int, bool, int], ...]
"""The GPUs of a node by name, memory (bytes), whether they are parts of GPUs, and number."""


class NodeTimeline:
    """One node. `order` is its position in the inventory, `closed` why no task may start there (empty if one may).

    `cores` and `memory` (bytes) are the totals, `free_cores` and `free_memory` what is free now. `lengths` are the
    estimated seconds of tasks without a limit, by task id. While another task was promised a certain time here, an
    estimated length counts as endless. `yielding` are the tasks there that give way to others, by id.
    """

    def __init__(self, node: Node, order: int, now: float, lengths: Mapping[str, float] = NOTHING) -> None:
        host = node.observation.host
        self.node = node
        self.name = node.name
        self.order = order
        self.now = now
        self.closed = "" if node.state == "online" or node.trial else node.reason
        self.cores = self.free_cores = math.inf if host is None or host.cores is None else float(host.cores)
        self.memory = self.free_memory = (
            math.inf if host is None or host.memory_mib is None else float(host.memory_mib << 20)
        )
        self.engine = node.observation.engine
        self._withheld = withheld(node)
        self._gives_gpus = not self._withheld or why_no_gpus(node) is None
        self.last_start = node.last_start
        self.reservations = node.reservations
        self._exclusive = self._firm = self._unsure = 0
        self._openings: dict[Sharing, list[float]] = {}
        self.loads: list[Load] = []
        near = {bus: numa.id for numa in (host.numa if host else ()) for bus in numa.gpus}
        self.topology = node.observation.topology or GpuTopology()
        places = {gpu.reading.uuid: near.get(gpu.reading.pci_bus_id or "") for gpu in node.gpus}
        self.gpus = [
            GpuTimeline(gpu, self._numa(gpu.reading, places))
            for gpu in node.gpus
            if gpu.state not in ("unknown", "excluded", "unhealthy", "partitioned") or gpu.is_bare
        ]
        self._parts = [gpu for gpu in self.gpus if gpu.parent is not None]
        counts = Counter([gpu.rated for gpu in self.gpus])
        self.kinds: Kinds = tuple([(*rated, count) for rated, count in counts.items()])
        by_uuid = {gpu.uuid: gpu for gpu in self.gpus}
        self.yielding = {each.task: each for each in node.allocations if each.yields}
        self._there: dict[str, tuple[int, list[GpuTimeline], Load]] = {}  # by task: where its load is, GPUs, load
        for allocation in node.allocations:
            learned = lengths.get(allocation.task) if allocation.limit is None else None
            ends_at = allocation.ends_at if learned is None else (allocation.since or now) + learned
            end = FAR if ends_at is None else ends_at if ends_at > now else now + SOON
            gpus = self._held(allocation, by_uuid)
            wants = allocation.cores, allocation.memory, allocation.exclusive, allocation.sharing, allocation.numa
            load = Load(-math.inf, end, *wants, sure=learned is None)
            self._there[allocation.task] = len(self.loads), gpus, load
            self._put(gpus, load)

    def _held(self, allocation: Allocation, by_uuid: Mapping[str, GpuTimeline]) -> list[GpuTimeline]:
        """The GPUs of an allocation, with the parts of those and the GPUs of its parts: nobody else can have these."""
        gpus = [by_uuid[uuid] for uuid in allocation.gpu_uuids if uuid in by_uuid]
        gpus += [by_uuid[uuid] for uuid in dict.fromkeys(allocation.parents) if uuid in by_uuid]
        return gpus + [gpu for gpu in self._parts if gpu.parent in allocation.gpu_uuids]

    def _numa(self, reading: GpuReading, places: Mapping[str, int | None]) -> int | None:
        """The NUMA node of a GPU, or of the one that it is a part of, by the kernel, else by the driver."""
        near = places.get(reading.gpu)
        return self.topology.numa.get(reading.index) if near is None else near

    # ----------------------------------------------------------------- reading

    def admits(self, shape: Shape) -> bool:
        """Whether the shape may use this node at all."""
        if shape.rules_out(self.node.config):
            return False
        host = self.node.observation.host
        return shape.numa is None or any(numa.id == shape.numa for numa in (host.numa if host else ()))

    def suited(self, shape: Shape, *, later: bool) -> list[GpuTimeline]:
        """The GPUs of the right type with enough memory: in total, and unless `later`, also free now."""
        plain = not (shape.gpu_types or shape.slices or shape.indices)
        return [
            gpu
            for gpu in self.gpus
            if (not shape.indices or gpu.number in shape.indices)
            and (gpu.parent is None if plain else shape.rank(gpu.name, part=gpu.parent is not None) is not None)
            and gpu.total >= shape.gpu_memory
            and (shape.bare or gpu.vendor not in self._withheld)
            and (later or gpu.free >= shape.gpu_memory)
            and (shape.bare or gpu.listed)
        ]

    def fit(
        self, shape: Shape, amounts: Amounts, begin: float, among: Sequence[GpuTimeline] | None = None
    ) -> list[GpuTimeline] | None:
        """The GPUs that a task gets if it runs from `begin` on, chosen `among` these if given. None if it does not fit.

        For a start now, not only a promise, their memory has to be free now.
        """
        end = self._end(amounts, begin)
        gone = min(end, begin + amounts.gives_way)
        if self.closed or not self._serves(shape, amounts) or not self._has_capacity(shape, amounts, begin, gone, end):
            return None
        if not shape.gpus:
            return []
        gpus = self.suited(shape, later=begin > self.now or among is not None)
        if among is not None:
            gpus = [gpu for gpu in gpus if gpu in among]
        barred = [each for each in self.reservations if shape.is_barred(each, begin, gone)]
        if barred:
            gpus = [gpu for gpu in gpus if not any(each.covers(gpu.number) for each in barred)]
        gpus = [gpu for gpu in gpus if gpu.is_open(begin, gone, shape.sharing)]
        if gone < end:
            gpus = [gpu for gpu in gpus if not gpu.is_owed(begin, end)]
        return choose(gpus, shape, self.topology)

    def earliest(
        self, shape: Shape, amounts: Amounts, since: float, among: Sequence[GpuTimeline] | None = None
    ) -> tuple[float, list[GpuTimeline]] | None:
        """The first time from `since` on at which it fits, and its GPUs. None if no such time is known."""
        if (gpus := self.fit(shape, amounts, since, among)) is not None:
            return since, gpus
        ends = {end for gpu in self.gpus for _, end, _ in gpu.taken} | {load.end for load in self.loads}
        ends.update(reservation.end for reservation in self.reservations)
        for moment in sorted(end for end in ends if since < end < math.inf):
            if (gpus := self.fit(shape, amounts, moment, among)) is not None:
                return moment, gpus
        return None

    def soonest(self, shape: Shape, amounts: Amounts) -> float:
        """A lower bound of the time at which it fits. Fast to compute, and often exact."""
        if not self._serves(shape, amounts):
            return math.inf
        if shape.gpus > len(self.gpus) or amounts.cores > self.cores or amounts.memory > self.memory:
            return math.inf
        moment = self.openings(shape.sharing.rough)[shape.gpus - 1] if shape.gpus else self.now
        if amounts.cores and amounts.cores > self.free_cores:
            moment = max(moment, self._released("cores", amounts.cores - self.free_cores))
        if amounts.memory and amounts.memory > self.free_memory:
            moment = max(moment, self._released("memory", amounts.memory - self.free_memory))
        for reservation in self.reservations:  # the first to begin first
            if shape.is_kept_off(reservation, moment, moment + amounts.length):
                moment = reservation.end
        return moment

    def these(self, uuids: Sequence[str]) -> list[GpuTimeline]:
        """The GPUs with these UUIDs that still exist."""
        return [gpu for gpu in self.gpus if gpu.uuid in uuids]

    def gpus_of(self, task: str) -> list[GpuTimeline]:
        """The GPUs that nobody else can have because of a task that is on the node now."""
        return self._there[task][1]

    def load_of(self, task: str) -> Load | None:
        """The load of a task that is on the node now."""
        return self.loads[self._there[task][0]] if task in self._there else None

    def openings(self, sharing: Sharing = ALONE) -> list[float]:
        """When each GPU opens from now on, sorted. So no three GPUs are open before the third of these times."""
        found = self._openings.get(sharing)
        if found is None:
            found = self._openings[sharing] = sorted([gpu.opens(self.now, sharing) for gpu in self.gpus])
        return found

    @property
    def open_gpus(self) -> int:
        """The number of GPUs that are free now."""
        return self.open_to(ALONE)

    def open_to(self, sharing: Sharing) -> int:
        """The number of GPUs that are open now to a task with these terms."""
        return bisect.bisect_right(self.openings(sharing), self.now)

    def open_at(self, moment: float, sharing: Sharing) -> int:
        """The same at a later time."""
        return sum([gpu.opens(moment, sharing) <= moment for gpu in self.gpus])

    def open_of(self, sharing: Sharing) -> tuple[int, ...]:
        """The same for each kind, in the order of `kinds`."""
        if len(self.kinds) == 1:
            return (self.open_to(sharing),)
        counts = Counter([gpu.rated for gpu in self.gpus if gpu.opens(self.now, sharing) <= self.now])
        return tuple([counts[name, total, part] for name, total, part, _ in self.kinds])

    def has_free(self, amounts: Amounts) -> bool:
        """Whether so many cores and so much memory are free now. More may be set aside than there is."""
        if amounts.cores and amounts.cores > self.free_cores + 1e-9:
            return False
        return not amounts.memory or amounts.memory <= self.free_memory

    @property
    def unsure(self) -> bool:
        """Whether the end of any load here was estimated."""
        return self._unsure > 0

    @property
    def in_use(self) -> float:
        """The larger share, 0 to 1, of its cores and of its memory that is set aside now."""
        cores = 0.0 if self.cores == math.inf else 1 - self.free_cores / self.cores
        return max(cores, 0.0 if self.memory == math.inf else 1 - self.free_memory / self.memory)

    # ---------------------------------------------------------------- changing

    def start(self, shape: Shape, amounts: Amounts, gpus: Sequence[GpuTimeline]) -> tuple[Placement, Load]:
        """Take GPUs, cores and memory for a task from now on."""
        host = self.node.observation.host
        now = [load for load in self.loads if load.begin <= self.now]
        can_pin = shape.bare or self.engine is None or "cpuset" not in self.engine.lacks
        numa = pinned(host, now, shape, amounts, gpus) if host and can_pin else None
        self.last_start = self.now
        if self.node.trial:
            self.closed = self.node.reason  # one trial at a time
        placement = Placement(
            node=self.name,
            gpus=tuple(gpu.number for gpu in gpus),
            gpu_uuids=tuple(gpu.uuid for gpu in gpus),
            cpus=numa.cpus if numa else None,
            numa=numa.id if numa else None,
            gpu_total=min(gpu.total for gpu in gpus) if shape.sharing.limit > 1 else 0,
            vendor=next((gpu.vendor or None for gpu in gpus), None),
            parents=tuple(gpu.parent or "" for gpu in gpus) if any(gpu.parent for gpu in gpus) else (),
        )
        return placement, self.put(shape, amounts, gpus, self.now, numa=placement.numa)

    def put(
        self,
        shape: Shape,
        amounts: Amounts,
        gpus: Sequence[GpuTimeline],
        begin: float,
        *,
        firm: bool = False,
        lends: bool = False,
        numa: int | None = None,
    ) -> Load:
        """Take GPUs, cores and memory for a task."""
        end = self._end(amounts, begin)
        sure = amounts.sure or end == math.inf
        wants = amounts.cores, amounts.memory, shape.exclusive, shape.sharing, numa
        load = Load(begin, end, *wants, sure=sure, firm=firm, lends=lends)
        self._put(gpus, load)
        return load

    def take_back(self, gpus: Sequence[GpuTimeline], load: Load) -> None:
        """Undo a `put`."""
        for gpu in gpus:
            gpu.taken.remove((load.begin, load.end, load.sharing))
            if self._owes(load):
                gpu.owed.remove((load.begin, load.end))
        self.loads.remove(load)
        self._count(load, -1)

    def ends(self, task: str, moment: float) -> None:
        """Let a task that is here now end at this time, or at its own end if that is earlier."""
        if task not in self._there:
            return
        at, gpus, own = self._there[task]
        before = self.loads[at]
        load = own if own.end <= moment else own._replace(end=moment, sure=True)
        for gpu in gpus:
            # The first entry of a foreign GPU stands for its processes.
            entry = gpu.taken.index((before.begin, before.end, before.sharing), int(gpu.foreign))
            gpu.taken[entry] = load.begin, load.end, load.sharing
        self.loads[at] = load
        self._count(before, -1)
        self._count(load, 1)

    def _put(self, gpus: Sequence[GpuTimeline], load: Load) -> None:
        entry = load.begin, load.end, load.sharing
        for gpu in gpus:
            gpu.taken.append(entry)
        if self._owes(load):
            for gpu in gpus:
                gpu.owed.append((load.begin, load.end))
        self.loads.append(load)
        self._count(load, 1)

    def _owes(self, load: Load) -> bool:
        """Whether it is promised to one for whom nobody gives way."""
        return load.begin > self.now and not load.lends

    def _count(self, load: Load, times: int) -> None:
        if load.begin <= self.now:
            self.free_cores -= times * load.cores
            self.free_memory -= times * load.memory
        self._exclusive += times * load.exclusive
        self._firm += times * load.firm
        self._unsure += times * (not load.sure)
        self._openings.clear()

    def _end(self, amounts: Amounts, begin: float) -> float:
        return begin + (amounts.length if amounts.sure or not self._firm else math.inf)

    def _released(self, what: str, wanted: float) -> float:
        """When so much more of it will be free than now."""
        part = attrgetter(what)
        for load in sorted((load for load in self.loads if load.begin <= self.now), key=attrgetter("end")):
            wanted -= part(load)
            if wanted <= 1e-9:
                return load.end
        return math.inf

    def _serves(self, shape: Shape, amounts: Amounts) -> bool:
        """Whether the node may be tried with such a task, gives it GPUs, and has the control groups that it needs."""
        trial = self.node.trial
        if trial and not trial.is_tried_by(bare=shape.bare, gpus=shape.gpus > 0):
            return False
        if shape.gpus and not shape.bare and not self._gives_gpus:
            return False
        return not lacking(self.engine, bare=shape.bare, cores=amounts.cores, memory=amounts.memory, numa=shape.numa)

    def _has_capacity(self, shape: Shape, amounts: Amounts, begin: float, gone: float, end: float) -> bool:
        """Whether the node has room for a task from `begin` to `end` that can be `gone` before, except for its GPUs."""
        if self.reservations and any(shape.is_kept_off(each, begin, gone) for each in self.reservations):
            return False
        if not shape.exclusive and not amounts.cores and not amounts.memory and not self._exclusive:
            return True
        others = [load for load in self.loads if load.begin < (gone if load.lends else end) and begin < load.end]
        if any(load.exclusive for load in others) or (shape.exclusive and others):
            return False
        if not amounts.cores and not amounts.memory:
            return True
        # Usage only grows when a load begins.
        for moment in {begin, *[load.begin for load in others if load.begin > begin]}:
            cores, memory = amounts.cores, amounts.memory
            for load in others:
                if load.begin <= moment < load.end:
                    cores += load.cores
                    memory += load.memory
            if (amounts.cores and cores > self.cores + 1e-9) or (amounts.memory and memory > self.memory):
                return False
        return True
