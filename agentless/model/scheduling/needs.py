"""The needs of a task, and the grammar of targets.

A target is one of

    HOST[:NUMA][::GPU,…]      this node; node1::0,1 and node1::0-3 exactly these GPUs of it, node1:0 its NUMA node 0;
                              node1::0/1 is slice 1 of its GPU 0, and node1::0/0-2 three slices
    COUNTx[TYPE,…][:SIZE]     so many GPUs anywhere; 2xA100:40G are two A100 with 40 GB each, 1x:24G any with 24 GB

The grammar is parsed here and nowhere else. A node whose name reads like the second form is reached by `--node`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache

from agentless.errors import UsageError
from agentless.model.nodes.device import GpuNumber, parts_of
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.model.units import GPU_MEMORY, parse_size, short_size

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAX_GPUS = 10_000
_HOW = "use HOST, HOST::GPU,… or HOST:NUMA::GPU,…, like node1::0,1; or COUNTxTYPE:SIZE, like 2xA100:40G"
SLICE_TYPE = "mig"
"""The GPU type that every slice has."""
_COUNTED = re.compile(r"([0-9]{1,5})[xX](.*)", re.DOTALL)
_RANGE = re.compile(r"(?:([0-9]{1,4})/)?([0-9]{1,4})(?:-([0-9]{1,4}))?")
_TYPE = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9*?. _+-]*")
_PROFILE = re.compile(r"[0-9]{1,2}[cg]\b.*")


@dataclass(frozen=True, slots=True)
class Needs:
    """How many GPUs of which kind, and which nodes match.

    `gpu_memory` is the minimum per GPU in bytes, free and in total. `gpu_types` are patterns, the best first. `nodes`
    are the allowed names (none: all), and `on` labels that the node must have. `indices` are exactly the GPUs wanted of
    the one node, or slices of them, as `nvidia-smi` counts now, and `gpus` is their number. `exclusive`: nothing else
    of agentless on the node. `gpu_share` is how many tasks may be on each of its GPUs, itself included; 1: it has them
    alone.
    """

    gpus: int = 0
    gpu_memory: int | None = None
    gpu_types: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    on: Mapping[str, str] = field(default_factory=dict)
    numa: int | None = None
    indices: tuple[GpuNumber, ...] = ()
    exclusive: bool = False
    policy: str | None = None
    gpu_share: int = 1

    @property
    def sharing(self) -> Sharing:
        """The terms of sharing of its GPUs."""
        return Sharing(self.gpu_share, self.gpu_memory or 0) if self.gpu_share > 1 else ALONE

    @property
    def slices(self) -> bool:
        """Whether a slice will do: it is asked for by its type, or one device by its memory alone."""
        if self.gpu_types:
            return any(map(is_slice_type, self.gpu_types))
        return self.gpus == 1 and self.gpu_memory is not None and not self.indices

    @property
    def node(self) -> str | None:
        """The node, if only one is allowed."""
        return self.nodes[0] if len(self.nodes) == 1 else None

    def __str__(self) -> str:
        """The target, and in words what no target can say: `node2::0:8G 1/3` shares its GPU with up to two more."""
        size = "" if self.gpu_memory is None else f":{short_size(self.gpu_memory)}"
        counted = f"{self.gpus}x{','.join(self.gpu_types)}{size}" if self.gpus else ""
        numa = "" if self.numa is None else f":{self.numa}"
        exact = "::" + ",".join(map(str, self.indices)) if self.indices else ""
        words = [f"{self.node}{numa}{exact}{size if exact else ''}"] if self.node else []
        if counted and (not exact or self.gpu_types):
            words.append(counted)
        words += [f"on {' or '.join(self.nodes)}"] if len(self.nodes) > 1 else []
        words += [f"not on {' or '.join(self.exclude)}"] if self.exclude else []
        words += [f"{key}={value}" for key, value in self.on.items()]
        words += ["exclusive"] if self.exclusive else []
        words += [f"1/{self.gpu_share}"] if self.gpu_share > 1 else []
        return " ".join(words) or "any node"


def is_counted(text: str) -> bool:
    """Whether a target is a number of GPUs on any node, like `2xA100:40G`."""
    return _COUNTED.fullmatch(text) is not None


def parse_target(text: str) -> Needs:
    """Parse a target; `hpc 2xA100` is two GPUs there. Raises UsageError that says which part is wrong."""
    place, blank, request = text.partition(" ")
    if blank and NODE_NAME.fullmatch(place) and not is_counted(place) and is_counted(request):
        return replace(parse_target(request), nodes=(place,))
    if match := _COUNTED.fullmatch(text):
        return _counted(text, int(match[1]), match[2])
    place, separator, gpu_text = text.partition("::")
    host, colon, numa_text = place.partition(":")
    if not NODE_NAME.fullmatch(host):
        raise UsageError(f"target {text!r}: {f'{host!r} is not a node name' if host else 'no node'}; {_HOW}")
    if colon and not _is_index(numa_text):
        raise UsageError(f"target {text!r}: NUMA node {numa_text!r} is not a number; {_HOW}")
    numa = int(numa_text) if colon else None
    if not separator:
        return Needs(nodes=(host,), numa=numa)
    if not gpu_text:
        raise UsageError(f"target {text!r}: no GPU after '::'; {_HOW}, or {host} for no GPU")
    indices = _indices(text, gpu_text)
    return Needs(gpus=len(indices), nodes=(host,), numa=numa, indices=indices)


def joined(needs: Needs, target: Needs, text: str) -> Needs:
    """The needs of options, extended by a target. Raises UsageError if they contradict each other."""
    if target.indices and (needs.gpus or needs.gpu_types):
        raise UsageError(f"target {text!r} specifies its GPUs; omit --gpus and --gpu-type, or use {target.node}")
    if target.gpus and needs.gpus:
        raise UsageError(f"target {text!r} specifies the number of GPUs; omit --gpus")
    if (target.gpu_types and needs.gpu_types) or (target.gpu_memory and needs.gpu_memory):
        raise UsageError(f"target {text!r} specifies the kind of GPU; omit --gpu-type and --gpu-memory")
    if target.nodes and needs.nodes:
        raise UsageError(f"target {text!r} specifies its node; omit --node")
    return replace(
        needs,
        gpus=target.gpus or needs.gpus,
        gpu_memory=target.gpu_memory or needs.gpu_memory,
        gpu_types=target.gpu_types or needs.gpu_types,
        nodes=target.nodes or needs.nodes,
        numa=target.numa,
        indices=target.indices,
    )


def parse_gpu_types(text: str) -> tuple[str, ...]:
    """Parse patterns separated by commas. Raises UsageError for a pattern that matches no name."""
    found = tuple(part.strip() for part in text.split(","))
    for part in found:
        if not _TYPE.fullmatch(part):
            raise UsageError(f"GPU type {part!r}: use a part of its name, like A100, or a pattern, like RTX*")
    return found


@lru_cache(maxsize=4096)
def is_type(name: str | None, pattern: str) -> bool:
    """Whether a GPU with this name matches: the words of the pattern are adjacent words of the name, in this order.

    `A100`, `a100-sxm4` and `A100*` are the `NVIDIA A100-SXM4-80GB`; `RTX 3090` is also the `RTX 3090 Ti`.
    """
    wanted, words = _words(pattern), _words(name or "")
    tries = range(len(words) - len(wanted) + 1)
    return any(all(map(fnmatchcase, words[at : at + len(wanted)], wanted)) for at in tries)


@lru_cache(maxsize=4096)
def is_slice_type(pattern: str) -> bool:
    """Whether a pattern is about slices of GPUs: `mig`, or a profile like `1g.10gb` or `1g*`."""
    return any(word == SLICE_TYPE or _PROFILE.fullmatch(word) for word in _words(pattern))


def _counted(text: str, count: int, rest: str) -> Needs:
    types, colon, size = rest.partition(":")
    if not 1 <= count <= MAX_GPUS:
        raise UsageError(f"target {text!r}: {count} GPUs are out of range; use 1x to {MAX_GPUS}x, or a node for no GPU")
    if colon and not size:
        raise UsageError(f"target {text!r}: no size after ':'; {_HOW}")
    try:
        gpu_types = parse_gpu_types(types) if types else ()
        memory = parse_size(size, GPU_MEMORY) or None if colon else None
    except UsageError as error:
        raise UsageError(f"target {text!r}: {error}") from None
    return Needs(gpus=count, gpu_memory=memory, gpu_types=gpu_types)


def _indices(text: str, gpu_text: str) -> tuple[GpuNumber, ...]:
    found: list[GpuNumber] = []
    for part in gpu_text.split(","):
        match = _RANGE.fullmatch(part) if part.isascii() else None
        if not match and "/" in part:
            how = f"like {text.partition('::')[0]}::0/1 for slice 1 of GPU 0"
            raise UsageError(f"target {text!r}: {part!r} is not a slice of a GPU; use HOST::GPU/SLICE, {how}")
        if not match:
            raise UsageError(f"target {text!r}: GPU {part!r} is not a number; {_HOW}")
        first, last = int(match[2]), int(match[3] or match[2])
        gpu = "" if match[1] is None else f"{int(match[1])}/"
        if last < first:
            raise UsageError(f"target {text!r}: GPUs {part!r} are in reverse order; use {gpu}{last}-{first}")
        found += [f"{gpu}{number}" if gpu else number for number in range(first, last + 1)]
    twice = sorted({gpu for gpu in found if found.count(gpu) > 1}, key=parts_of) if len(set(found)) < len(found) else ()
    if twice:
        raise UsageError(f"target {text!r}: GPU {twice[0]} is listed twice; list each GPU once")
    whole = next((gpu for gpu in found if isinstance(gpu, str) and parts_of(gpu)[0] in found), None)
    if whole is not None:
        gpu = str(parts_of(whole)[0])
        raise UsageError(f"target {text!r}: GPU {gpu} is listed whole, and its slice {whole} too; list one of both")
    return tuple(found)


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _words(text: str) -> list[str]:
    return re.split(r"[ _-]+", text.strip().lower())
