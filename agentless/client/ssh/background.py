"""Ports that are forwarded until this process ends, while it does something else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from agentless.client.ssh.forward import Forward, Listener

_FIRST, _LAST = 0.2, 2.0
"""Seconds between two looks at whether a port answers."""


def forward_in_background(
    forward: Forward, listeners: Sequence[Listener], tell: Callable[[Listener], None] | None = None
) -> None:
    """Serve listeners in a thread. It calls `tell` once for each of them whose port answers."""

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(forward.run(listeners))
            if tell:
                for each in listeners:
                    group.create_task(_watch(forward, each, tell))

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()


async def _watch(forward: Forward, listener: Listener, tell: Callable[[Listener], None]) -> None:
    pause = _FIRST
    while True:
        try:
            (await forward.reach(listener.port.port)).close()
        except Exception:  # noqa: BLE001 - the task has not started, or does not listen yet
            await asyncio.sleep(pause)
            pause = min(_LAST, pause * 1.5)
        else:
            tell(listener)
            return
