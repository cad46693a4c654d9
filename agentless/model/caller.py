"""The caller of a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """The user for whom a request is carried out, by the name in events, tasks and versions of envs.

    Every call of a service that changes something takes one.
    """

    name: str

    def __str__(self) -> str:
        """Its name in a cause, as in `agentless stop, by anna@desk`."""
        return self.name
