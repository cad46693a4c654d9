"""How the members of a gang find each other: addresses, interfaces, and a port of the first one."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from itertools import chain

from agentless.errors import NodeUnfit
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.gang import Gang, Peer
from agentless.model.tasks.task import Task

PORTS = range(29500, 32768)
"""Ports for gangs: below those that a kernel gives to connections by default."""

_INSIDE = ("docker", "br-", "veth", "podman", "cni", "virbr", "lo")
"""Beginnings of the names of interfaces that lead to containers or nowhere."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The address at which SSH has reached a node (empty: unknown), its interfaces by address, and its ports in use."""

    reached: str = ""
    interfaces: Mapping[str, str] = field(default_factory=dict)
    used: Collection[int] = frozenset()


def met(
    members: Sequence[Task], nodes: Mapping[str, NodeConfig], looks: Mapping[str, Surroundings], others: Iterable[Task]
) -> list[Gang]:
    """For each member, by rank, its gang with what all members are told. `others` are live tasks, which have ports.

    Raises NodeUnfit for the node with the most ports in use if no port is free on all nodes.
    """
    peers = []
    for task in members:
        placement = task.placement
        if placement is None or task.spec.gang is None:
            raise AssertionError("a gang meets when it has its places")
        node, look = nodes[placement.node], looks[placement.node]
        address = address_among(node, look)
        peers.append(Peer(node.name, address, len(placement.gpus), look.interfaces.get(address)))
    ours = {task.id for task in members}
    rest = [task for task in others if task.id not in ours]
    used = {peer.node: ports_of({peer.node}, rest).union(looks[peer.node].used).intersection(PORTS) for peer in peers}
    # On all nodes: what mpirun starts on the others is reached there.
    port = free_port(members[0].id, set(chain.from_iterable(used.values())))
    if port is None:
        fullest = max(used, key=lambda name: len(used[name]))
        many = f"{len(used[fullest])} of the ports {PORTS.start} to {PORTS.stop - 1} are in use"
        raise NodeUnfit(f"{fullest}: {many}, and none is free on all nodes of the gang", fullest)
    return [replace(task.spec.gang, peers=tuple(peers), port=port) for task in members if task.spec.gang]


def ports_of(nodes: Collection[str], tasks: Iterable[Task]) -> set[int]:
    """The ports that gangs among these tasks have on these nodes."""
    gangs = (task.spec.gang for task in tasks if task.spec.gang)
    return {gang.port for gang in gangs if gang.port and any(peer.node in nodes for peer in gang.peers)}


def address_among(node: NodeConfig, look: Surroundings) -> str:
    """Where others reach the node: as the inventory says, else as SSH does, else at the first address of its own."""
    if node.fabric_address:
        return node.fabric_address
    if look.reached and not ip_address(look.reached).is_loopback:
        return look.reached
    outside = [
        address
        for address, name in look.interfaces.items()
        if not name.startswith(_INSIDE) and not (ip_address(address).is_loopback or ip_address(address).is_link_local)
    ]
    return next(iter(outside), look.reached or node.host)


def free_port(seed: str, used: Collection[int]) -> int | None:
    """A port that is not used. Gangs of several controllers begin at different ones."""
    begin = zlib.crc32(seed.encode()) % len(PORTS)
    ports = (PORTS[(begin + step) % len(PORTS)] for step in range(len(PORTS)))
    return next((port for port in ports if port not in used), None)
