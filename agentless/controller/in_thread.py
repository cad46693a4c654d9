"""Work in a thread that has ended when the waiting for it has, cancelled or not.

A cancelled `asyncio.to_thread` leaves its thread at work: on a file that is closed meanwhile, whose number the next
file gets, or in a folder that is being removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


async def in_thread(work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """What the work gives; raises what it raises. Who is cancelled hears of it once the work has ended."""
    running = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # nobody asks for it any more
        raise cancelled
    return running.result()
