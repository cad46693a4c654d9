"""What doctor says of a Slurm cluster, by what its login node answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.engines.slurm.checkup import parse_checkup, parse_trial
from agentless.model.command import Result
from agentless.model.nodes.check import Check
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.slurm import SlurmCluster
from agentless.rules.nodes.checks import clusters

ANSWER = """\
user ann
version slurm-wlm 22.05.8
ping Slurmctld(primary) at head is UP
partition cpu up
partition gpu* up
accounting accounting_storage/slurmdbd
association lab|normal,high
association root|normal
folder nfs
whole
"""
NODE = NodeConfig("hpc", "login1")
MINE = SlurmCluster(partition="gpu", account="lab", qos="high")
A100 = ClusterNode("c1", "idle", (("a100", 4),), (), 64, 0, 1000, 0, "")


def checks(
    answer: str = ANSWER, cluster: SlurmCluster = MINE, nodes: tuple[ClusterNode, ...] | str = (A100,)
) -> dict[str, Check]:
    found = clusters.checks(NODE, cluster, parse_checkup(Result(0, answer.encode())), nodes)
    return {check.name: check for check in found}


def test_a_cluster_that_is_well_says_what_was_seen() -> None:
    assert {name: (check.verdict, check.seen) for name, check in checks().items()} == {
        "commands": ("ok", "slurm-wlm 22.05.8"),
        "slurmctld": ("ok", "Slurmctld(primary) at head is UP"),
        "partition": ("ok", "gpu"),
        "account": ("ok", "lab, high"),
        "gpus": ("ok", "4 GPUs on 1 node (4 a100)"),
        "folder": ("ok", ".agentless/slurm, on a shared disk (nfs)"),
    }
    assert checks(cluster=SlurmCluster())["partition"].seen == "gpu, the default"


@pytest.mark.parametrize(
    ("before", "after", "cluster", "name", "words"),
    [
        ("user ann", "lacks srun", MINE, "commands", "not on the PATH of the login: srun"),
        ("head is UP", "head is DOWN", MINE, "slurmctld", "Slurmctld(primary) at head is DOWN"),
        ("Slurmctld(primary) at head is UP", "", MINE, "slurmctld", "scontrol ping gave no answer"),
        ("", "", SlurmCluster("big"), "partition", "no partition big (there: cpu, gpu)"),
        ("gpu*", "gpu", SlurmCluster(), "partition", "Slurm has no default partition"),
        ("gpu* up", "gpu* drain", MINE, "partition", "partition gpu is drain"),
        ("", "", SlurmCluster(account="phys"), "account", "ann has no account phys (there: lab, root)"),
        ("", "", SlurmCluster(account="root", qos="high"), "account", "ann may not use QOS high (allowed: normal)"),
        ("folder nfs", "closed /data", MINE, "folder", "ann cannot write to /data on the login node"),
    ],
)
def test_each_obstacle_has_its_words(before: str, after: str, cluster: SlurmCluster, name: str, words: str) -> None:
    check = checks(ANSWER.replace(before, after) if before else ANSWER, cluster)[name]
    assert check.verdict in ("failed", "warning")
    assert check.wrong.startswith(words)
    assert check.fix


def test_what_cannot_be_looked_up_is_skipped_in_words() -> None:
    none = ANSWER.replace("slurmdbd", "none")
    assert checks(none)["account"].verdict == "skipped"
    assert "no accounting" in checks(none)["account"].seen
    mute = ANSWER.replace("lab|normal,high", "sacctmgr: error: no connection").replace("association root|normal\n", "")
    assert checks(mute)["account"].seen == "sacctmgr does not say: sacctmgr: error: no connection"
    down = checks(ANSWER.replace("is UP", "is DOWN"))
    assert {down[name].verdict for name in ("partition", "account", "gpus")} == {"skipped"}
    assert checks(ANSWER.replace("whole", ""))["answer"].verdict == "failed"


def test_nodes_that_take_no_jobs_are_named_and_a_cluster_without_gpus_is_warned_of() -> None:
    drained = replace(A100, name="c2", state="idle+drain")
    assert checks(nodes=(A100, drained))["gpus"].seen.endswith("not available: c2")
    assert checks(nodes=(drained,))["gpus"].wrong == "no node takes jobs: c2"
    assert checks(nodes=(replace(A100, gpus=()),))["gpus"].wrong == "Slurm knows no GPUs in partition gpu"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("node c1\nshared\nGPU 0: A100 (UUID: GPU-1)\ncode 0\n", {"run": "ok", "shared": "ok"}),
        ("node c1\nGPU 0: A100 (UUID: GPU-1)\ncode 0\n", {"run": "ok", "shared": "failed"}),
        ("node c1\nshared\nGPU 0: A (UUID: 1)\nGPU 1: A (UUID: 2)\ncode 0\n", {"run": "warning", "shared": "ok"}),
        ("srun: error: Unable to allocate resources: Connection timed out\ncode 1\n", {"run": "skipped"}),
        ("srun: error: Invalid account or account/partition combination specified\ncode 1\n", {"run": "failed"}),
        ("node c1\nshared\nNo devices were found\ncode 6\n", {"run": "failed"}),
        ("", {"run": "failed"}),
    ],
)
def test_a_job_that_ran_one_that_waited_and_one_that_failed(said: str, found: dict[str, str]) -> None:
    tried = list(clusters.tried(parse_trial(Result(0, said.encode())), gpus=True))
    assert {check.name: check.verdict for check in tried} == found


@given(st.text() | st.lists(st.sampled_from(ANSWER.splitlines()) | st.text(max_size=9)).map("\n".join))
def test_no_answer_is_too_odd_to_be_read(text: str) -> None:
    said = Result(0, text.encode("utf-8", "replace"))
    for check in (
        *clusters.checks(NODE, MINE, parse_checkup(said), ()),
        *clusters.tried(parse_trial(said), gpus=True),
    ):
        assert check.detail.isprintable()
