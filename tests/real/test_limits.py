"""What a node may say at most, on real nodes: a real engine cuts labels, a real shell cuts nvidia-smi."""

from __future__ import annotations

import pytest

from tests.real.cli import until


@pytest.mark.slow
def test_a_container_with_megabytes_of_labels_is_shown_holds_its_gpu_and_can_be_killed(agentless, node, tmp_path):
    """Its labels stay where they are, and the node's other container is seen as it is."""
    task = agentless.submit("node1::1", "--", "sleep", "300")
    own = f"agentless.task=2n0000000ve\nagentless.owner=eve\nagentless.gpus={node.gpu_uuids[0]}\n"
    (tmp_path / "labels").write_text(own + "".join(f"{key}={'x' * 60_000}\n" for key in ["agentless.spec", *range(80)]))
    node.sh(f"docker run --detach --label-file {tmp_path}/labels busybox sleep 300")
    until(lambda: agentless.gpu("node1::0")["owner"] == "eve")
    assert "of eve" in agentless("submit", "node1::0", "--no-queue", "--", "true", code=3).err
    assert (agentless.task(task)["state"], agentless.node("node1")["state"]) == ("running", "online")
    agentless("kill", agentless.gpu("node1::0")["task"])
    until(lambda: agentless.gpu("node1::0")["state"] == "free")


@pytest.mark.slow
def test_a_node_whose_nvidia_smi_prints_without_end_is_degraded_and_says_why(agentless, node):
    """And well again as soon as that is."""
    node.fault("text\n" + "x" * 2_000_000)
    until(lambda: "nvidia-smi prints more than 256 KiB" in agentless.node("node1")["reason"])
    assert agentless.node("node1")["state"] == "degraded"
    agentless("submit", "node2::0", "--", "true")
    node.fault(None)
    until(lambda: agentless.node("node1")["state"] == "online")
