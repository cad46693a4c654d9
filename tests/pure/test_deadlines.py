"""The clock of the controller."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

from agentless.controller.state.event_bus import EventBus
from agentless.controller.tasks.deadlines import Deadlines


async def test_a_look_that_is_held_up_does_not_make_what_is_due_next_wait(monkeypatch):
    """By a full disk queue or a busy machine. Only what a look costs the processor is made up for."""
    waits, sleep = [], asyncio.sleep

    async def noted(seconds):
        waits.append(seconds)
        await sleep(0)

    timer = Deadlines(None, SimpleNamespace(tasks=None), None, EventBus(), None)
    monkeypatch.setattr(timer, "tick", lambda: time.sleep(0.2) or 0.0)
    monkeypatch.setattr(asyncio, "sleep", noted)
    timer.start()
    while not waits:
        await sleep(0)
    await timer.close()
    assert waits[0] < 1  # 20 times 0.2 s otherwise
