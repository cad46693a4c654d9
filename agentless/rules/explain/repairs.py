"""What somebody has to see to before a task can start anywhere: an unhealthy GPU, a drained node."""

from __future__ import annotations

from agentless.model.nodes.cluster import Cluster, Node
from agentless.model.tasks.spec import TaskSpec
from agentless.model.text import enumerated
from agentless.rules.explain.blockers import blockers_of, fewest_of, without
from agentless.rules.explain.obstacles import obstacles

MOST_NODES = 2
"""The most nodes that are named; one of them is enough."""


def repairs(cluster: Cluster, spec: TaskSpec) -> str:
    """`starts only when GPU 7 of node1 is healthy again, or …`; empty if waiting may be enough."""
    if spec.gang:
        return ""  # what its nodes lack is told together

    def fits(node: Node) -> bool:
        return not obstacles(node, spec, "", cluster.at)

    found = list[str]()
    for node in cluster.nodes.values():
        if any(each.lasting for each in obstacles(node, spec, "", cluster.at)):
            continue
        blockers = [*blockers_of(node)]
        empty = without(node, [each for each in blockers if not each.lasting])
        if fits(empty) or not (needed := fewest_of(empty, [each for each in blockers if each.lasting], fits)):
            return ""
        found.append(enumerated([each.words for each in needed]))
    more = [f"{len(found) - MOST_NODES} other nodes are seen to"] if len(found) > MOST_NODES else []
    return f"starts only when {enumerated([*found[:MOST_NODES], *more], 'or')}" if found else ""
