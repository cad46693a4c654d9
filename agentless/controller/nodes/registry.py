"""The nodes of the inventory: their links by name, and the cluster as it is known now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from agentless.controller.guarded import guarded
from agentless.controller.nodes.cluster_link import ClusterLink, TaskLink
from agentless.controller.nodes.health.homes import Homes
from agentless.controller.nodes.health.records import NodeRecords
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.state.event_bus import ContainersSeen, EventBus, NodeObserved
from agentless.controller.state.reservation_book import ReservationBook
from agentless.controller.state.tasks import Tasks
from agentless.errors import NotFound, Refused, Unreachable
from agentless.inventory.inventory import Inventory
from agentless.model.containers.claim import Claim
from agentless.model.containers.container import Container
from agentless.model.nodes.cluster import Cluster, Observation
from agentless.model.nodes.node import NodeConfig, naming
from agentless.model.nodes.sighting import Sighting
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.task import Paused, Running, Submitted, Task
from agentless.model.view import ClusterView
from agentless.ports import Clock
from agentless.rules.nodes.survey import survey, without_container
from agentless.rules.nodes.twins import twin_words
from agentless.rules.tasks.identity import called
from agentless.rules.usage.idle import lent_by
from agentless.rules.views.nearest import nearest

L = TypeVar("L", NodeLink, ClusterLink)

FIRST_ANSWER = 8.0
"""Seconds that a request waits for nodes that have not answered since the start."""


class Nodes:
    """The `links` to nodes, and those to `clusters`, which have queues of their own.

    What they hear goes on the bus: `NodeObserved` and `ContainersSeen`. `every` has both, for what is about tasks.
    """

    def __init__(
        self,
        tasks: Tasks,
        records: NodeRecords,
        reservations: ReservationBook,
        homes: Homes,
        bus: EventBus,
        clock: Clock,
    ) -> None:
        self.links: dict[str, NodeLink] = {}
        self.clusters: dict[str, ClusterLink] = {}
        self.every: dict[str, TaskLink] = {}
        self._tasks = tasks
        self._records = records
        self._reservations = reservations
        self._homes = homes
        self._bus = bus
        self._clock = clock

    def link(self, node: str) -> NodeLink:
        """The link to a node; raises NotFound with the nearest name."""
        if node in self.clusters:
            raise NotFound(f"{node} is a cluster, not a node; to list its nodes, run: agentless nodes show {node}")
        if node not in self.links:
            hint = nearest(node, [*self.links, *self.clusters])
            raise NotFound(f"no node {node!r} in the inventory{hint}; to list nodes, run: agentless nodes")
        return self.links[node]

    def place(self, name: str) -> TaskLink:
        """The link to a node or a cluster; raises NotFound with the nearest name."""
        return self.clusters[name] if name in self.clusters else self.link(name)

    def cluster_link(self, name: str) -> ClusterLink:
        """The link to a cluster; raises NotFound with the nearest name."""
        if name not in self.clusters:
            raise NotFound(f"no cluster {name!r} in the inventory{nearest(name, self.clusters)}")
        return self.clusters[name]

    def cluster_of(self, needs: Needs) -> ClusterLink | None:
        """The cluster to which a task with these needs is handed over; None for one that nodes run."""
        return self.clusters.get(needs.node or "")

    def cluster_views(self) -> list[ClusterView]:
        """The clusters as they are published."""
        return list(map(self.cluster_view, self.clusters))

    def cluster_view(self, name: str) -> ClusterView:
        """One of them."""
        return self.clusters[name].view(sum(1 for _ in self._tasks.on_node(name)))

    def links_to(self, nodes: Iterable[str]) -> list[NodeLink]:
        """The links to these nodes, each once, or to all if none is named; raises NotFound."""
        return list(dict.fromkeys(map(self.link, nodes))) or list(self.links.values())

    def places(self, names: Iterable[str]) -> tuple[list[NodeLink], list[ClusterLink]]:
        """The links to these nodes and clusters, each once, or to all if none is named; raises NotFound."""
        found = list(dict.fromkeys(map(self.place, names))) or list(self.every.values())
        nodes = [link for link in found if isinstance(link, NodeLink)]
        return nodes, [link for link in found if isinstance(link, ClusterLink)]

    def link_of(self, task: Task) -> TaskLink:
        """The link to where a task is. Raises Refused if that is nowhere, Unreachable if the inventory lacks it."""
        if task.node is None:
            raise Refused(f"task {task.id} is {task.state} and has no node yet")
        if task.node not in self.every:
            raise Unreachable(f"{task.node} is no longer in the inventory; add it again to reach its tasks")
        return self.every[task.node]

    def _has(self, link: TaskLink) -> bool:
        """Whether this link is still in use: the inventory may have changed."""
        return self.every.get(link.node.name) is link

    async def heard(self, nodes: Iterable[str] | None = None) -> None:
        """Wait, at most `FIRST_ANSWER` seconds, until these nodes (None: all) have answered or failed to.

        Raises NotFound for a node that is not in the inventory.
        """
        events = [self.link(name).answered for name in (self.links if nodes is None else nodes)]
        waits = [asyncio.ensure_future(answered.wait()) for answered in events if not answered.is_set()]
        if waits:
            _, late = await asyncio.wait(waits, timeout=FIRST_ANSWER)
            for wait in late:
                wait.cancel()

    def cluster(self, nodes: Iterable[str] | None = None, *, asking: Task | None = None) -> Cluster:
        """The cluster, or these nodes of it, as it is known now.

        What a task has, or what is kept for it, is free for it if it is the one `asking`.
        """
        names = [name for name in (self.links if nodes is None else nodes) if name in self.links]  # one may have left
        tasks = self._tasks
        live = tasks.live.values() if nodes is None else (task for name in names for task in tasks.on_node(name))
        seen = {name: self.links[name].observation for name in names}
        if asking and asking.container and asking.node in seen:
            seen[asking.node] = without_container(seen[asking.node], asking.container)
        return survey(
            {name: self.links[name].node for name in names},
            seen,
            [task for task in (*tasks.kept.values(), *live) if asking is None or task.id != asking.id],
            self._clock.now(),
            self._records.known,
            self._reservations.known.values(),
            self._called,
            self._homes.known,
            lent_by(tasks.idle, self._clock.now()),
        )

    def twin(self, node: str) -> str:
        """Which other node reports the same machine or GPUs, in words; empty if none does."""
        return twin_words(node, self.links[node].observation, self._homes.known)

    def silent(self) -> dict[str, str]:
        """The nodes whose containers are unknown, and why."""
        return {name: link.silence for name, link in self.every.items() if link.silence is not None}

    def stale(self, task: Task) -> str | None:
        """Since when a task's state is not current, and why its node does not report it; None if it is current."""
        link = self.every.get(task.node or "")
        why = link.outdated if link and isinstance(task.status, (Running, Paused, Submitted)) else None
        if link is None or why is None:
            return None
        since = link.known_until
        if since is None and link.failure is None and why == link.silence:
            return None  # it is being asked for the first time
        then = "before the controller started"
        if since is not None:
            then = f"{datetime.fromtimestamp(since, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
        return f"as of {then}: {naming(link.node.name, why)}"

    # -------------------------------------------------------------- life cycle

    async def follow(
        self,
        inventory: Inventory,
        connect: Callable[[NodeConfig], NodeLink],
        connect_cluster: Callable[[NodeConfig], ClusterLink],
    ) -> None:
        """Connect new nodes and clusters of the inventory, reconnect changed ones, disconnect removed ones."""
        before = self.every
        self.links = _kept(self.links, inventory.nodes, connect)
        self.clusters = _kept(self.clusters, inventory.clusters, connect_cluster)
        self.every = {**self.links, **self.clusters}
        for name, link in self.every.items():
            if before.get(name) is not link:
                link.start()
        await _close(link for name, link in before.items() if self.every.get(name) is not link)

    async def close(self) -> None:
        """Disconnect all nodes; tasks keep running."""
        await _close(self.every.values())

    # ------------------------------------------------------------------ from links

    def node_changed(self, link: TaskLink) -> None:
        """A node has a new observation."""
        if self._has(link) and isinstance(link, NodeLink):
            self._homes.settle(link.node.name, link.observation, self._observation)
            self._bus.emit(NodeObserved(link.node.name, link.observation))

    def sighted(self, link: TaskLink, sighting: Sighting) -> None:
        """A node has reported containers."""
        if self._has(link):
            self._records.note_engine(link.node.name, link.observation.engine, sighting.asked_at)
            self._bus.emit(self.seen(link, sighting))

    def seen(self, link: TaskLink, sighting: Sighting) -> ContainersSeen:
        """What a node has reported, with what may have hidden containers before."""
        name = link.node.name
        return ContainersSeen(name, sighting, link.cache.booted_at, self._records.of(name))

    # ------------------------------------------------------------------ inside

    def _observation(self, node: str) -> Observation | None:
        link = self.links.get(node)
        return link.observation if link else None

    def _called(self, container: Container, claim: Claim) -> str:
        return called(container, claim, self._tasks.controller, self._tasks.remembered(claim.task))


def _kept(
    before: Mapping[str, L], wanted: Mapping[str, NodeConfig], connect: Callable[[NodeConfig], L]
) -> dict[str, L]:
    """The links that are wanted: those that there are, unless their configuration has changed, and new ones."""
    kept = {name: link for name, link in before.items() if wanted.get(name) == link.node}
    return {name: kept.get(name) or connect(node) for name, node in wanted.items()}


async def _close(links: Iterable[TaskLink]) -> None:
    async def close(link: TaskLink) -> None:
        with guarded(f"closing {link.node.name}"):
            await link.close()

    await asyncio.gather(*map(close, links))
