"""One look at a long queue in a large cluster, and how it grows: `rules/scheduling/plan.py`, without a controller.

It waits for nothing and has one thread, so its seconds are those of the processor: whatever else runs does not count.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agentless.controller.process import COLLECT_AFTER
from agentless.controller.scheduling.queue import POLICIES
from agentless.model.nodes.cluster import Allocation, Cluster, Gpu, Node, Observation, Yields
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.node import HostFacts, NodeConfig
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.tasks.terms import Terms
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import PROMISES, STARTS, Plan, plan
from agentless.rules.tasks.gangs.gangs import named_members
from tests.bench.measure import Row, milliseconds, paired, ratio

NODES, GPUS, TASKS = 1000, 8, 10_000
MOST, MOST_WITH_GANGS = 0.2, 0.25
GANGS = 500
MOST_OF_PEER = 1.0
PARTS = (8, 4, 2, 1)
LEAST_TIMES = 3
_WHAT = f"one look at {TASKS:,} waiting tasks, {NODES:,} nodes of {GPUS} GPUs"
_NOW = 1.8e9
_GB = 10**9
_MODELS = (("NVIDIA A100-SXM4-80GB", 81920), ("NVIDIA H100 PCIe", 81559), ("NVIDIA GeForce RTX 3090", 24576))
_LIMITS = (None, 600, 3600)
_POLICIES = {name: POLICIES[name or "pack"] for name in (None, *POLICIES)}


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster of which the share `busy` of the GPUs is taken, and how each task of the queue is drawn.

    So many `gangs` are among the tasks, of 2 to 8 members with 4 or 8 GPUs each.
    """

    name: str
    busy: float
    spec: Callable[[random.Random], TaskSpec]
    waited: bool = False
    gangs: int = 0


def bench(runs: int) -> list[Row]:
    """Each case by itself: what lies about of another one would be looked through for garbage, too."""
    gc.set_threshold(COLLECT_AFTER)  # as the controller does
    times = max(LEAST_TIMES, runs // 3)
    return [*(row for case in CASES for row in _rows(case, times)), _preemption(times)]


def _rows(case: Case, times: int) -> Iterator[Row]:
    cluster, queue = _cluster(case.busy, NODES), _queue(case, TASKS)
    yield _look(case, cluster, queue, times)
    if case in (CASES[0], CASES[-1]):
        pairs = paired(partial(_timed, cluster, queue), partial(_peer, cluster, queue), times)
        yield ratio("the same : a plain loop over tasks and nodes", MOST_OF_PEER, pairs)
        yield _growth(case, times)


def _look(case: Case, cluster: Cluster, queue: Sequence[Task], times: int) -> Row:
    before = plan(cluster, order(queue), _NOW, _POLICIES) if case.waited else None
    now = _NOW + 2 if case.waited else _NOW
    seconds = [_timed(cluster, queue, now=now, before=before) for _ in range(times)]
    return _at_most(f"{_WHAT}: {case.name}", MOST_WITH_GANGS if case.gangs else MOST, seconds)


def _at_most(what: str, most: float, seconds: Sequence[float]) -> Row:
    found = statistics.median(seconds)
    spread = f"{milliseconds(min(seconds))} … {milliseconds(max(seconds))}; n={len(seconds)}"
    return Row(what, f"≤ {milliseconds(most)}", f"**{milliseconds(found)}** ({spread})", found <= most)


def _preemption(times: int) -> Row:
    """A gang that asks for whole nodes, where each GPU has a member of another preemptible gang."""
    draw, cluster, size = random.Random(1), _cluster(1.0, NODES), 8
    tasks = [each.task for node in cluster.nodes.values() for each in node.allocations]
    draw.shuffle(tasks)
    yields = dict[str, Yields]()
    for at in range(0, len(tasks), size):
        mates = tuple(tasks[at : at + size])
        yields |= dict.fromkeys(mates, Yields(0.0, 25.0, _NOW - draw.uniform(60, 9999), mates))
    lent = {
        name: replace(node, allocations=tuple(replace(each, yields=yields[each.task]) for each in node.allocations))
        for name, node in cluster.nodes.items()
    }
    specs = [replace(_spec(GPUS, None), gang=Gang(4, rank)) for rank in range(4)]
    asking = named_members([Task(f"q{rank}", spec, "b", "me", _NOW) for rank, spec in enumerate(specs)])
    seconds = [_timed(Cluster(lent), asking) for _ in range(times)]
    what = f"one look if a gang of 4 whole nodes asks others to give way, {NODES:,} nodes full of preemptible gangs"
    return _at_most(what, MOST_WITH_GANGS, seconds)


def _growth(case: Case, times: int) -> Row:
    """What is done at most in one look grows along, or it would hide how the rest grows."""
    sizes = [TASKS // part for part in PARTS]
    fleets = [(_cluster(case.busy, NODES // part), _queue(case, TASKS // part), part) for part in PARTS]
    rounds = [[_timed(cluster, queue, part=part) for cluster, queue, part in fleets] for _ in range(2 * times)]
    seconds = [min(column) for column in zip(*rounds, strict=True)]
    over = [each / (size * math.log(size)) for each, size in zip(seconds, sizes, strict=True)]
    smaller = ", ".join(f"1/{part}" for part in PARTS[:-1])
    what = "the same over n log n : that with an eighth of nodes, tasks, starts and promises"
    measured = f"**{over[-1] / over[0]:.2f} ×** (at {smaller} and all: {' · '.join(map(milliseconds, seconds))})"
    return Row(what, "≤ 1 ×", measured, over[-1] <= over[0])


def _timed(
    cluster: Cluster, queue: Sequence[Task], *, now: float = _NOW, before: Plan | None = None, part: int = 1
) -> float:
    gc.collect()
    began = time.process_time()
    plan(cluster, order(queue), now, _POLICIES, before, promises=PROMISES // part, starts=STARTS // part)
    return time.process_time() - began


def _peer(cluster: Cluster, queue: Sequence[Task]) -> float:
    """The first node with enough free GPUs for one task after the other; no types, no cores, nothing about later."""
    gc.collect()
    began = time.process_time()
    free = [sum(gpu.state == "free" for gpu in node.gpus) for node in cluster.nodes.values()]
    for task in sorted(queue, key=lambda task: task.created_at):
        wanted = task.spec.needs.gpus
        for number, each in enumerate(free):
            if each >= wanted:
                free[number] -= wanted
                break
    return time.process_time() - began


def _cluster(busy: float, nodes: int) -> Cluster:
    draw, made = random.Random(1), dict[str, Node]()
    for number in range(nodes):
        name = f"node{number}"
        model, mib = draw.choice(_MODELS)
        gpus, allocations = [], []
        for index in range(GPUS):
            reading = GpuReading(index, f"GPU-{number}-{index}", model, memory_total_mib=mib, memory_used_mib=0)
            held = None
            if draw.random() < busy:
                limit = draw.randint(10, 100_000) if draw.random() < 0.8 else None
                held = Allocation(f"t{number}-{index}", "me", (reading.uuid,), 4, 0, False, _NOW - 5, limit)
                allocations.append(held)
            gpus.append(Gpu(reading, "allocated" if held else "free", "", (held,) if held else ()))
        seen = Observation(None, host=HostFacts(64, 512 * 1024))
        made[name] = Node(NodeConfig(name, name), "online", "", tuple(gpus), seen, tuple(allocations))
    return Cluster(made)


def _queue(case: Case, tasks: int) -> list[Task]:
    draw = random.Random(2)
    sizes = [draw.choice((2, 2, 4, 8)) for _ in range(case.gangs)]
    sizes += [1] * (tasks - sum(sizes))
    draw.shuffle(sizes)
    specs = (spec for size in sizes for spec in _together(case.spec(draw), size, draw))
    return named_members([Task(f"q{number}", spec, "b", "me", _NOW) for number, spec in enumerate(specs)])


def _together(spec: TaskSpec, size: int, draw: random.Random) -> list[TaskSpec]:
    """The specs of the members of a gang, or that of a task."""
    if size == 1:
        return [spec]
    spec = replace(spec, needs=replace(spec.needs, gpus=draw.choice((4, 8))))
    return [replace(spec, gang=Gang(size, rank, alike=size)) for rank in range(size)]


def _spec(
    gpus: int, limit: float | None, memory: int | None = None, cores: int | None = None, **needs: object
) -> TaskSpec:
    return TaskSpec(("x",), needs=Needs(gpus=gpus, **needs), terms=Terms(time_limit=limit), cores=cores, memory=memory)  # type: ignore[arg-type]


def _mixed(draw: random.Random) -> TaskSpec:
    return _spec(
        draw.choice((1, 1, 1, 2, 4, 8)),
        draw.choice((*_LIMITS, draw.randint(60, 86_400))),
        draw.choice((None, 8 * _GB)),
        draw.choice((None, 2, 4)),
        gpu_memory=draw.choice((None, 10 * _GB, 40 * _GB)),
        gpu_types=draw.choice(((), ("A100",), ("H100", "A100"))),
    )


def _distinct(draw: random.Random) -> TaskSpec:
    return _spec(
        draw.randint(1, 8),
        draw.randint(60, 86_400),
        draw.randint(1, 64 * _GB),
        draw.randint(1, 32),
        gpu_memory=draw.randint(1, 80 * _GB),
    )


CASES = (
    Case("nine in ten GPUs taken, mixed tasks", 0.9, _mixed),
    Case("all GPUs taken, mixed tasks", 1.0, _mixed),
    Case("all GPUs taken, and the promises of a look before kept", 1.0, _mixed, waited=True),
    Case("all GPUs free, mixed tasks", 0.0, _mixed),
    Case("all GPUs taken, each task wants 8", 1.0, lambda draw: _spec(8, draw.choice(_LIMITS))),
    Case("half taken, each task wants 8", 0.5, lambda draw: _spec(8, draw.choice(_LIMITS))),
    Case("all GPUs taken, each time limit another", 1.0, lambda draw: _spec(1, draw.randint(60, 86_400))),
    Case("nine in ten taken, each task of another shape", 0.9, _distinct),
    *(
        Case(f"{words}, {GANGS} gangs among mixed tasks", busy, _mixed, waited, GANGS)
        for words, busy, waited in (
            ("nine in ten GPUs taken", 0.9, False),
            ("half taken", 0.5, False),
            ("all taken, and the promises of a look before kept", 1.0, True),
        )
    ),
    Case("all GPUs taken, each task of another shape", 1.0, _distinct),
)
