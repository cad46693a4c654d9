"""The terms on which a task shares its GPUs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MAX_SHARES = 100


@dataclass(frozen=True, slots=True)
class Sharing:
    """At most `limit` tasks on each of its GPUs, including this one, and `floor` bytes of the memory of each reserved.

    With a limit of 1, the task has its GPUs alone. `strangers`: foreign processes may use them, too.
    """

    limit: int = 1
    floor: int = 0
    strangers: bool = False

    @property
    def rough(self) -> Sharing:
        """Weaker terms that many tasks have in common, for indexes: they fit wherever these fit."""
        return Sharing(self.limit, 1 << self.floor.bit_length() >> 1) if self.limit > 1 else self

    def fits(self, others: Collection[Sharing], total: int) -> bool:
        """Whether it may be on a GPU of `total` bytes beside all of these."""
        return not others or (
            len(others) < min(self.limit, *[other.limit for other in others])
            and self.floor + sum([other.floor for other in others]) <= total
        )


ALONE = Sharing()
