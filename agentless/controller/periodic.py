"""Periodic jobs. Each is guarded by itself: one that fails does not affect the others.

Which jobs exist is `Controller.jobs` in `controller/app.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentless.controller.guarded import guarded

EVERY = 5.0
"""Seconds between two runs."""


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job, and its name in the log."""

    name: str
    do: Callable[[], None]


def do_all(jobs: Iterable[PeriodicJob]) -> None:
    """Run each job once."""
    for job in jobs:
        with guarded(job.name):
            job.do()


async def keep_doing(jobs: Iterable[PeriodicJob]) -> None:
    """Run the jobs every `EVERY` seconds, forever."""
    while True:
        await asyncio.sleep(EVERY)
        do_all(jobs)
