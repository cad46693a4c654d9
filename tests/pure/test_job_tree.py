"""Where uploaded files are in the folder of a job on a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentless.errors import UsageError
from agentless.model.files.file_spec import Output, Upload
from agentless.model.files.snapshot import Entry
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.job import Job
from agentless.model.tasks.spec import TaskSpec
from agentless.rules.files.job_tree import job_tree, place_in_job
from agentless.rules.submit.cluster import check_for_cluster

FILE = {"": Entry("file", 0o644, 1, "c")}
ON = Needs(nodes=("hpc",))


@pytest.mark.parametrize(
    ("workdir", "place"),
    [(None, "."), ("sub", "sub"), ("/workspace/x", "x"), ("/workspace", "."), ("/data", None), ("../x", None)],
)
def test_a_task_starts_among_its_files_unless_its_folder_is_elsewhere(workdir: str | None, place: str | None) -> None:
    assert place_in_job(workdir) == place


def test_files_are_relative_to_where_the_task_starts() -> None:
    def paths(target: str, workdir: str | None) -> set[str]:
        return set(job_tree([(Upload("/a", target), FILE)], workdir))

    assert paths("a", None) == paths("../a", "sub") == paths("a", "/data") == {"files/a"}
    assert paths("a", "/workspace/x") == {"files/x/a"}
    with pytest.raises(UsageError, match="a file cannot replace"):
        paths(".", None)


@pytest.mark.parametrize("target", ["/data/a", "../a", "/workspace2", "a/../../b"])
def test_no_file_leaves_the_folder_of_its_job(target: str) -> None:
    upload = Upload("/a", target)
    with pytest.raises(UsageError, match="use a relative DEST"):
        job_tree([(upload, FILE)], None)
    with pytest.raises(UsageError, match="use a relative DEST"):
        check_for_cluster(TaskSpec(("true",), needs=ON, uploads=(upload,)), "hpc", SlurmCluster())


def test_what_run_asks_for_goes_to_a_cluster_and_artifacts_do_not() -> None:
    run = TaskSpec(
        ("true",),
        needs=ON,
        workdir="/workspace/p",
        uploads=(Upload("/home/me/p", "."),),
        outputs=(Output(".", "/home/me/p", changed=True),),
    )
    boxed = SlurmCluster(container="pyxis")
    check_for_cluster(run, "hpc", SlurmCluster())
    check_for_cluster(replace(run, image="torch"), "hpc", boxed)
    with pytest.raises(UsageError, match="use an absolute path on a shared disk"):
        check_for_cluster(replace(run, image="torch", uploads=()), "hpc", boxed)
    with pytest.raises(UsageError, match="where artifacts cannot be used; write to a shared disk"):
        check_for_cluster(replace(run, job=Job("w", "a", artifacts=("m",))), "hpc", SlurmCluster())
