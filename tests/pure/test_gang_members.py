"""What the members of a gang are told, and what is asked of a request for one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import TypeAdapter, ValidationError

from agentless.controller.http.workflow_schemas import WorkflowRequest
from agentless.errors import NodeUnfit, UsageError
from agentless.model.caller import Caller
from agentless.model.command import Result
from agentless.model.nodes.node import NodeConfig
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.gang import Gang, Peer, member_of
from agentless.model.tasks.spec import TaskSpec, on_targets
from agentless.model.tasks.task import Ended, Lost, Task
from agentless.remote.gang_look import parse
from agentless.rules.tasks.gangs.gangs import is_mate, mates, named_members, why_all_end
from agentless.rules.tasks.gangs.launchers import launched_command
from agentless.rules.tasks.gangs.meeting import PORTS, Surroundings, met
from tests.pure.build import NOW, placement, task

ANSWER = b"""ssh 10.0.0.9 51234 10.0.0.1 22
1: lo    inet 127.0.0.1/8 scope host lo
2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0
2: eth0    inet6 fe80::1/64 scope link
3: docker0    inet 172.17.0.1/16 scope global docker0
4: ib0@if7    inet 10.1.0.1/16 scope global ib0
   3: 0100007F:733C
  12: 00000000000000000000000000000000:7FFF
; rm -rf / inet 1.2.3.4/8
"""
"""As `gang-look.sh.j2` prints it."""


def members(*targets: str, **changes: object) -> list[Task]:
    gang = Gang(len(targets))
    whole = [task(f"t{rank}", target, "assigning") for rank, target in enumerate(targets)]
    return named_members(
        [replace(one, spec=replace(one.spec, gang=replace(gang, rank=rank))) for rank, one in enumerate(whole)]
    )


def test_what_a_node_says_of_itself() -> None:
    found = parse(Result(0, ANSWER))
    assert (found.reached, found.used) == ("10.0.0.1", {0x733C, 0x7FFF})
    assert found.interfaces["10.1.0.1"] == "ib0"
    assert "1.2.3.4" not in found.interfaces


@pytest.mark.parametrize(
    ("node", "reached", "address", "interface"),
    [
        (NodeConfig("node1", "gpu1"), "10.0.0.1", "10.0.0.1", "eth0"),
        (NodeConfig("node1", "gpu1", fabric_address="10.1.0.1"), "10.0.0.1", "10.1.0.1", "ib0"),
        (NodeConfig("node1", "gpu1", fabric_address="gpu1-ib"), "10.0.0.1", "gpu1-ib", None),
        (NodeConfig("node1", "localhost"), "127.0.0.1", "10.0.0.1", "eth0"),
        (NodeConfig("node1", "localhost"), "", "10.0.0.1", "eth0"),
    ],
)
def test_the_address_of_a_node(node: NodeConfig, reached: str, address: str, interface: str | None) -> None:
    look = replace(parse(Result(0, ANSWER)), reached=reached)
    nodes = {"node1": node, "node2": NodeConfig("node2", "gpu2")}
    one, _ = met(members("node1::0", "node2::0"), nodes, {"node1": look, "node2": Surroundings()}, ())
    assert (one.peers[0].address, one.peers[0].interface) == (address, interface)
    assert one.peers[1].address == "gpu2"


def test_no_port_is_given_that_is_in_use_or_that_another_gang_has() -> None:
    nodes = {name: NodeConfig(name, name) for name in ("node1", "node2")}
    free = 30000
    look = Surroundings(used=frozenset(port for port in PORTS if port not in (free, free + 1)))
    looks = {"node1": look, "node2": Surroundings()}
    first, _ = met(mine := members("node1::0", "node2::0"), nodes, looks, ())
    other = replace(task("other"), spec=replace(mine[0].spec, gang=first))
    second, _ = met(mine, nodes, looks, [other])
    assert {first.port, second.port} == {free, free + 1}


def test_the_node_with_the_most_ports_in_use_is_to_blame() -> None:
    nodes = {name: NodeConfig(name, name) for name in ("node1", "node2")}
    looks = {"node1": Surroundings(used=frozenset({22, *PORTS[:9]})), "node2": Surroundings(used=frozenset(PORTS))}
    with pytest.raises(NodeUnfit, match="node2: 3268 of the ports 29500 to 32767 are in use") as found:
        met(members("node1::0", "node2::0"), nodes, looks, ())
    assert found.value.node == "node2"


def test_the_variables_of_a_member() -> None:
    peers = (Peer("node1", "10.0.0.1", 2, "eth0"), Peer("node2", "10.0.0.2", 0))
    assert Gang(2, 1, ("a", "b"), peers=peers, port=29501).variables() == {
        "AGENTLESS_NODE_RANK": "1",
        "AGENTLESS_NNODES": "2",
        "AGENTLESS_NODES": "node1,node2",
        "AGENTLESS_HOSTS": "10.0.0.1:2,10.0.0.2:1",
        "AGENTLESS_HOSTFILE": "/agentless/hostfile",
        "NODE_RANK": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29501",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "1",
    }


def test_the_hostfile_of_a_gang() -> None:
    peers = (Peer("node1", "10.0.0.1", 2), Peer("node2", "gpu2-ib", 0))
    assert Gang(2, 1, ("a", "b"), peers=peers, port=29501).hostfile == "10.0.0.1 slots=2\ngpu2-ib slots=1\n"


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        (("train.py", "--lr"), ("train.py", "--lr")),
        (("python3", "train.py"), ("train.py",)),
        (("/opt/venv/bin/python", "-m", "pkg"), ("-m", "pkg")),
        (("python", "-u", "train.py"), ("--no-python", "python", "-u", "train.py")),
        (("./run",), ("--no-python", "./run")),
    ],
)
def test_torchrun_starts_python_by_itself(command: tuple[str, ...], begins: tuple[str, ...]) -> None:
    peers = (Peer("node1", "10.0.0.1", 2), Peer("node2", "10.0.0.2", 2))
    spec = TaskSpec(command, gang=Gang(2, 1, ("a", "b"), "torchrun", peers=peers, port=29501))
    words = launched_command(spec, str)
    assert words[:6] == (
        "torchrun", "--nnodes=2", "--node-rank=1", "--nproc-per-node=2", "--master-addr=10.0.0.1",
        "--master-port=29501",
    )  # fmt: skip
    assert words[6:] == begins


@pytest.mark.parametrize(
    ("names", "network", "listen", "interface"),
    [
        (("ib0", "ib0"), "host", "10.0.0.2", "ib0"),
        (("ib0", "eth0"), "host", "10.0.0.2", None),
        ((None, None), "host", "", None),
        (("ib0", "ib0"), "bridge", "", None),
    ],
)
def test_mpirun_uses_the_interface_by_which_all_reach_each_other(
    names: tuple[str | None, str | None], network: str, listen: str, interface: str | None
) -> None:
    peers = (Peer("node1", "10.0.0.1", 2, names[0]), Peer("node2", "10.0.0.2", 0, names[1]))
    gang = Gang(2, 1, ("a", "b"), "mpirun", peers=peers, port=29501)
    seen: dict[str, dict[str, object]] = {}

    def script(template: str, **values: object) -> str:
        seen[template.removeprefix("container-mpirun-").removesuffix(".sh.j2")] = values
        return "script"

    for rank in (0, 1):
        spec = TaskSpec(("train", "-x"), gang=replace(gang, rank=rank), network=network)
        assert launched_command(spec, script) == ("sh", "-c", "script", "sh", "train", "-x")
    assert seen == {
        "first": {"port": 29501, "others": ["10.0.0.2"], "interface": interface, "processes": 3},
        "other": {"port": 29501, "listen": listen},
    }


def test_mpirun_needs_all_members() -> None:
    with pytest.raises(UsageError, match="mpirun and --on-member-failure continue cannot be combined"):
        member_of(2, "mpirun", "continue")


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (("node1::0", "node1::1"), "--nodes 2: each member needs its own node, but several targets are node1"),
        (("node1::0",), "--nodes 2: each member needs its own node, but several targets are node1"),
        (("1x", "1x", "1x"), "--nodes 2 with 3 targets; give one target for each node, one for all, or none"),
    ],
)
def test_targets_that_no_gang_can_have(targets: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        on_targets(TaskSpec(("true",), gang=Gang(2)), targets)
    assert str(caught.value) == message


def test_a_request_says_nothing_of_members_and_addresses() -> None:
    forged = Gang(2, 1, ("a", "b"), peers=(Peer("x", "y"), Peer("z", "w")), port=22)
    whole = on_targets(TaskSpec(("true",), needs=Needs(gpus=1), gang=forged), ())
    assert [one.gang for one in whole] == [Gang(2, rank, alike=2) for rank in (0, 1)]


@pytest.mark.parametrize(
    "gang",
    [
        {"size": 2, "rank": 2},
        {"size": 10**6},
        {"size": 2, "members": ["a"]},
        {"size": 2, "peers": [{"node": "a", "address": "b"}]},
        {"size": 2, "port": 0},
    ],
)
def test_labels_of_others_make_no_impossible_gang(gang: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(TaskSpec).validate_python({"command": ["true"], "gang": gang})


def test_the_loss_of_a_node_ends_a_gang_that_has_started() -> None:
    one, two = members("node1::0", "node2::0")
    lost = replace(two, status=Lost(placement("node2::0"), NOW, "no answer"))
    assert why_all_end([one, lost]) is None
    assert why_all_end([replace(task("t0"), spec=one.spec), lost]) == "rank 1 on node2 is lost: no answer"


def test_a_member_that_had_to_give_way_ends_the_gang() -> None:
    one, two = members("node1::0", "node2::0")
    assert why_all_end([one, replace(two, status=Ended("preempted", NOW, container="c"))]) == (
        "rank 1 on node2 was preempted"
    )


def test_a_member_whose_container_was_removed_says_so() -> None:
    one, two = members("node1::0", "node2::0")
    gone = replace(two, status=Ended("failed", NOW, reason="its container was removed", container="c"))
    assert why_all_end([one, gone]) == "rank 1 on node2 failed: its container was removed"


def test_only_tasks_that_say_so_themselves_are_members() -> None:
    """A forged label may name any task."""
    one, two = members("node1::0", "node2::0")
    stranger = task("x")
    forged = replace(stranger, spec=replace(stranger.spec, gang=Gang(2, 0, ("x", "t1"))))
    beside = replace(stranger, spec=two.spec)
    known = {each.id: each for each in (one, two, forged)}
    assert mates(two, known.get) == [one, two]
    assert mates(forged, known.get) == [forged]
    assert mates(beside, known.get) == []
    assert not is_mate(one, replace(two, owner="mallory"))


def test_a_member_that_never_started_ends_the_gang_whatever_was_asked_for() -> None:
    one, two = members("node1::0", "node2::0")
    gang = one.spec.gang
    assert gang
    spec = replace(one.spec, gang=replace(gang, rank=1, on_member_failure="continue"))
    failed = replace(two, spec=spec, status=Ended("failed", NOW, reason="no toolkit"))
    assert why_all_end([one, failed]) == "no toolkit"
    assert why_all_end([one, replace(failed, status=Ended("failed", NOW, exit_code=7, container="c"))]) is None


def test_who_waits_for_a_job_on_several_nodes_waits_for_its_first_task() -> None:
    """They are numbered from 1 on, and each node of a job is one."""
    pair: dict[str, object] = {"name": "a", "spec": {"command": ["true"], "gang": {"size": 2}}, "target": "1x"}
    jobs = [pair, {**pair, "requires": [(0, "completed")]}, {**pair, "requires": [(0, "failed"), (1, "ended")]}]
    specs = WorkflowRequest.model_validate({"name": "w", "jobs": jobs}).submit(Caller("ann")).specs
    waits = [[str(each) for each in spec.terms.requires] for spec in specs]
    assert waits == [[], [], ["#1"], ["#1"], ["#1:failed", "#3:ended"], ["#1:failed", "#3:ended"]]
    assert [spec.gang.rank for spec in specs if spec.gang] == [0, 1] * 3
