"""The nodes of a cluster, as `sinfo` lists them. Pure parsing of text that others have a part in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.text import printable

_FIELDS = ("NodeList", "StateComplete", "StateLong", "Gres", "GresUsed", "CPUsState", "Memory", "AllocMem")
NODE_FORMAT = ",".join(f"{field}:|" for field in (*_FIELDS, "Reason"))
"""For `sinfo --Node --Format`."""
MAX_NODES = 5000
"""The most lines of one answer that are read: a node has one for each of its partitions."""

_GPUS = re.compile(r"(?:^|,)gpu(?::([A-Za-z0-9_.-]{1,64}?))?:([0-9]{1,5})(?![0-9A-Za-z_.-])")
_CORES = re.compile(r"([0-9]{1,7})/[0-9]{1,7}/[0-9]{1,7}/([0-9]{1,7})")


def parse_nodes(text: str) -> Iterator[ClusterNode]:
    """The nodes in the answer, each once. Lines that make no sense are left out."""
    seen = set[str]()
    for line in text.splitlines()[:MAX_NODES]:
        words = line.split("|", len(_FIELDS))
        if len(words) != len(_FIELDS) + 1 or not words[0] or words[0] in seen:
            continue
        name, complete, long, gres, used, cores, memory, allocated, reason = words
        seen.add(name)
        busy = _CORES.fullmatch(cores)
        why = printable(reason.rstrip("|"))[:200]
        yield ClusterNode(
            printable(name)[:64],
            printable(complete or long)[:64],  # Slurm 20.11 knows no complete one
            _by_type(gres),
            _by_type(re.sub(r"\([^)]*\):?", "", used)),  # gpu:(null):2(IDX:0-1)
            int(busy[2]) if busy else 0,
            int(busy[1]) if busy else 0,
            _number(memory),
            _number(allocated),
            "" if why == "none" else why,
        )


def _by_type(gres: str) -> tuple[tuple[str, int], ...]:
    return tuple((kind, int(count)) for kind, count in _GPUS.findall(gres))


def _number(word: str) -> int:
    return int(word) if re.fullmatch(r"[0-9]{1,12}", word) else 0
