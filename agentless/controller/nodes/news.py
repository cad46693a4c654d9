"""News of nodes: changes of their state, and what has happened to them."""

from __future__ import annotations

from agentless.controller.nodes.health.gpu_health import GpuHealth
from agentless.controller.nodes.health.intruders import Intruders
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus, News, NodeObserved
from agentless.controller.state.ledger import Ledger
from agentless.model.nodes.cluster import Node
from agentless.ports import Clock
from agentless.remote.token_bucket import TokenBucket

RECORDED = 60, 0.1
"""Changes of a node's state that are recorded at once, and per second: a node that changes with every sample would
fill the history. Listeners get all of them."""


class NodeNews:
    """Publishes the state of a node when more than its readings has changed."""

    def __init__(
        self, nodes: Nodes, health: GpuHealth, intruders: Intruders, ledger: Ledger, bus: EventBus, clock: Clock
    ) -> None:
        self._nodes = nodes
        self._health = health
        self._intruders = intruders
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._gists: dict[str, object] = {}
        self._states: dict[str, tuple[str, str]] = {}
        self._allowed: dict[str, TokenBucket] = {}
        bus.subscribe(NodeObserved, self._observed)

    def note(self, name: str, event: str, cause: str) -> None:
        """Publish an event of a node, together with its current state."""
        node = self._nodes.cluster([name]).nodes[name]
        self._states[name] = (node.state, node.reason)
        self._ledger.tell({**self._news(node), "event": event, "cause": cause})

    # ------------------------------------------------------------------ inside

    def _observed(self, observed: NodeObserved) -> None:
        name, seen = observed.node, observed.observation
        examined = self._health.examine(name, seen)
        sample = seen.sample and (seen.sample.error, seen.sample.processes)
        gist = (seen.error, sample, seen.engine, examined.record, seen.broken)
        if self._gists.get(name) == gist:
            return
        self._gists[name] = gist
        node = self._nodes.cluster([name]).nodes[name]
        self._intruders.look(node)
        before, now, news = self._states.get(name), (node.state, node.reason), self._news(node)
        allowance = self._allowed.setdefault(name, TokenBucket(*RECORDED))
        if before != now and (before or node.state != "online") and not allowance.take(1):
            self._ledger.tell(news)
        else:
            self._bus.publish(news)
        self._states[name] = now
        for event, cause in examined.happened:
            self._ledger.tell({**news, "event": event, "cause": cause})

    def _news(self, node: Node) -> News:
        return {
            "kind": "node", "at": self._clock.now(), "node": node.name, "state": node.state, "reason": node.reason,
        }  # fmt: skip
