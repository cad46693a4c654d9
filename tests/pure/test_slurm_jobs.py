"""What `squeue`, `sacct` and `sinfo` of Slurm 22.05 printed, and in part those of 20.11, 24.11 and 26.05."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.engines.slurm.jobs import MAX_JOBS, Job, parse_jobs
from agentless.engines.slurm.nodes import parse_nodes
from agentless.engines.slurm.reasons import reason_words
from agentless.rules.explain.waits import room

DATA = Path(__file__).parent / "data" / "slurm"
RECORDED = (DATA / "squeue-22.05.txt").read_text()
JOBS = {job.name: job for job in parse_jobs(RECORDED)}


def kind(job: Job) -> str:
    (only,) = (name for name in ("waits", "runs", "is_paused", "over") if getattr(job, name))
    return only


def test_each_job_waits_runs_or_is_over() -> None:
    assert {name: kind(job) for name, job in JOBS.items()} == {
        **dict.fromkeys(("ok", "code3", "sig", "canc"), "over"),
        **dict.fromkeys(("timeout", "run", "big"), "runs"),
        **dict.fromkeys(("held", "wait", "prio", "later", "dep", "arr", "req", "susp"), "waits"),
    }


def test_an_exit_code_is_that_of_the_script_and_a_signal_is_told_apart() -> None:
    found = {name: (JOBS[name].exit_code, JOBS[name].signal) for name in ("ok", "code3", "sig")}
    assert found == {"ok": (0, 0), "code3": (3, 0), "sig": (0, 9)}


def test_the_accounting_writes_an_exit_code_in_another_way() -> None:
    line = "7|CANCELLED by 1000|None|3:15|1795759823|1795759824|1795759884|c1|x|c|"
    (job,) = parse_jobs(line)
    assert (job.state, job.exit_code, job.signal) == ("CANCELLED", 3, 15)


def test_a_code_that_no_program_can_have_is_unknown() -> None:
    ends = {"3:0": 3, "255:0": 255, "256:0": None, "1000000127:0": None, "0:9": 137, "0:200": None}
    ends |= {str(3 << 8): 3, "9": 137, str(256 << 8): None}
    line = "7|FAILED|None|{}|1795759823|1795759824|1795759884|c1|x|c|"
    assert {word: next(parse_jobs(line.format(word))).code for word in ends} == ends


def test_the_text_of_squeue_says_what_its_json_says() -> None:
    """Both were recorded of one cluster at one moment."""
    jobs = {job.id: job for job in parse_jobs((DATA / "squeue-all-22.05.txt").read_text())}
    for each in json.loads((DATA / "squeue-all-22.05.json").read_text())["jobs"]:
        if each["array_job_id"]:
            continue  # one object for all its elements that wait; the text has a line for each
        job = jobs[str(each["job_id"])]
        assert (job.state, job.reason, job.name, job.comment, job.nodes, job.submitted) == (
            each["job_state"], each["state_reason"], each["name"], each["comment"], each["nodes"], each["submit_time"],
        )  # fmt: skip
        assert (job.exit_code << 8 | job.signal, job.start or 0) == (each["exit_code"], each["start_time"])


def test_the_accounting_knows_the_same_ends_as_squeue_but_has_no_code_of_what_slurm_has_ended() -> None:
    listed = {job.name: job for job in parse_jobs((DATA / "squeue-all-22.05.txt").read_text())}
    known = {job.name: job for job in parse_jobs((DATA / "sacct-22.05.txt").read_text())}
    over = {name: job for name, job in known.items() if job.over and name != "down"}
    assert {name: (job.state, job.start, job.end) for name, job in over.items()} == {
        name: (listed[name].state, listed[name].start, listed[name].end) for name in over
    }
    assert {name: job.code for name, job in known.items() if job.over} == {
        "ok": 0, "code3": 3, "sig": 137, "canc": None, "timeout": None, "down": 255,
    }  # fmt: skip
    assert {name: job.code for name, job in listed.items() if job.over} == {
        "ok": 0, "code3": 3, "sig": 137, "canc": 143, "timeout": 143, "never": None,
    }  # fmt: skip
    assert (known["wait"].nodes, known["wait"].started) == ("", False)


def test_the_json_of_the_accounting_of_2205_has_lost_an_exit_code() -> None:
    """One reason for reading text."""
    (failed,) = (job for job in json.loads((DATA / "sacct-22.05.json").read_text())["jobs"] if job["name"] == "code3")
    assert (failed["state"]["current"], failed["exit_code"]["return_code"]) == ("FAILED", 0)


def test_the_text_of_sinfo_says_what_its_json_says() -> None:
    nodes = {node.name: node for node in parse_nodes((DATA / "sinfo-22.05.txt").read_text())}
    for each in json.loads((DATA / "sinfo-22.05.json").read_text())["nodes"]:
        node = nodes[each["name"]]
        assert (node.cores, node.memory_mib, node.reason) == (each["cpus"], each["real_memory"], each["reason"])
        assert (node.state, f"gpu:{node.gpus[0][1]}", f"gpu:{node.gpus_used[0][1]}") == (
            "+".join([each["state"], *map(str.lower, each["state_flags"])]), each["gres"], each["gres_used"],
        )  # fmt: skip


@pytest.mark.parametrize("version", ["20.11", "22.05", "24.11", "26.05"])
def test_each_version_of_slurm_says_the_same_of_the_same_jobs_and_nodes(version: str) -> None:
    jobs = {job.name: job for job in parse_jobs((DATA / "versions" / f"squeue-{version}.txt").read_text())}
    assert {name: (kind(job), job.code) for name, job in jobs.items()} == {
        "ok": ("over", 0),
        "code3": ("over", 3),
        "sig": ("over", 137),
        "canc": ("over", 143),
        "never": ("over", None),
        **dict.fromkeys(("run", "big"), ("runs", None)),
        **dict.fromkeys(("wait", "later", "dep", "arr", "held"), ("waits", None)),
        "susp": ("is_paused", None),
    }
    assert {jobs[name].reason for name in ("held", "wait", "later", "dep")} == {
        "JobHeldUser", "Resources", "BeginTime", "Dependency",
    }  # fmt: skip
    assert [name for name, job in jobs.items() if job.awaits] == ["dep"]
    assert jobs["later"].start == jobs["later"].submitted + 3600
    nodes = {node.name: node for node in parse_nodes((DATA / "versions" / f"sinfo-{version}.txt").read_text())}
    assert {name: (node.gpus_used[0][1], node.is_out, node.reason) for name, node in nodes.items()} == {
        "c1": (1, False, ""), "c2": (0, True, "fan broken"), "c3": (4, False, ""),
    }  # fmt: skip


@given(st.data())
def test_a_line_that_is_cut_or_garbled_is_left_out_or_read_without_a_lie_about_its_state(data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(RECORDED.splitlines()))
    cut = line[: data.draw(st.integers(0, len(line) - 1))]
    for job in parse_jobs(cut):  # the comment is the last field
        assert job.state == line.split("|")[1]
    garbled = list(line)
    garbled[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.characters())
    for job in parse_jobs("".join(garbled)):
        assert job.submitted is None or job.submitted >= 0


def test_each_element_of_an_array_is_a_job() -> None:
    assert [job.id for job in parse_jobs(RECORDED) if job.name == "arr"] == [f"12_{number}" for number in range(10)]


def test_a_job_that_was_cancelled_in_the_queue_never_started() -> None:
    assert [JOBS[name].started for name in ("canc", "ok", "run", "wait")] == [False, True, True, False]


def test_an_expected_start_is_unix_seconds_and_unknown_is_none() -> None:
    assert (JOBS["later"].start, JOBS["wait"].start) == (1795763423.0, None)


def test_a_comment_may_have_the_sign_between_the_fields() -> None:
    assert JOBS["ok"].comment == "x|y"


def test_each_reason_is_a_sentence_without_its_name() -> None:
    words = {name: reason_words(JOBS[name].reason, JOBS[name].id) for name in ("wait", "prio", "later", "held", "dep")}
    assert words == {
        "wait": "waits for free resources",
        "prio": "jobs with a higher priority are ahead of it",
        "later": "its start time has not come",
        "held": "is held by its owner; on the cluster, run: scontrol release 6",
        "dep": "waits for a job that can no longer end as required",
    }
    assert reason_words("AssocGrpGRES", "7") == "a limit of its account is reached (AssocGrpGRES)"
    assert reason_words("ReqNodeNotAvail, UnavailableNodes:c1", "7") == "the nodes it wants are not available now"
    assert reason_words("Sunspots", "7") == "Sunspots"
    assert reason_words("PartitionDown", "7") == "its partition is down"
    assert reason_words("PartitionInactive", "7", "gpu") == "partition gpu is closed"
    down = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert reason_words(down, "7", "gpu").startswith("the nodes of partition gpu that could run it are down")


@given(st.text() | st.lists(st.text(), min_size=9, max_size=14).map("|".join))
def test_no_answer_is_too_odd_to_be_read(text: str) -> None:
    for job in parse_jobs(text):
        assert (job.name + job.comment + job.reason + job.nodes).isprintable()


def test_an_answer_without_end_is_read_to_a_bound() -> None:
    line = RECORDED.splitlines()[0]
    assert sum(1 for _ in parse_jobs("\n".join([line] * (MAX_JOBS + 5)))) == MAX_JOBS


SINFO = """\
c1|mixed|mixed|gpu:a100:4(S:0-1),gpu:h100:2|gpu:a100:3(IDX:0-2),gpu:h100:0(IDX:N/A)|8/24/0/32|64000|16000|none|
c1|mixed|mixed|gpu:a100:4(S:0-1),gpu:h100:2|gpu:a100:3(IDX:0-2),gpu:h100:0(IDX:N/A)|8/24/0/32|64000|16000|none|
c2||drained|gpu:2|gpu:0|0/0/16/16|1|0|fan | broken|
c3|idle|idle|(null)|gpu:0|0/8/0/8|2000|0|none|
nonsense
"""


def test_the_nodes_of_a_cluster_are_read_once_each() -> None:
    first, second, third = parse_nodes(SINFO)
    assert (first.gpus, first.gpus_used) == ((("a100", 4), ("h100", 2)), (("a100", 3), ("h100", 0)))
    assert (first.gpus_free, first.cores_used, first.cores) == (3, 8, 32)
    assert (first.memory_mib, first.memory_used_mib, first.reason) == (64000, 16000, "")
    assert (second.state, second.gpus, second.reason) == ("drained", (("", 2),), "fan | broken")
    assert third.gpus == ()
    assert room([first, second, third]) == "; 3 of its 8 GPUs free now, 1 node out"
    assert room([first, second, third], ["A100"]) == "; 1 of its 4 a100 GPUs free now, 1 node out"
    assert room([third]) == ""


@given(st.text() | st.lists(st.text(), min_size=8, max_size=10).map("|".join))
def test_no_list_of_nodes_is_too_odd_to_be_read(text: str) -> None:
    for node in parse_nodes(text):
        assert (node.name + node.state + node.reason).isprintable()
