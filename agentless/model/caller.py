"""Who asks the controller for something."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """The one for whom a request is carried out, by the name that events, tasks and versions of envs carry.

    Every call of a service that changes something takes one, so that nobody else decides who it was.
    """

    name: str

    def __str__(self) -> str:
        """As a cause names it: `agentless stop, by anna@desk`."""
        return self.name
