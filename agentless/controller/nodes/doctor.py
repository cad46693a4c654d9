"""Checks what tasks need: each node, and the files of the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.model.view import CheckView
from agentless.rules.views.publish import checks


class Doctor:
    """Runs the checks of `agentless doctor`."""

    def __init__(self, nodes: Nodes, ledger: Ledger) -> None:
        self._nodes = nodes
        self._ledger = ledger

    async def examine(self, nodes: Iterable[str] = ()) -> list[CheckView]:
        """Check these nodes, or all if none is named, and the controller."""
        links = self._nodes.links_to(nodes)
        names = [link.node.name for link in links]
        await asyncio.gather(*(link.ready() for link in links))
        # One that breaks off meanwhile says so by itself.
        await asyncio.gather(*(link.refresh() for link in links if link.online), return_exceptions=True)
        seen = self._nodes.cluster().nodes
        found = [check for name in names if name in seen for check in checks(seen[name], self._nodes.twin(name))]
        trouble = self._ledger.examine_stores()
        return [*found, CheckView("controller", "state", False, trouble)] if trouble else found
