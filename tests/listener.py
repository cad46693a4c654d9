"""Who hears what a node says, in a test."""

from __future__ import annotations

from collections.abc import Callable

from agentless.controller.nodes.node_link import NodeLink
from agentless.model.nodes.sighting import Sighting


class Listener:
    """Tells somebody of each change, and nobody of containers."""

    def __init__(self, heard: Callable[[NodeLink], None] = lambda _: None) -> None:
        self._heard = heard

    def node_changed(self, link: NodeLink) -> None:
        self._heard(link)

    def sighted(self, link: NodeLink, sighting: Sighting) -> None:
        pass
