"""What of a node's SSH server is in use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sessions:
    """The connections to a node and the sessions in use on them.

    `each` is how many the server gives on one connection and `total` how many it gives at all; None as long as it has
    not refused any.
    """

    connections: int
    used: int
    each: int | None = None
    total: int | None = None
