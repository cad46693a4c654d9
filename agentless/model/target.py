"""A target names where a task runs: `HOST[:NUMA][::GPU,…]`.

`node1` is the node without a GPU, `node1::0,1` its GPUs 0 and 1, `node1:0` NUMA node 0's CPUs and memory,
`node1:0::2` both. The grammar is parsed here and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentless.errors import UsageError

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOW = "write HOST, HOST::GPU,… or HOST:NUMA::GPU,…, for example node1::0,1"


@dataclass(frozen=True, slots=True)
class Target:
    """One node, at most one of its NUMA nodes, and GPU indices as `nvidia-smi` counts them now."""

    node: str
    numa: int | None = None
    gpus: tuple[int, ...] = ()

    def __str__(self) -> str:
        numa = "" if self.numa is None else f":{self.numa}"
        gpus = "::" + ",".join(map(str, self.gpus)) if self.gpus else ""
        return f"{self.node}{numa}{gpus}"


def parse_target(text: str) -> Target:
    """The target that `text` names, or a UsageError that says which part is wrong."""
    place, separator, gpu_text = text.partition("::")
    host, colon, numa_text = place.partition(":")
    if not NODE_NAME.fullmatch(host):
        raise UsageError(f"target {text!r}: {'no node' if not host else f'{host!r} is no node name'}; {_HOW}")
    if colon and not _is_index(numa_text):
        raise UsageError(f"target {text!r}: NUMA node {numa_text!r} is not a number; {_HOW}")
    if not separator:
        return Target(host, int(numa_text) if colon else None)
    if not gpu_text:
        raise UsageError(f"target {text!r}: no GPU after '::'; {_HOW}, or {host} for no GPU")
    parts = gpu_text.split(",")
    for part in parts:
        if not _is_index(part):
            raise UsageError(f"target {text!r}: GPU {part!r} is not a number; {_HOW}")
    gpus = tuple(int(part) for part in parts)
    twice = sorted({gpu for gpu in gpus if gpus.count(gpu) > 1})
    if twice:
        raise UsageError(f"target {text!r}: GPU {twice[0]} is named twice; name each GPU once")
    return Target(host, int(numa_text) if colon else None, gpus)


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
