"""`agentless doctor --run` on simulated nodes, as in the demo."""

from __future__ import annotations

import json

import pytest

from tests.fleet.test_batches import typed


@pytest.mark.slow
async def test_each_gpu_is_proved_by_the_driver_in_its_container(agentless):
    out, _ = await typed(agentless, "doctor", "n1", "--run", "--json")
    found = {check["check"]: check for check in json.loads(out)}
    assert [found[f"run {gpu}"]["verdict"] for gpu in range(4)] == ["ok"] * 4
    assert found["run 3"]["detail"].startswith("nvidia-smi in the container lists this GPU and no other")
    assert "agentless-doctor" not in (await typed(agentless, "ps", "--all"))[0]
