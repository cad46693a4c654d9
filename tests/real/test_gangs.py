"""Tasks on two real nodes at once."""

from __future__ import annotations

import pytest

from tests.real.cli import Cli, until

SHOW = 'env | grep -E "^(NODE_RANK|AGENTLESS_N|AGENTLESS_HOSTS|MASTER|WORLD|LOCAL_W|GLOO)" | sort'


def test_both_nodes_start_and_know_each_other(agentless: Cli) -> None:
    hosts = [node.host for node in agentless.lab.nodes.values()]
    shown = agentless("submit", "--nodes", "2", "--gpus", "1", "--follow", "--", "sh", "-c", SHOW).out
    said = [dict(line[4:].split("=", 1) for line in shown.splitlines() if line.startswith(f"{n} | ")) for n in "01"]
    port = said[0].pop("MASTER_PORT")
    assert said[1].pop("MASTER_PORT") == port
    alike = {
        "AGENTLESS_HOSTS": f"{hosts[0]}:1,{hosts[1]}:1", "AGENTLESS_NNODES": "2", "AGENTLESS_NODES": "node1,node2",
        "MASTER_ADDR": hosts[0], "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "eth0",
    }  # fmt: skip
    for rank, one in enumerate(said):
        own = {"NODE_RANK": str(rank), "AGENTLESS_NODE_RANK": str(rank), "AGENTLESS_NODE": f"node{rank + 1}"}
        assert one == alike | own


def test_the_members_reach_each_other_by_the_address_and_port(agentless: Cli) -> None:
    script = """if [ "$NODE_RANK" = 0 ]; then echo hello | nc -l -p "$MASTER_PORT"
    else until nc "$MASTER_ADDR" "$MASTER_PORT" </dev/null; do sleep 0.1; done; fi"""
    out = agentless("submit", "--nodes", "2", "--gpus", "1", "--follow", "--", "sh", "-c", script).out
    assert out == "1 | hello\n"


@pytest.mark.slow
def test_what_one_node_refuses_leaves_nothing_on_the_other(agentless: Cli) -> None:
    node1, node2 = agentless.lab.nodes.values()
    node2.docker("create", "--name", "squatter", "--label", "agentless.task=t1", "--label",
                 f"agentless.gpus={node2.gpu_uuids[0]}", "busybox", "sleep", "60")  # fmt: skip
    refused = agentless("submit", "--no-queue", "--nodes", "2", "node1::0", "node2::0", "--", "true", code=3)
    assert "node2" in refused.err
    assert not node1.docker("ps", "--all", "--quiet").strip()


def test_one_id_means_all_nodes(agentless: Cli) -> None:
    task = agentless.submit("--nodes", "2", "--gpus", "1", "--name", "pair", "--", "sleep", "600")
    until(lambda: [each["state"] for each in agentless.json("ps")] == ["running"] * 2)
    assert agentless("shell", "pair", "--rank", "1", "--", "printenv", "NODE_RANK").out == "1\n"
    assert agentless("kill", "pair").out == f"{task}  killed (137)\n"
    assert [each["state"] for each in agentless.json("ps", "--all")] == ["killed", "killed"]
    agentless("rm", "pair")
    assert agentless.json("ps", "--all") == []
