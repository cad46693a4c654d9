"""Tasks that run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Coroutine
from typing import Any, TypeVar

from agentless.ports import Shell

T = TypeVar("T")


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks, and wait until they have ended, with whatever result."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def feed(shell: Shell, data: AsyncIterable[bytes], ending: Coroutine[Any, Any, T]) -> T:
    """The result of `ending` while the data goes in; raises what goes wrong with the data before that.

    A script that ends early takes no more data: then its own words say why.
    """
    both = asyncio.create_task(ending), asyncio.create_task(_write(shell, data))
    try:
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if both[0] not in done:
            both[1].result()
        return await both[0]
    finally:
        await cancel(*both)


async def _write(shell: Shell, data: AsyncIterable[bytes]) -> None:
    async for piece in data:
        await shell.write(piece)
    await shell.write_eof()
