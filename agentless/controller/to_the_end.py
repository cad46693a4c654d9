"""Work that would be torn if it were broken off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from agentless.controller.guarded import failed

_T = TypeVar("_T")

_under_way: set[asyncio.Task[Any]] = set()


async def to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Do this; it goes on when its caller is gone."""
    task = asyncio.create_task(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return await waited_for(task, "work whose caller is gone")


async def waited_for(work: asyncio.Task[_T], what: str) -> _T:
    """Wait for this; it goes on when its caller is gone, and a failure that nobody hears then is logged."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(partial(_unheard, what))
        raise


def _unheard(what: str, work: asyncio.Task[Any]) -> None:
    if not work.cancelled() and isinstance(error := work.exception(), Exception):
        failed(what, error)
