"""The use of a node's SSH server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sessions:
    """The connections to a node and the sessions in use on them.

    `each` is the server's limit of sessions per connection, `total` its limit of sessions. None while no limit is
    known.
    """

    connections: int
    used: int
    each: int | None = None
    total: int | None = None
