"""Slices of a GPU by podman: another user's podman knows nothing of them, and the node refuses all the same."""

from __future__ import annotations

import re
import uuid

import pytest

from tests.mig import Capture
from tests.real.cli import until
from tests.real.test_podman import _made, agentless, bob, inspect, node

__all__ = ["_made", "agentless", "bob", "node"]  # fixtures

pytestmark = pytest.mark.slow


def test_a_slice_is_given_by_cdi_and_never_twice(agentless, bob, node):
    capture = Capture("h100", uuid.uuid4().hex[:12])
    slices = re.findall(r"MIG-[0-9a-f-]{36}", capture.list())
    node.offer_devices([*slices, capture.gpus("idle")[0]["uuid"]])
    node.set_gpus(capture.gpus("idle"))
    node.say_slices(capture.list() + "\n", capture.table("idle") + "\n")
    for cli in (agentless, bob):
        until(lambda cli=cli: len(cli.get("/v1/gpus")) == 5)
        cli("doctor", "pod", code=None)  # a full look, which reads the new list of devices
        until(lambda cli=cli: [gpu["state"] for gpu in cli.get("/v1/gpus")[1:]] == ["free"] * 4)
    task = agentless.submit("1x:10G", "--", "sh", "-c", "env | grep LAB_GPU; sleep 300")
    shown = until(lambda: (it := agentless.task(task))["state"] == "running" and it)
    assert shown["gpus"] == ["0/2"]
    until(lambda: agentless("logs", task).out)
    assert agentless("logs", task).out == f"LAB_GPU_2={slices[2]}\n"
    gpu = agentless.get("/v1/gpus")[0]["uuid"]
    assert inspect(node, task)["Name"].endswith(f".{gpu}.{gpu}_{slices[2]}")
    refused = bob("submit", "pod::0/2", "--no-queue", "--", "true", code=3)
    assert f"GPU 0/2 is held by task {task} of " in refused.err
    other = bob.submit("pod::0/3", "--", "sleep", "300")
    assert until(lambda: (it := bob.task(other))["state"] == "running" and it)["gpus"] == ["0/3"]
    # For a controller that takes the GPU for a whole one.
    node.set_gpus([{**capture.gpus("idle")[0], "mig.mode.current": "Disabled"}])
    until(lambda: [gpu["state"] for gpu in bob.get("/v1/gpus")] == ["allocated"])
    bob("kill", other)
    until(lambda: [gpu["state"] for gpu in bob.get("/v1/gpus")] == ["free"])
    refused = bob("submit", "pod::0", "--no-queue", "--", "true", code=3)
    assert f"slice {slices[2]} of GPU 0 is held by task {task} of " in refused.err
