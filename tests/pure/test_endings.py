"""Programs whose users have left: they are ended at once, or when their container is no longer paused."""

from __future__ import annotations

import asyncio

from agentless.controller.nodes.endings import Endings
from agentless.errors import Unreachable
from agentless.model.command import Command, Result


class Node:
    """Runs nothing; remembers what it was asked to run."""

    def __init__(self, *results: Result | Exception) -> None:
        self.ran: list[str] = []
        self._results = list(results)

    async def run(self, command: Command) -> Result:
        self.ran.append(command.script)
        result = self._results.pop(0) if self._results else Result(0)
        if isinstance(result, Exception):
            raise result
        return result


async def rest() -> None:
    """Let all tasks go as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_program_is_ended_at_once() -> None:
    node, endings = Node(), Endings(lambda _: False)
    endings.begin(node, "c1", Command("end"))
    await rest()
    endings.changed("c1")
    await rest()
    assert node.ran == ["end"]


async def test_one_in_a_paused_container_is_ended_when_that_goes_on() -> None:
    paused = {"c1", "c2"}
    node, endings = Node(), Endings(paused.__contains__)
    endings.begin(node, "c1", Command("one"))
    endings.begin(node, "c2", Command("two"))
    await rest()
    assert node.ran == []
    paused.discard("c1")
    endings.changed("c1")
    await rest()
    assert node.ran == ["one"]


async def test_a_pause_that_comes_between_is_noticed() -> None:
    paused: set[str] = set()
    node, endings = Node(Result(1)), Endings(paused.__contains__)
    endings.begin(node, "c1", Command("end"))
    paused.add("c1")
    await rest()
    paused.clear()
    endings.changed("c1")
    await rest()
    assert node.ran == ["end", "end"]


async def test_a_node_that_does_not_answer_is_no_error() -> None:
    node, endings = Node(Unreachable("gone")), Endings(lambda _: False)
    endings.begin(node, "c1", Command("end"))
    await rest()
    assert node.ran == ["end"]
