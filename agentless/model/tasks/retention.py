"""The retention policy for ended tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keep:
    """Seconds that ended containers stay on their nodes, and the limits of one log and of all logs in bytes."""

    containers: float = 24 * 3600.0
    log: int = 16 << 20
    logs: int = 1 << 30
