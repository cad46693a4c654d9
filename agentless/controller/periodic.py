"""What happens by time: a list of jobs, each guarded by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentless.controller.guarded import guarded

EVERY = 5.0
"""Seconds between two turns."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something that is done in each turn, by the name that the log has for it."""

    name: str
    do: Callable[[], None]


def do_all(jobs: Iterable[Job]) -> None:
    """Do each of these, whatever becomes of the others."""
    for job in jobs:
        with guarded(job.name):
            job.do()


async def keep_doing(jobs: Iterable[Job]) -> None:
    """Do them in turns, for ever."""
    while True:
        await asyncio.sleep(EVERY)
        do_all(jobs)
