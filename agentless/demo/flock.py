"""The `flock` of a simulated node: `flock [-w SECONDS] FD`, as a launch uses it on the root folder.

All simulated nodes have this machine's root folder. With the kernel's lock on it they would be one node, whose
launches wait for each other; so each node has a lock of its own. As the kernel's, it goes with the process that holds
it: the one that called flock, which is the parent of the program.
"""

from __future__ import annotations

import asyncio
import os

from agentless.demo.calls import Call


class NodeLock:
    """One node's lock."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def flock(self, call: Call) -> int:
        """Take the lock for the parent of the program; gives the exit code, 1 when the time is over."""
        seconds = None
        match call.words:
            case [fd] if fd.isdigit():
                pass
            case ["-w", wait, fd] if fd.isdigit():
                seconds = float(wait)
            case _:
                await call.complain("flock: the simulated one knows only: flock [-w SECONDS] FD")
                return 64
        holder = os.pidfd_open(call.parent)
        try:
            async with asyncio.timeout(seconds):
                await self._lock.acquire()
        except TimeoutError:
            os.close(holder)
            return 1
        except asyncio.CancelledError:
            os.close(holder)
            raise
        asyncio.get_running_loop().add_reader(holder, self._release, holder)
        return 0

    def _release(self, holder: int) -> None:
        asyncio.get_running_loop().remove_reader(holder)
        os.close(holder)
        self._lock.release()
