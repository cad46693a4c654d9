"""Work that would be torn if it were broken off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

_under_way: set[asyncio.Task[Any]] = set()


async def to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Do this; it goes on when its caller is gone."""
    task = asyncio.create_task(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return await asyncio.shield(task)
