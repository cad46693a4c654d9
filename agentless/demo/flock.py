"""The `flock` of a simulated node: `flock [-n] FD`, where FD is the root folder, as a launch takes it.

All simulated nodes have this machine's root folder. With the kernel's lock on it they would be one node, whose
launches wait for each other; so each node has a lock of its own. As the kernel's, it goes with the process that holds
it: the one that called flock, which is the parent of the program.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque

from agentless.demo.calls import Call


class NodeLock:
    """One node's lock."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[asyncio.Event] = deque()

    async def flock(self, call: Call) -> int:
        """Take the lock for the parent of the program; gives the exit code, with -n 1 when somebody has it."""
        options = call.words[:-1]
        if options not in ([], ["-n"], ["--nonblock"]):
            await call.complain("flock: on the root folder, the simulation supports only: flock [-n] FD")
            return 64
        parent = call.parent
        while self._held and not options:
            free = asyncio.Event()
            self._waiting.append(free)
            await free.wait()
        # One whose parent has died has another one, which lives for ever.
        if self._held or os.getsid(parent) != os.getsid(call.pid):
            return 1
        holder = os.pidfd_open(parent)
        self._held = True
        asyncio.get_running_loop().add_reader(holder, self._release, holder)
        return 0

    def _release(self, holder: int) -> None:
        asyncio.get_running_loop().remove_reader(holder)
        os.close(holder)
        self._held = False
        while self._waiting:
            self._waiting.popleft().set()
