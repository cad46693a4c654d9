"""Secrets that jobs have left: a cluster on which they cannot be removed is not asked again and again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from agentless.controller.state.event_bus import ContainersSeen, EventBus, Sighting
from agentless.controller.tasks.left_secrets import LeftSecrets
from agentless.errors import RuntimeFailed
from agentless.model.nodes.node_record import NodeRecord


async def test_what_cannot_be_removed_is_tried_again_after_ten_minutes_and_others_at_once() -> None:
    now, asked, left, bus = [1000.0], list[list[str]](), ["2one"], EventBus()

    async def run(tasks: list[str]) -> None:
        asked.append(tasks)
        if "2one" in tasks:
            raise RuntimeFailed("hpc: rm: cannot remove")

    runtime = SimpleNamespace(remove_secrets=lambda tasks: tasks, check=lambda _: None)
    engine, node = SimpleNamespace(secrets=left), SimpleNamespace(name="hpc")
    link = SimpleNamespace(runtime=runtime, run=run, node=node, observation=SimpleNamespace(engine=engine))
    ledger: Any = SimpleNamespace(tasks=SimpleNamespace(live={}, history=SimpleNamespace(has=lambda _: True)))
    nodes: Any = SimpleNamespace(clusters={"hpc": link})
    clock: Any = SimpleNamespace(now=lambda: now[0])
    secrets = LeftSecrets(nodes, ledger, bus, clock)

    async def seen_at(time: float, *tasks: str) -> list[list[str]]:
        now[0], left[:] = time, tasks
        asked.clear()
        for _ in range(2):
            bus.emit(ContainersSeen("hpc", Sighting((), asked_at=time), None, NodeRecord()))
            for _ in range(3):
                await asyncio.sleep(0)
        return [*asked]

    assert await seen_at(1000.0, "2one") == [["2one"]]
    assert (await seen_at(1100.0, "2one", "2other"))[0] == ["2other"]
    assert await seen_at(1599.0, "2one") == []
    assert await seen_at(1601.0, "2one") == [["2one"]]
    await secrets.close()
