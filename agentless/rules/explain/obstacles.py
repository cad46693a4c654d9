"""Why a task does not start: the obstacles on each node, in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentless.errors import AgentlessError, Refused, Unreachable
from agentless.model.nodes.cluster import Cluster, Gpu, Node
from agentless.model.nodes.device import GpuNumber, parts_of
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.node import all_named, naming, unreachable
from agentless.model.scheduling.needs import is_slice_type
from agentless.model.scheduling.reservation import Reservation
from agentless.model.scheduling.sharing import Sharing
from agentless.model.tasks.spec import TaskSpec
from agentless.model.text import enumerated, printable
from agentless.model.units import counted, format_duration, format_indices, format_size, short_size
from agentless.rules.explain.flaws import Flaw, flaw_sentences
from agentless.rules.nodes.cgroup_limits import lacking, why_lacking
from agentless.rules.nodes.desktop import desktop_words
from agentless.rules.nodes.gpu_access import why_no_gpus, withheld
from agentless.rules.nodes.parts import why_divided
from agentless.rules.nodes.slurm_nodes import why_slurm
from agentless.rules.scheduling.shape import Shape, shape_of

MAX_NODES, MAX_DETAILS, MAX_BRIEF = 8, 4, 3
"""The most nodes in a message, the most details of each, and the most nodes in a line of a table."""

NOBODY: Mapping[GpuNumber, str] = {}
"""No GPU is reserved."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle on a node. A `lasting` obstacle remains when all running tasks have ended.

    `details` say what is wrong with each GPU. If too few GPUs are free and nothing else is wrong, `free` is their
    number, and the same in words.
    """

    text: str
    lasting: bool = False
    details: tuple[str, ...] = ()
    free: tuple[int, str] | None = None

    def __str__(self) -> str:
        details = "; ".join(self.details[:MAX_DETAILS])
        more = f"; and {len(self.details) - MAX_DETAILS} more" if len(self.details) > MAX_DETAILS else ""
        return self.text + (f" ({details}{more})" if details else "")


def obstacles(node: Node, spec: TaskSpec, owner: str, now: float) -> tuple[Obstacle, ...]:
    """The obstacles for a task on a node now, without promises to other tasks. Empty if it fits."""
    shape = shape_of(spec, owner)
    if ruled_out := shape.rules_out(node.config):
        return (Obstacle(ruled_out, lasting=True),)
    if slurm := why_slurm(node.config, node.observation):
        return (Obstacle(slurm, lasting=True),)
    found = []
    if node.state == "offline":
        found.append(Obstacle(unreachable(node.name, node.reason)))
    elif node.state != "online" and not (node.trial and node.trial.is_tried_by(bare=shape.bare, gpus=shape.gpus > 0)):
        found.append(Obstacle(f"{node.name} is {node.state}: {node.reason}"))
    found += _host_obstacles(node, spec)
    memory, engine = float(spec.memory or 0), node.observation.engine
    lacks = lacking(engine, bare=shape.bare, cores=spec.cores or 0.0, memory=memory, numa=shape.numa)
    found += [Obstacle(why_lacking(node.config, control), lasting=True) for control in lacks]
    if shape.gpus and not shape.bare and (no_gpus := why_no_gpus(node)):
        found.append(Obstacle(no_gpus, lasting=True))
    if shape.exclusive and node.allocations:
        found.append(Obstacle(f"needs {node.name} to itself; {_tasks(node)} there"))
    elif alone := next((a for a in node.allocations if a.exclusive), None):
        found.append(Obstacle(f"{alone} has {node.name} to itself"))
    end = now + (spec.ends_within or math.inf)
    barring = [each for each in node.reservations if shape.is_barred(each, now, end)]
    for each in barring:
        if shape.exclusive or not each.gpus:
            what = f"needs {node.name} to itself; {each.target}" if each.gpus else node.name
            found.append(Obstacle(f"{what} is {_reserved(each, spec, now)}"))
    numbers = [gpu.reading.number for gpu in node.gpus]
    reserved = {
        number: _reserved(each, spec, now)
        for each in reversed(barring)
        for number in numbers
        if each.gpus and each.covers(number)
    }
    found += _gpu_obstacles(node, shape, reserved)
    return tuple(found)


def against(cluster: Cluster, spec: TaskSpec, owner: str = "") -> Mapping[str, tuple[Obstacle, ...]]:
    """The obstacles on each node that the task may use. If it may use none: on those that it names, or on all.

    `owner` is the owner of the task. If it is empty, no reservation is for the task.
    """
    found = {name: obstacles(node, spec, owner, cluster.at) for name, node in cluster.nodes.items()}
    shape = shape_of(spec)
    usable = {name: each for name, each in found.items() if not shape.rules_out(cluster.nodes[name].config)}
    return usable or {name: found[name] for name in shape.nodes if name in found} or found


def never(cluster: Cluster, spec: TaskSpec, owner: str = "") -> str | None:
    """Why no node can ever run the task, or None if one may."""
    found = against(cluster, spec, owner)
    able = [name for name, each in found.items() if not any(obstacle.lasting for obstacle in each)]
    if len(able) >= (wanted := _nodes_for(spec)):
        return None
    if able:
        rest = {name: each for name, each in found.items() if name not in able}
        return f"{_only(able)} can run {asked(spec)}, and the task needs {wanted} nodes{_by_node(rest) if rest else ''}"
    lasting = {name: tuple(obstacle for obstacle in each if obstacle.lasting) for name, each in found.items()}
    return f"{no_node(spec)}{_by_node(lasting)}"


def no_node(spec: TaskSpec) -> str:
    """That no node can ever run the task, in short."""
    return f"no node can run {asked(spec)}"


def asked(spec: TaskSpec) -> str:
    """The request in short. Without GPUs, it includes cores and memory."""
    amounts = [counted(spec.cores, "core")] if spec.cores else []
    amounts += [f"{short_size(spec.memory)} of memory"] if spec.memory else []
    return f"{' and '.join(amounts)} on {spec.needs}" if amounts and not spec.needs.gpus else str(spec.needs)


def refusal(cluster: Cluster, spec: TaskSpec, owner: str = "") -> AgentlessError | None:
    """The error that says why no node can run the task now, or None if one can."""
    found = against(cluster, spec, owner)
    able = [name for name, each in found.items() if not each]
    if len(able) >= (wanted := _nodes_for(spec)):
        return None
    if able:
        rest = {name: each for name, each in found.items() if each}
        words = f"{asked(spec)} on {wanted} nodes cannot start now; {_only(able)} can start it"
        return Refused(f"{words}{_by_node(rest) if rest else ''}")
    several = len(found) > 1
    if all(cluster.nodes[name].state == "offline" for name in found):
        reasons = _by_node({name: each[:1] for name, each in found.items()})
        return Unreachable(f"{spec.needs}: no node can be reached{reasons}" if several else reasons.removeprefix(": "))
    return Refused(f"{spec.needs}{' cannot start now' if several else ''}{_by_node(found)}")


def brief(cluster: Cluster, spec: TaskSpec, owner: str = "") -> str:
    """The most relevant reason why the task does not start now, without details. Empty if it would."""
    found = [obstacles(node, spec, owner, cluster.at) for node in cluster.nodes.values()]
    passing = [each for each in found if not any(obstacle.lasting for obstacle in each)]
    if not passing:
        return no_node(spec)
    if (wanted := _nodes_for(spec)) > 1:
        able = sum(not each for each in passing)
        return "" if able >= wanted else f"needs {wanted} nodes for {asked(spec)}; {able} can start it now"
    nearest = min(passing, key=len)
    free = [each[0].free for each in passing if len(each) == 1 and each[0].free]
    if len(nearest) == 1 and nearest[0].free:
        most = [words for _, words in sorted(free, key=lambda each: -each[0])]
        return f"{_wanted(shape_of(spec))}; {_listed(most)} {_are(*(number for number, _ in free))} free"
    return "; ".join(obstacle.text for obstacle in nearest)


def _nodes_for(spec: TaskSpec) -> int:
    """On how many nodes such a task starts at once: the members of its gang that need the same."""
    return spec.gang.alike if spec.gang else 1


def _only(able: Sequence[str]) -> str:
    return f"only {able[0]}" if len(able) == 1 else f"only {len(able)} nodes"


def flaw_of(gpu: Gpu, shape: Shape, reserved: Mapping[GpuNumber, str] = NOBODY) -> Flaw | None:
    """Why a GPU does not match this shape. `reserved` has the words for reserved GPUs, by number."""
    reading, number = gpu.reading, gpu.reading.number
    total, free = reading.memory_total_mib, reading.memory_unused_mib
    wanted, beside = short_size(shape.gpu_memory), f"; {reserved[number]}" if number in reserved else ""
    if shape.rank(reading.name, part=reading.parent is not None) is None:
        return Flaw(number, "is", reading.profile or reading.name or "of unknown model", lasting=True)
    if gpu.no_container and not shape.bare:
        return Flaw(number, "is", f"excluded: {gpu.no_container}", lasting=True)
    if total is not None and total << 20 < shape.gpu_memory:
        return Flaw(number, "has", f"{format_size(total << 20)} of memory, not {wanted}", lasting=True)
    if gpu.state == "partitioned":
        return Flaw(number, "is", _too_small(reading, wanted) if shape.slices else gpu.reason, lasting=True)
    if gpu.state == "foreign" and not shape.share:
        hint = "; add --share to run beside it" if shape.sharing.limit == 1 else ""
        return Flaw(number, "is", f"foreign: {gpu.reason}{hint}{beside}")
    if gpu.state == "allocated" and shape.sharing.limit > 1:
        if (more := _unshared(gpu, shape.sharing)) is not None:
            return Flaw(number, "is", f"allocated: {gpu.reason}{more}{beside}")
    elif gpu.state == "excluded" and not gpu.is_bare:
        return Flaw(number, "is", f"excluded: {gpu.reason}", lasting=True)
    elif gpu.state not in ("free", "foreign", "drained", "excluded"):  # a drained node is an obstacle of its own
        return Flaw(number, "is", f"{gpu.state}: {gpu.reason}{beside}")
    if free is not None and free << 20 < shape.gpu_memory:
        takes = _beside(gpu)
        return Flaw(number, "has", f"{format_size(free << 20)} of free memory, not {wanted}{takes}{beside}")
    return Flaw(number, "is", reserved[number]) if number in reserved else None


# ---------------------------------------------------------------------- inside


def _reserved(reservation: Reservation, spec: TaskSpec, now: float) -> str:
    if reservation.begin <= now:
        return str(reservation)
    if spec.ends_within is None:
        return f"{reservation}; to start before it, set a --time-limit that ends in time"
    return f"{reservation}; the task may run for {format_duration(spec.ends_within)}, into the reservation"


def _too_small(reading: GpuReading, wanted: str) -> str:
    """What is said of a divided GPU to who would take a slice."""
    words = f"{why_divided(reading)}, and no slice of it has {wanted}"
    return f"{words}; ask for less, or ask the admin of the node to divide it otherwise"


def _beside(gpu: Gpu) -> str:
    """What takes memory of a free GPU, if that is no task."""
    if gpu.reading.unified:
        return "; it is the memory of the machine, and other programs use the rest"
    if gpu.reading.unlisted == "wsl":
        return "; programs of Windows use the rest"
    return f"; {desktop_words(gpu.desktop)} and the display use the rest" if gpu.desktop else ""


def _unshared(gpu: Gpu, sharing: Sharing) -> str | None:
    """Why a task that shares GPUs cannot join the others on this GPU, or None if it can."""
    total = gpu.reading.memory_total_mib
    others = [holder.sharing for holder in gpu.holders]
    if gpu.closed or total is None:
        return f"; {gpu.closed}"
    if gpu.intruders or len(others) >= gpu.shares:
        return ""
    if len(others) >= sharing.limit:
        return f"; the task allows {sharing.limit} tasks per GPU"
    left = (total << 20) - sum(other.floor for other in others)
    if sharing.floor > left:
        return f"; {format_size(left)} of its memory is unallocated, not {short_size(sharing.floor)}"
    return None


def _by_node(found: Mapping[str, tuple[Obstacle, ...]]) -> str:
    """The obstacles after a colon: in the same line, or a line for each node; nodes with the same ones share theirs."""
    texts: dict[str, list[str]] = {}
    for name, each in found.items():
        texts.setdefault(printable("; ".join(map(str, each))), []).append(name)
    if len(found) == 1:
        return f": {''.join(texts)}"
    lines = [naming(all_named(names), text) for text, names in texts.items()]
    others = sum(map(len, [*texts.values()][MAX_NODES:]))
    more = [f"and {others} more node{'s' * (others > 1)}"] if others else []
    return "\n  ".join((":", *lines[:MAX_NODES], *more))


def _host_obstacles(node: Node, spec: TaskSpec) -> Iterable[Obstacle]:
    host, numa = node.observation.host, spec.needs.numa
    numas = [n.id for n in host.numa] if host else []
    if numa is not None and numa not in numas and (host or node.state == "online"):
        have = f", only {', '.join(map(str, numas))}" if numas else ""
        yield Obstacle(f"{node.name} has no NUMA node {numa}{have}", lasting=True)
    if host is None:
        return
    if spec.cores and host.cores:
        held, wanted = node.cores_set_aside, f"needs {counted(spec.cores, 'core')}"
        if spec.cores > host.cores:
            yield Obstacle(f"{wanted}; {node.name} has {host.cores}", lasting=True)
        elif spec.cores + held > host.cores + 1e-9:
            free = max(0.0, host.cores - held)
            yield Obstacle(f"{wanted}; {free:g} of {host.cores} {_are(free)} unallocated")
    if spec.memory and host.memory_mib:
        total, set_aside = host.memory_mib << 20, node.memory_set_aside
        wanted, has = short_size(spec.memory), format_size(total)
        if spec.memory > total:
            yield Obstacle(f"needs {wanted} of memory; {node.name} has {has}", lasting=True)
        elif spec.memory + set_aside > total:
            left = format_size(max(0, int(total - set_aside)))
            yield Obstacle(f"needs {wanted} of memory; {left} of {has} is unallocated")


def _gpu_obstacles(node: Node, shape: Shape, reserved: Mapping[GpuNumber, str]) -> Iterable[Obstacle]:
    if shape.indices:
        return _exact_obstacles(node, shape, reserved)
    return _any_obstacles(node, shape, reserved) if shape.gpus and node.observation.sample else ()


def _exact_obstacles(node: Node, shape: Shape, reserved: Mapping[GpuNumber, str]) -> Iterable[Obstacle]:
    # A vanished GPU comes last: another GPU may have its index now.
    by_number = {gpu.reading.number: gpu for gpu in reversed(node.gpus)}
    missing = [number for number in shape.indices if number not in by_number]
    if node.state == "online":
        yield from (Obstacle(_no_such(node, number), lasting=True) for number in missing)
    # The reason of a whole node is not repeated for each of its GPUs.
    asked = [by_number[number] for number in shape.indices if number in by_number]
    asked = [gpu for gpu in asked if node.state == "online" or gpu.state != "unknown"]
    if len(vendors := list(dict.fromkeys(gpu.reading.vendor for gpu in asked))) > 1:
        which = f"GPUs {format_indices(shape.indices)} of {node.name} are of different vendors ({', '.join(vendors)})"
        yield Obstacle(f"{which}; a task gets GPUs of one vendor", lasting=True)
    flaws = _flaws(node, asked, shape, reserved)
    for lasting in (False, True):
        yield from (
            Obstacle(words, lasting) for words in flaw_sentences(flaw for flaw in flaws if flaw.lasting is lasting)
        )


def _any_obstacles(node: Node, shape: Shape, reserved: Mapping[GpuNumber, str]) -> Iterable[Obstacle]:
    gpus = _candidates(node, shape)
    flaws = _flaws(node, gpus, shape, reserved)
    capable = len(gpus) - sum(flaw.lasting for flaw in flaws)
    free = len(gpus) - len(flaws)
    wanted = _wanted(shape)
    sample = node.observation.sample
    if capable < shape.gpus and sample and sample.error is not None and sample.processes is None:
        return  # the node is degraded: a driver that did not answer may have more GPUs than it has listed
    if not gpus and _only_slices(shape):
        yield Obstacle(f"{wanted}; no slices of GPUs there", lasting=True)
    elif capable < shape.gpus:
        why = flaw_sentences(flaw for flaw in flaws if flaw.lasting)
        match = f"only {capable}" if capable else "none"
        match += f" on {node.name} match{'es' if capable == 1 else ''}"
        yield Obstacle(f"{wanted}; {match}", lasting=True, details=why)
    elif free < shape.gpus:
        why = flaw_sentences(flaw for flaw in flaws if not flaw.lasting)
        amount = f"{free} of {capable} on {node.name}"
        verb = "would be" if node.state == "drained" else _are(free)  # as everywhere: no GPU of it is free
        yield Obstacle(f"{wanted}; {amount} {verb} free", details=why, free=(free, amount))
    else:
        yield from _of_one_vendor(node, gpus, shape, flaws)


def _flaws(node: Node, gpus: Iterable[Gpu], shape: Shape, reserved: Mapping[GpuNumber, str]) -> list[Flaw]:
    """Why some of these GPUs do not match. What keeps the GPUs of all vendors from containers is said of the node."""
    kept = {} if shape.bare or why_no_gpus(node) else withheld(node)
    flaws = (
        Flaw(gpu.reading.number, "is", f"kept from containers: {kept[gpu.reading.vendor]}", lasting=True)
        if gpu.reading.vendor in kept
        else flaw_of(gpu, shape, reserved)
        for gpu in gpus
    )
    return [flaw for flaw in flaws if flaw]


def _of_one_vendor(node: Node, gpus: Iterable[Gpu], shape: Shape, flaws: Sequence[Flaw]) -> Iterable[Obstacle]:
    """Whether there are as many of one vendor, where there are enough of all vendors together."""
    for lasting in (True, False):
        out = {flaw.number for flaw in flaws if flaw.lasting or not lasting}
        counts = Counter(gpu.reading.vendor for gpu in gpus if gpu.reading.number not in out)
        if len(counts) > 1 and max(counts.values()) < shape.gpus:
            has = _listed([f"{count} of {vendor}" for vendor, count in counts.items()])
            what = "has" if lasting else "has free"
            yield Obstacle(f"{_wanted(shape)} of one vendor; {node.name} {what} {has}", lasting=lasting)
            return


def _candidates(node: Node, shape: Shape) -> list[Gpu]:
    """The GPUs of a node that are worth a word: slices for who asks for one, whole GPUs for everybody else.

    Who takes both hears of a divided GPU as a whole only if none of its slices has enough memory.
    """
    if not shape.slices or _only_slices(shape):
        return [gpu for gpu in node.gpus if (gpu.reading.parent is not None) == shape.slices]
    slices = [gpu.reading for gpu in node.gpus if gpu.reading.parent]
    fit = {each.parent for each in slices if (each.memory_total_mib or 0) << 20 >= shape.gpu_memory}
    return [gpu for gpu in node.gpus if (gpu.reading.gpu in fit) == (gpu.reading.parent is not None)]


def _only_slices(shape: Shape) -> bool:
    """Whether only a slice of a GPU will do."""
    return bool(shape.gpu_types) and all(map(is_slice_type, shape.gpu_types))


def _wanted(shape: Shape) -> str:
    return f"needs {counted(shape.gpus, 'slice' if _only_slices(shape) else 'GPU')}"


def _are(*counts: float) -> str:
    return "is" if counts == (1,) else "are"


def _listed(words: Sequence[str]) -> str:
    """The most frequent entries, in words, and the number of others."""
    others = len(words) - MAX_BRIEF
    more = [f"not enough on {others} other node{'s' if others > 1 else ''}"] if others > 0 else []
    return enumerated((*words[:MAX_BRIEF], *more))


def _no_such(node: Node, number: GpuNumber) -> str:
    """That a GPU or slice does not exist, and which ones do."""
    gpu, part = parts_of(number)
    whole = [each.reading for each in node.gpus if each.reading.parent is None]
    if part >= 0 and (its := next((each for each in whole if each.index == gpu), None)):
        slices = [each.reading.number for each in node.gpus if each.reading.parent == its.uuid]
        others = f", only {format_indices(slices)}" if slices else "; it is not divided into slices"
        return f"GPU {gpu} of {node.name} has no slice {number}{others}"
    indices = sorted({each.index for each in whole})
    others = f", only GPU{'s' * (len(indices) > 1)} {format_indices(indices)}" if indices else " and no others"
    return f"{node.name} has no GPU {number}{others}"


def _tasks(node: Node) -> str:
    first, *rest = node.allocations
    return f"{first} and {len(rest)} more run" if rest else f"{first} runs"
