"""What a task asks for on a Slurm cluster: options of sbatch, and what is refused in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from agentless.engines.slurm.options import sbatch_options
from agentless.errors import UsageError
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.job import Job
from agentless.model.tasks.spec import TaskSpec
from agentless.rules.submit.cluster import check_excluded, check_for_cluster, check_for_nodes, check_there_are_nodes
from agentless.rules.submit.cluster_gpus import with_type
from agentless.rules.submit.options import Options
from agentless.rules.submit.task_request import Outside, task_request

OUTSIDE = Outside(1e9, {}, lambda _: ())


def spec(*targets: str, **options: Any) -> TaskSpec:
    return task_request(["true"], targets or ("hpc",), cast(Options, options), OUTSIDE).spec


def nodes(*types: str) -> list[ClusterNode]:
    return [ClusterNode(f"c{at}", "idle", ((each, 8),), (), 64, 0, 1, 0, "") for at, each in enumerate(types, 1)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"exclude": ["c1", "c2"]}, "--exclude=c1,c2"),
        ({"at": "2026-05-01T18:30"}, "--begin=uts"),
        ({"after": "1h"}, "--begin=uts1000003600"),
        ({"preemptible": True}, "--requeue"),
        ({"preemptible": True, "on_preempt": "end"}, "--no-requeue"),
        ({}, "--no-requeue"),
    ],
)
def test_an_option_of_sbatch(options: dict[str, Any], expected: str) -> None:
    wanted = spec(**options)
    check_for_cluster(wanted, "hpc", SlurmCluster())
    assert [word for word in sbatch_options(wanted, SlurmCluster()) if word.startswith(expected)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"preemptible": True, "min_run": "1h"}, "where --min-run cannot be used"),
        (
            {"preemptible": True, "secret_env": {"TOKEN": "x"}},
            "has no secrets; with --secret-env, use --on-preempt end",
        ),
        ({"env": ["A=1", "UID=1000"]}, "UID cannot be set on hpc: its shell keeps that for itself; use another name"),
        ({"secret_env": {"SRANDOM": "1000"}}, "SRANDOM cannot be set on hpc"),
        ({"env": ["OPTIND=2"]}, "OPTIND cannot be set on hpc"),
        ({"env": ["GROUPS=a"]}, "GROUPS cannot be set on hpc"),
    ],
)
def test_what_slurm_cannot_keep_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_for_cluster(spec(**options), "hpc", SlurmCluster())


def test_on_means_labels_and_says_how_a_cluster_is_named() -> None:
    with pytest.raises(UsageError, match="use KEY=VALUE; for a node or a cluster, use --node hpc"):
        spec(on=["hpc"])


def test_only_names_of_its_compute_nodes_are_excluded() -> None:
    check_excluded(["c1"], "hpc", nodes("", ""))
    check_excluded(["c9"], "hpc", [])
    for name in ("c9", "c[1-2]", "c1,c2"):
        with pytest.raises(UsageError, match="hpc has no such node"):
            check_excluded([name], "hpc", nodes("", ""))


@pytest.mark.parametrize(
    ("target", "types", "expected"),
    [
        ("2x:40G", ("a100_80gb", "l4"), "a100_80gb"),
        ("2xA100:40G", ("nvidia_a100_80gb_pcie", "nvidia_h100_80gb_hbm3"), "nvidia_a100_80gb_pcie"),
        ("1x:20G", ("a100-40g", "nvidia_a100_3g.20gb", "nvidia_a100_4g.40gb"), "a100-40g"),
        ("1x:80G", ("a100_40gb", "a100_80gb"), "a100_80gb"),
    ],
)
def test_memory_is_a_type_that_names_it(target: str, types: tuple[str, ...], expected: str) -> None:
    asked = TaskSpec(("true",), needs=parse_target(f"hpc {target}"))
    needs = with_type(asked, "hpc", nodes(*types)).needs
    assert (needs.gpu_types, needs.gpu_memory, needs.gpus) == ((expected,), None, asked.needs.gpus)


@pytest.mark.parametrize(
    ("wanted", "types", "expected"),
    [
        ("H100", ("a100", "h100_80gb"), "h100_80gb"),
        ("a100", ("A100", "a100_80gb"), "A100"),
        ("H*", ("a100", "h100_80gb"), "h100_80gb"),
        ("A100", ("",), "a100"),
        ("A100", (), "a100"),
    ],
)
def test_a_type_is_the_only_one_there_that_it_can_mean(wanted: str, types: tuple[str, ...], expected: str) -> None:
    asked = TaskSpec(("true",), needs=parse_target(f"hpc 1x{wanted}"))
    assert with_type(asked, "hpc", nodes(*types)).needs.gpu_types == (expected,)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("B200", "B200: no type of hpc matches; use hpc 1xa100_40gb; types there: a100_40gb, a100_80gb"),
        ("A100", "A100: several types of hpc match; use hpc 1xa100_40gb; types there: a100_40gb, a100_80gb"),
    ],
)
def test_a_type_that_is_none_there_is_refused_with_those_that_are(wanted: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        with_type(TaskSpec(("true",), needs=parse_target(f"hpc 1x{wanted}")), "hpc", nodes("a100_40gb", "a100_80gb"))


@pytest.mark.parametrize(
    ("target", "types", "words"),
    [
        ("2x:40G", ("a100_40gb", "a100_80gb"), "several types have that; use hpc 2xa100_40gb; types there: a100_40gb"),
        ("2x:40G", ("a100", "l4"), "no type there is known to have that; use hpc 2xa100; types there: a100, l4"),
        ("2x:40G", ("",), "no type there is known to have that; use hpc 2x"),
        ("2xH100:40G", ("a100_80gb",), "no type there is known to have that"),
    ],
)  # fmt: skip
def test_memory_that_slurm_cannot_know_is_refused_with_the_types_there(
    target: str, types: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        with_type(TaskSpec(("true",), needs=parse_target(f"hpc {target}")), "hpc", nodes(*types))


def test_a_task_for_nodes_is_told_the_cluster_where_there_are_only_clusters() -> None:
    asked = TaskSpec(("true",), needs=parse_target("2xA100"))
    with pytest.raises(UsageError, match=r"no nodes; specify the cluster: hpc 2xA100$"):
        check_there_are_nodes(asked, (), ("hpc", "lab"))
    with pytest.raises(UsageError, match=r"no nodes; specify the cluster: --node hpc$"):
        check_there_are_nodes(replace(asked, job=Job("train", "flow")), (), ("hpc",))
    check_there_are_nodes(asked, ("node1",), ("hpc",))
    check_there_are_nodes(TaskSpec(("true",), needs=parse_target("hpc 1x")), (), ("hpc",))
    check_there_are_nodes(asked, (), ())


def test_a_relative_folder_to_work_in_is_one_of_a_cluster() -> None:
    relative = spec("hpc", workdir="data")
    check_for_cluster(relative, "hpc", SlurmCluster())
    with pytest.raises(UsageError, match="--workdir 'data': use an absolute path in the container"):
        check_for_nodes(relative)
    check_for_nodes(spec("node1", workdir="/data"))
