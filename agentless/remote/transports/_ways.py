"""Several ways to one machine: the first that leads there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from agentless.errors import AuthFailed, HostKeyRejected, Unreachable
from agentless.remote.concurrency import cancel
from agentless.remote.transports._pool import C, Pool

W = TypeVar("W")

NEXT = 1.0
"""Seconds after which the next way is tried beside those that have not led there yet."""


async def first(ways: Mapping[Pool[C], W], name: str) -> tuple[Pool[C], W]:
    """Connect on the first way that leads to the machine, and end the others. Raises Unreachable if none does."""
    waiting, trying, errors = list(ways), dict[asyncio.Task[None], Pool[C]](), list[Unreachable]()
    try:
        while waiting or trying:
            if waiting:
                pool = waiting.pop(0)
                trying[asyncio.create_task(pool.open())] = pool
            done, _ = await asyncio.wait(trying, timeout=NEXT if waiting else None, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                try:
                    task.result()
                except Unreachable as error:
                    errors.append(error)
                else:
                    pool = trying.pop(task)
                    return pool, ways[pool]
                await trying.pop(task).close()
        raise _worst(errors, name)
    finally:
        await cancel(*trying)
        await asyncio.gather(*(pool.close() for pool in trying.values()))


def _worst(errors: list[Unreachable], name: str) -> Unreachable:
    """The error to show: one of the machine itself rather than those of networks that it is not in."""
    for kind in (AuthFailed, HostKeyRejected):
        if found := next((error for error in errors if isinstance(error, kind)), None):
            return found
    if len(errors) == 1:
        return errors[0]
    each = "; ".join(str(error).partition(";")[0] for error in errors)
    return Unreachable(
        f"{name} answers at none of its addresses: {each}; check that it is up, and its host: and address: in the "
        "inventory"
    )
