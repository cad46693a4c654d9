"""Numbers over time on real nodes: what the driver says is in the history, in what was used, and in the metrics."""

from __future__ import annotations

import time

from tests.real.cli import until


def history(agentless, gpu, points=1):
    return agentless.client.get("/v1/history", since=60, points=points, gpu=[gpu])


def test_the_history_has_what_nvidia_smi_says(agentless):
    shown = next(gpu for gpu in agentless.json("gpus") if (gpu["node"], gpu["index"]) == ("node1", 0))
    until(lambda: history(agentless, "node1::0")["gpus"][0]["power_w"] != [None])
    (found,) = history(agentless, "node1::0")["gpus"]
    assert found["uuid"] == shown["uuid"]
    assert found["memory_used_mib_max"] == [shown["memory_used_mib"]]
    assert found["temperature_c_max"] == [shown["temperature_c"]]


def test_the_history_goes_on_over_a_restart_of_the_controller(agentless):
    until(lambda: history(agentless, "node1::0")["gpus"][0]["power_w"] != [None])
    agentless("controller", "stop")
    stopped = time.time()
    agentless("nodes")
    found = history(agentless, "node1::0", points=60)
    times = [found["at"] - back * found["step"] for back in range(59, -1, -1)]
    known = [at for at, value in zip(times, found["gpus"][0]["power_w"], strict=True) if value is not None]
    assert min(known) < stopped


def test_usage_counts_what_a_container_has_had(agentless):
    before = {row["name"]: row["tasks"] for row in agentless.json("usage", "--by", "node")["rows"]}
    task = agentless.submit("node1::0,1", "--", "sleep", "2")
    assert agentless("wait", task).code == 0
    after = {row["name"]: row["tasks"] for row in agentless.json("usage", "--by", "node")["rows"]}
    assert after["node1"] == before.get("node1", 0) + 1
    (row,) = [row for row in agentless.json("usage", "--by", "batch")["rows"] if row["name"] == task]
    assert 2 * 2 / 3600 <= row["gpu_hours"] + 0.0005 <= 2 * 4 / 3600
