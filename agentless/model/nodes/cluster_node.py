"""A compute node of a cluster with a queue of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

_OUT = frozenset({"down", "drain", "draining", "drained", "error", "fail", "failing", "future", "invalid", "maint",
                  "no_respond", "not_responding", "unknown"})  # fmt: skip
"""The words in the state of such a node."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as its cluster has it. `gpus` and `gpus_used` are types (empty: none is named) with their numbers.

    Memory is in MiB. `reason` is why an administrator has taken it out.
    """

    name: str
    state: str
    gpus: tuple[tuple[str, int], ...]
    gpus_used: tuple[tuple[str, int], ...]
    cores: int
    cores_used: int
    memory_mib: int
    memory_used_mib: int
    reason: str

    @property
    def is_out(self) -> bool:
        """Whether it gets no new jobs: it is drained or down."""
        return not _OUT.isdisjoint(self.state.split("+"))

    def only(self, kind: str) -> ClusterNode:
        """The node with its GPUs of one type alone."""
        gpus, used = (tuple(each for each in of if each[0].lower() == kind) for of in (self.gpus, self.gpus_used))
        return replace(self, gpus=gpus, gpus_used=used)

    @property
    def gpus_free(self) -> int:
        """How many GPUs a job could get there."""
        held, every = (sum(count for _, count in gpus) for gpus in (self.gpus_used, self.gpus))
        return 0 if self.is_out else max(0, every - held)
