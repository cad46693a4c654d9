"""How often a cluster is asked, in a time that passes only while all wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest

from agentless.controller.clock import SystemClock
from agentless.controller.nodes.cluster_link import NODES_EVERY, NODES_SOON, RESTS, ClusterLink
from agentless.errors import Timeout
from agentless.model.containers.container import Container
from agentless.model.nodes.node import EngineFacts, NodeConfig


class Waiting(asyncio.SelectorEventLoop):
    """A loop whose clock goes on to the next timer at once."""

    passed = 0.0

    def time(self) -> float:
        return self.passed

    def _run_once(self) -> None:
        inside: Any = self
        if inside._scheduled and not inside._ready:
            self.passed = max(self.passed, inside._scheduled[0]._when)
        inside_once: Any = super()
        inside_once._run_once()


class Read(ClusterLink):
    """A cluster with one job of ours. `reads` counts how often its scripts were read, `accounting` what was asked."""

    def __init__(self) -> None:
        super().__init__(NodeConfig("hpc", "login"), Mock(), Mock(), SystemClock(), Mock())
        self.answers, self.can_read, self.reads, self.accounting = True, True, 0, list[bool]()

    async def _listed(self, *, accounting: bool) -> EngineFacts:
        self.accounting.append(accounting)
        job = Container("7:agentless-2task1", "agentless-2task1", "running", {}, signed=True)
        return EngineFacts(containers=(job,)) if self.answers else EngineFacts(error="Slurm does not answer")

    async def _carried(self, jobs: Iterable[Container]) -> dict[str, Container]:
        self.reads += 1
        if not self.can_read:
            raise Timeout("too slow")
        return {job.id: job for job in jobs}


async def test_scripts_are_read_once_and_the_accounting_after_each_silence() -> None:
    link = Read()
    link.can_read = False
    for answers in (True, True, False, True, False, True, True):
        link.answers = answers
        await link.refresh()
        link.can_read = True
    assert link.reads == 2  # the first time in vain
    assert link.accounting == [True, False, False, True, False, True, False]


class Busy(ClusterLink):
    """A cluster on which a job starts or ends between two looks. `asked` is when its nodes were asked for."""

    def __init__(self, takes: float, *, changes: bool) -> None:
        super().__init__(NodeConfig("hpc", "login"), Mock(), Mock(), Mock(), Mock())
        self.takes, self.changes, self.looks, self.asked = takes, changes, 0, list[float]()

    @property
    def silence(self) -> None:
        return None

    @property
    def containers(self) -> tuple[Container, ...]:
        return (Container(f"{self.looks * self.changes}:agentless-2task1", "agentless-2task1", "running", {}),)

    async def nodes(self, *, within: float = 30.0) -> tuple[()]:
        del within
        self.asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes)
        return ()

    async def refresh(self) -> None:
        self.looks += 1


@pytest.mark.parametrize(
    ("takes", "changes", "least", "most"),
    [
        (3.0, True, RESTS * 3.0, RESTS * 3.0 + 6),
        (0.1, True, NODES_SOON, NODES_SOON + 3),
        (0.1, False, NODES_EVERY, NODES_EVERY + 3),
    ],
)
def test_the_nodes_are_left_alone_ten_times_as_long_as_they_took(
    takes: float, changes: bool, least: float, most: float
) -> None:
    async def watched() -> list[float]:
        link = Busy(takes, changes=changes)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(200.0):
                await link._attend()
        return link.asked

    with asyncio.Runner(loop_factory=Waiting) as runner:
        asked = runner.run(watched())
    gaps = [later - sooner for sooner, later in pairwise(asked)]
    assert len(gaps) > 3
    assert all(least <= gap <= most for gap in gaps)
