"""Tasks on two real nodes at once."""

from __future__ import annotations

import pytest

from tests.real.cli import Cli, until

SHOW = 'env | grep -E "^(NODE_RANK|AGENTLESS_N|AGENTLESS_HOSTS=|MASTER|WORLD|LOCAL_W|GLOO)" | sort'


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


def test_each_container_has_the_addresses_of_all_as_mpi_reads_them(agentless: Cli) -> None:
    hosts = [node.host for node in agentless.lab.nodes.values()]
    script = 'cat "$AGENTLESS_HOSTFILE"'
    shown = agentless(
        "submit", "node1::0,1", "node2::0", "--nodes", "2", "--user", "1000", "--follow", "--", "sh", "-c", script
    )
    lines = [f"{hosts[0]} slots=2", f"{hosts[1]} slots=1"]
    assert sorted(shown.out.splitlines()) == [f"{rank} | {line}" for rank in (0, 1) for line in lines]


def test_what_one_node_cannot_start_leaves_nothing_on_the_other(agentless: Cli) -> None:
    """Only the first node has the image."""
    node1, node2 = agentless.lab.nodes.values()
    node1.ask_docker("POST", "/images/busybox/tag?repo=only-here&tag=1")
    words = ("--nodes", "2", "--gpus", "1", "--image", "only-here:1", "--pull", "never", "--", "true")
    failed = agentless("submit", *words, code=1)
    assert "rank 1 could not start on node2: node2 does not have image only-here:1" in failed.err
    assert [node.ask_docker("GET", "/containers/json?all=true") for node in (node1, node2)] == [[], []]
    node1.ask_docker("DELETE", "/images/only-here:1")


def test_doctor_tries_whether_nodes_reach_each_other(agentless: Cli) -> None:
    assert agentless("doctor", "--between").out == "node1  ok  1 check\nnode2  ok  1 check\n"


@pytest.mark.slow
def test_doctor_says_which_node_another_does_not_reach_and_leaves_nothing(agentless: Cli) -> None:
    node1, node2 = agentless.lab.nodes.values()
    # Instead of a firewall: a route that leads nowhere.
    node2.sh(f"ip route add blackhole {node1.host}/32").check_returncode()
    try:
        found = agentless.json("doctor", "--between", code=None)
    finally:
        node2.sh(f"ip route del blackhole {node1.host}/32").check_returncode()
    assert [(each["node"], each["check"], each["ok"]) for each in found] == [
        ("node1", "from node2", False), ("node2", "from node1", False),
    ]  # fmt: skip
    assert found[1]["wrong"].startswith(f"no answer from {node2.host} (eth0), port ")
    assert "# Another network: set fabric_address: of node2" in found[1]["fix"]
    for node in (node1, node2):
        until(lambda node=node: "dualstack_ipv6" not in node.sh("ps -e -o args").stdout)


def test_one_id_means_all_nodes(agentless: Cli) -> None:
    task = agentless.submit("--nodes", "2", "--gpus", "1", "--name", "pair", "--", "sleep", "600")

    def states() -> list[str]:
        return [each["state"] for each in agentless.json("ps", "--all") if each["name"] == "pair"]

    until(lambda: states() == ["running"] * 2)
    assert agentless("shell", "pair", "--rank", "1", "--", "sh", "-c", "echo $NODE_RANK").out == "1\n"
    assert agentless("kill", "pair").out == f"{task}  killed (137)\n"
    assert states() == ["killed", "killed"]
    agentless("rm", "pair")
    assert states() == []
