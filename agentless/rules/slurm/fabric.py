"""`topology.conf`: which nodes are near each other, from `fabric:` in the inventory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from agentless.rules.slurm.lines import Names, entry, word
from agentless.rules.slurm.machine import Machine

_TOP = "cluster"
_ELSEWHERE = "elsewhere"


def topology_conf(machines: Sequence[tuple[str, Machine]]) -> Iterator[str]:
    """A switch for each part of the network, the innermost first; nothing if no node has a `fabric:`.

    A switch has nodes or other switches, never both. One above all lets a job run on any nodes.
    """
    if not any(machine.fabric for _, machine in machines):
        return
    nodes, inside = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set)
    for name, machine in machines:
        path = machine.fabric
        nodes[path].append(name)
        while path:
            above = path.rpartition("/")[0]
            inside[above].add(path)
            path = above
    names = Names()
    switches = {path: names.give(word(path, "A-Za-z0-9_-", _TOP)) for path in sorted({*nodes, *inside})}
    for path in sorted(switches, key=lambda path: (not path, -path.count("/"), path)):
        parts = [switches[part] for part in sorted(inside[path])]
        if parts and path in nodes:
            own = names.give(f"{switches[path]}_{_ELSEWHERE}")
            yield entry(SwitchName=own, Nodes=",".join(nodes[path]))
            parts.append(own)
        yield entry(SwitchName=switches[path], Nodes=None if parts else ",".join(nodes[path]), Switches=",".join(parts))
