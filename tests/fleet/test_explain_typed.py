"""`agentless explain`, typed as a user types it, on simulated nodes: n1 has four GPUs, n2 has a stranger's."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.fleet.client import PATIENCE
from tests.fleet.test_batches import typed


@pytest.fixture(autouse=True)
async def _online(agentless):
    """No request waits longer than 8 s for a node that has not answered yet, and a busy machine may need that."""
    async with asyncio.timeout(PATIENCE):
        while any(node["state"] != "online" for node in json.loads((await typed(agentless, "nodes", "--json"))[0])):
            pass


async def test_what_is_typed_like_a_target_is_one(agentless):
    expected = {
        ("4x",): "4x would start now, on n1::0,1,2,3",
        ("n1::2",): "n1::2 would start now, on n1::2",
        ("n1",): "n1 would start now, on n1",
        ("1x", "--node", "n1"): "n1 1x would start now, on n1::0",
        ("--target", "1x"): "1x would start now, on n1::0",
        ("--gpus", "0"): "any node would start now, on n",
        ("n2::0", "--stop-grace", "1m", "--time-limit", "1h"): "n2::0 would be number 1 in the queue; ",
    }
    for words, start in expected.items():
        out, _ = await typed(agentless, "explain", *words)
        assert out.startswith(start)


async def test_a_task_is_meant_before_a_node_of_its_name(agentless):
    await typed(agentless, "submit", "n1::0-3", "--", "sleep", "600")
    out, _ = await typed(agentless, "submit", "1x", "--name", "n2", "--", "true")
    expected, _ = await typed(agentless, "explain", "n2")
    assert expected.startswith(f"task {out.strip()} (1x) is number 1 in the queue; ")


async def test_what_is_neither_is_said_to_be_none(agentless):
    said = {
        (): "Specify a pending task, or a request such as: agentless explain 2x:40G",
        ("w1",): "no task 'w1'",
        ("n9::0",): "no node 'n9' in the inventory",
        ("0x",): "target '0x': 0 GPUs are out of range",
    }
    for words, sentence in said.items():
        _, err = await typed(agentless, "explain", *words, code=2)
        assert sentence in err


async def test_what_a_task_would_wait_for_is_told_with_its_options(agentless):
    first = (await typed(agentless, "submit", "n1::0", "--time-limit", "1h", "--", "sleep", "600"))[0].strip()
    found = json.loads((await typed(agentless, "explain", "n1::0", "--after", first, "--json"))[0])
    assert re.fullmatch(
        rf"n1::0 would be blocked: it waits for task {first} \(running, ends within (1h 0m|59m.*)\); "
        r"starts within (1h 0m|59m.*) on n1",
        found["summary"],
    )
    assert found["expected_start"]
    out, _ = await typed(agentless, "submit", "n1::0", "--after", first, "--", "true")
    second = out.strip()
    out, _ = await typed(agentless, "explain", "n1::0", "--after", f"{first},{second}:ended")
    assert f"and task {second} to end" in " ".join(out.split())
    out, _ = await typed(agentless, "explain", "1x", "--after", f"{first}:failed")
    assert f"1x would be blocked: it waits for task {first} to fail" in out
    await typed(agentless, "kill", first)
    out, _ = await typed(agentless, "explain", "1x", "--after", first)
    assert out == f"1x would be cancelled: needs task {first} to complete, but it was killed\n"
    out, _ = await typed(agentless, "explain", "1x", "--after", f"{first}:ended")
    assert out.startswith("1x would start now")
    _, err = await typed(agentless, "explain", "1x", "--after", "2nope", code=2)
    assert "2nope" in err
