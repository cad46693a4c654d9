"""On which terms tasks have a GPU together, and beside others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MAX_SHARES = 100


@dataclass(frozen=True, slots=True)
class Sharing:
    """At most `limit` tasks on each of its GPUs, itself included, and `floor` bytes of the memory of each for itself.

    A limit of 1 is a task that has its GPUs alone; `strangers` is whether processes outside agentless may be there.
    """

    limit: int = 1
    floor: int = 0
    strangers: bool = False

    @property
    def rough(self) -> Sharing:
        """Terms that fit wherever these do, and that many have in common."""
        return Sharing(self.limit, 1 << self.floor.bit_length() >> 1) if self.limit > 1 else self

    def fits(self, others: Collection[Sharing], total: int) -> bool:
        """Whether it may be on a GPU of `total` bytes together with all of these."""
        return not others or (
            len(others) < min(self.limit, *[other.limit for other in others])
            and self.floor + sum([other.floor for other in others]) <= total
        )


ALONE = Sharing()
