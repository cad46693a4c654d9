"""The check of a node that could not be examined because of what it answered."""

from __future__ import annotations

import logging

from agentless.errors import AgentlessError
from agentless.model.nodes.check import Check

_log = logging.getLogger(__name__)


def broken(name: str, node: str, error: Exception) -> Check:
    """A failed check; what nobody expected is logged."""
    if isinstance(error, AgentlessError):
        return Check(name, "failed", "not understood", str(error))
    _log.error("examining %s failed", node, exc_info=error)
    return Check(name, "failed", "not understood", f"cannot examine {node}; see the controller's log")
