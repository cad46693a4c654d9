"""How busy GPUs are together: the same numbers for the line on top and for the plot of the overview."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Reading = float | None


class Load(NamedTuple):
    """The mean utilization of GPUs in percent, and of those with a known memory how much of it is in use."""

    utilization: Reading
    used_mib: float
    total_mib: float

    @property
    def memory(self) -> Reading:
        """The share of the memory that is in use, in percent: a large GPU counts more than a small one."""
        return 100 * self.used_mib / self.total_mib if self.total_mib else None


def load_of(utilization: Iterable[Reading], memory: Iterable[Reading], totals: Iterable[Reading]) -> Load:
    """The load of these GPUs, from the readings of each. What is not known does not count."""
    known = [each for each in utilization if each is not None]
    sized = [(each, total) for each, total in zip(memory, totals, strict=True) if each is not None and total]
    mean = sum(known) / len(known) if known else None
    return Load(mean, sum(each for each, _ in sized), sum(total for _, total in sized))
