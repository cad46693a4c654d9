"""What an admin wants to be kept of tasks that have ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keep:
    """How long ended containers stay on their nodes (seconds), and how much is kept of one log and of all (bytes)."""

    containers: float = 24 * 3600.0
    log: int = 16 << 20
    logs: int = 1 << 30
