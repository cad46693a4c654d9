"""A node whose engine is down has tasks that nobody can see: `recover` must not pass it over."""

from __future__ import annotations

from tests.fleet.client import until


async def test_a_node_whose_engine_does_not_answer_is_silent_until_it_does(desk):
    node = desk.fleet.nodes["n1"]
    node.stop_engine()
    async with desk.running() as controller:
        assert "does not run" in controller.core.silent()["n1"]
        node.start_engine()
        await until(lambda: not controller.core.silent())
