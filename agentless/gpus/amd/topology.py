"""How AMD GPUs are joined, by the links between nodes of the compute driver (`io_links` and `p2p_links` in /sys).

Type 11 is XGMI, 2 is PCIe (`CRAT_IOLINK_TYPE_*` in drivers/gpu/drm/amd/amdkfd/kfd_crat.h). A weight is a distance: one
hop of XGMI has 15 and two have 30, GPUs under one PCIe bridge have 20, with a processor between 40, with two 72.
"""

from __future__ import annotations

from itertools import combinations

from agentless.gpus.amd.probe import joined, lines_of
from agentless.model.command import Result
from agentless.model.nodes.gpu import GpuTopology

_XGMI, _PCIE = 11, 2


def parse(answer: Result) -> GpuTopology | None:
    """The topology in the answer; None where there are no GPUs, or nothing is said of links."""
    found, devices = joined(lines_of(answer))
    if not found.whole or not devices:
        return None
    index = {each.gpu: each.reading.index for each in devices if each.gpu is not None}
    of_node = {node.node: index[node.gpu] for node in found.nodes if node.gpu in index}
    closest: dict[tuple[int, int], int] = {}
    for node in found.nodes:
        for to, kind, weight in node.links:
            if node.node in of_node and to in of_node and of_node[node.node] != of_node[to]:
                one, other = sorted((of_node[node.node], of_node[to]))
                closest[one, other] = max(closest.get((one, other), 0), closeness(kind, weight))
    links = {pair: closest[pair] for pair in combinations(sorted(set(of_node.values())), 2) if closest.get(pair)}
    by_bus = {each.reading.pci_bus_id: each.reading.index for each in devices}
    numa = {by_bus[bus]: card.numa for bus, card in found.cards.items() if bus in by_bus and card.numa is not None}
    return GpuTopology(links, numa) if links or numa else None


def closeness(kind: int, weight: int) -> int:
    """How near a link brings two GPUs: 1 to 5 over PCIe, 6 and more over XGMI, as NVIDIA's links are weighed.

    0 for a link that is neither.
    """
    if kind == _XGMI:
        return 8 if weight <= 15 else 6
    if kind != _PCIE:
        return 0
    return 5 if weight <= 20 else 3 if weight <= 40 else 1
