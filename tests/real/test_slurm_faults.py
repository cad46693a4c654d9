"""Faults of a real Slurm: its daemons, its nodes, its operators; and of the way to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentless.engines import launch_script
from agentless.model.containers.claim import TASK
from tests.faults.kill import HOOK
from tests.lab import Lab
from tests.lab.slurm import MEMORY_GROUPS, Slurm
from tests.real.cli import Cli, Done, finish, until
from tests.real.slurm import end, jobs, number, running, started, state

pytestmark = pytest.mark.slow
SETTINGS = {
    "SchedulerParameters": "bf_interval=1,sched_interval=1,sched_min_interval=0",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "KillWait": "1",
    "MessageTimeout": "10",
}
PARTITIONS = {"gpu": "Default=YES State=UP PriorityTier=1", "urgent": "State=UP PriorityTier=9"}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Two nodes with two GPUs; what is in the partition `urgent` preempts what is in the other one."""
    with started({"c1": 2, "c2": 2}, PARTITIONS, SETTINGS) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def cli(slurm: Slurm) -> Iterator[Cli]:
    """A person whose inventory has the cluster `hpc`, and whose controller may be told to die before a step."""
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        _, cluster = slurm.login_of(lab)
        text = f"version: 1\nclusters:\n  hpc: {{engine: slurm, {cluster}}}\nnodes: {{}}\n"
        cli = Cli(lab, "main", text, PYTHONPATH=str(HOOK), AGENTLESS_FAULTS_STEP=str(lab.root / "step"))
        yield cli
        cli.close()


def test_tasks_of_a_lost_state_folder_are_found_again_by_the_scripts_of_their_jobs(cli: Cli, slurm: Slurm) -> None:
    runs = running(cli, "--name", "runs", "--", "sleep", "300")
    ended = cli.submit("hpc", "--", "sh", "-c", "exit 5")
    cli("wait", ended, code=5)
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=drain", "reason=fan")
    waits = cli.submit("hpc", "1x", "--", "true")
    until(lambda: "down, drained, or kept for other jobs" in str(cli.task(waits)["reason"]))
    forged = forge(cli.lab.nodes["login"].dir / "home/.agentless/slurm", ended)
    cli("controller", "stop")
    shutil.rmtree(cli.state)
    cli("recover", "--yes")
    tasks = {task["id"]: task for task in cli.get("/v1/tasks", ended=True)}
    assert {key: (task["state"], task["exit_code"]) for key, task in tasks.items()} == {
        runs: ("running", None),
        ended: ("failed", 5),
        waits: ("submitted", None),
    }
    assert (tasks[runs]["name"], tasks[runs]["owner"]) == ("runs", cli.task(waits)["owner"])
    os.chown(forged / "script", 0, 0)  # his own is offered, and a person decides
    assert f"2f{ended[2:]}" in cli("recover", code=None).out
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=resume")
    assert end(cli, waits)[:2] == ("completed", 0)
    cli("kill", runs)
    assert jobs(slurm, runs) == ["FAILED"]
    shutil.rmtree(forged)


def test_a_job_that_is_newer_than_the_state_is_taken_back_by_itself(cli: Cli, slurm: Slurm) -> None:
    cli("nodes")
    cli("controller", "stop")
    before = cli.lab.root / "before"
    shutil.copytree(cli.state, before)
    task = running(cli, "--name", "newer", "--", "sleep", "300")
    cli("controller", "stop")
    shutil.rmtree(cli.state)
    before.rename(cli.state)
    cli("nodes")
    until(lambda: [each["name"] for each in cli.get("/v1/tasks")] == ["newer"])
    assert state(cli, task) == "running"
    cli("kill", task)
    assert jobs(slurm, task) == ["FAILED"]


def forge(folder: Path, task: str) -> Path:
    """A folder like that of this task, with another task in a script that somebody else has written."""
    name = f"2f{task[2:]}"
    forged = Path(shutil.copytree(folder / f"agentless-{task}", folder / f"agentless-{name}"))
    head, packed, rest = (forged / "script").read_text().split("\n", 2)
    labels = {**launch_script.unpacked(packed.removeprefix("# ")), TASK: name}
    (forged / "script").write_text(f"{head}\n# {launch_script.packed(labels)}\n{rest}")
    os.chown(forged / "script", 65534, 65534)
    return forged


def killed_in_submit(cli: Cli, step: str, words: Sequence[str], mark: str) -> tuple[Done, list[dict[str, Any]]]:
    """A submit whose controller dies before this step, and the tasks there are with the mark in their command."""
    cli.get("/v1/tasks")
    cli.lab.root.joinpath("step.new").write_text(step)
    cli.lab.root.joinpath("step.new").rename(cli.lab.root / "step")
    done = cli("submit", *words, code=None, TOKEN="hush")
    cli.lab.root.joinpath("step").unlink(missing_ok=True)
    if not cli.lab.root.joinpath("step.at").exists():
        cli("controller", "stop", code=None)  # or it would die of what follows
    cli.lab.root.joinpath("step.at").unlink(missing_ok=True)
    return done, [task for task in cli.get("/v1/tasks", ended=True) if mark in str(task["command"])]


@pytest.mark.parametrize("step", [*(f"disk {n}" for n in range(1, 30, 5)), *(f"net {n}" for n in range(1, 8))])
def test_a_controller_that_dies_before_any_step_of_a_submit_leaves_one_job(cli: Cli, slurm: Slurm, step: str) -> None:
    runs = cli.lab.root / f"runs-{step.replace(' ', '-')}-"
    words = ("--secret-env", "TOKEN", "hpc", "--", "sh", "-c", f"echo ${{#TOKEN}} >> {runs}; exit 3")
    done, found = killed_in_submit(cli, step, words, str(runs))
    assert len(found) == 1 or (not found and done.code != 0), (found, done)
    for task in found:
        assert end(cli, task["id"])[:2] == ("failed", 3)
        assert jobs(slurm, task["id"]) == ["FAILED"]
        assert runs.read_text() == "4\n"


@pytest.mark.parametrize("step", [*(f"disk {n}" for n in range(2, 40, 9)), *(f"net {n}" for n in range(1, 8, 2))])
def test_a_controller_that_dies_before_any_step_of_a_batch_leaves_one_job_of_each(
    cli: Cli, slurm: Slurm, step: str
) -> None:
    runs = cli.lab.root / f"batch-{step.replace(' ', '-')}-"
    words = ("--secret-env", "TOKEN", "hpc", "--", "sh", "-c", f"echo ${{#TOKEN}} >> {runs}$0; exit 3", "span:{1..4}")
    done, found = killed_in_submit(cli, step, words, str(runs))
    assert len(found) == 4 or (not found and done.code != 0), (found, done)
    assert {end(cli, task["id"])[:2] for task in found} <= {("failed", 3)}
    assert {each.read_text() for each in runs.parent.glob(f"{runs.name}*")} <= {"4\n"}
    assert len({number(cli, task["id"]) for task in found}) == len(found)
    assert not [*cli.lab.nodes["login"].dir.joinpath("home/.agentless/slurm").glob("agentless-*/secrets")]


@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize(
    "when", ["before and sbatch goes on", "before and sbatch dies", "after and sbatch dies", "after"]
)
def test_a_controller_that_dies_while_sbatch_runs_leaves_one_job(cli: Cli, slurm: Slurm, when: str, many: int) -> None:
    """Before the job exists, whether it comes into being later or not; or after that, before the answer."""
    runs, sbatch = cli.lab.root / f"runs {when} {many}", cli.lab.nodes["login"].dir / "bin" / "sbatch"
    hangs, real = cli.lab.root / "hangs", sbatch.read_text()
    head, _, submit = real.rpartition("exec ")
    hang = f"[ -e {hangs} ] || {{ echo $$ > {hangs}; sleep 20; }}\n"
    sbatch.write_text(f"{head}{submit}{hang}" if when.startswith("after") else f"{head}{hang}{submit}")
    submitting = cli.start("submit", "hpc", "--", "sh", "-c", f"echo run$0 >> '{runs}'; exit 3", f"span:{{1..{many}}}")
    until(lambda: hangs.exists() and hangs.read_text())
    cli.kill_controller()
    if "dies" in when:
        os.killpg(os.getpgid(int(hangs.read_text())), signal.SIGKILL)
    finish(submitting)
    tasks = [each["id"] for each in cli.get("/v1/tasks", ended=True) if str(runs) in str(each["command"])]
    assert [end(cli, task)[:2] for task in tasks] == [("failed", 3)] * many
    assert sorted(runs.read_text().split()) == [f"run{each}" for each in range(1, many + 1)]
    assert len({number(cli, task) for task in tasks}) == many
    hangs.unlink()
    sbatch.write_text(real)


def test_an_element_of_an_array_is_put_back_recovered_and_removed_apart_from_the_others(cli: Cli, slurm: Slurm) -> None:
    cli("submit", "hpc", "--", "sh", "-c", "echo $0; sleep 300", "span:{1..3}")
    tasks = [each["id"] for each in cli.get("/v1/tasks") if each["command"][-1] in "123"]
    until(lambda: {state(cli, task) for task in tasks} == {"running"})
    jobs = [number(cli, task) for task in tasks]
    slurm.run("scontrol", "update", f"jobid={jobs[1]}", "requeue=1")
    slurm.run("scontrol", "requeuehold", jobs[1])
    until(lambda: state(cli, tasks[1]) == "submitted")
    cli("controller", "stop")
    shutil.rmtree(cli.state)
    cli("recover", "--yes")
    until(lambda: [state(cli, task) for task in tasks] == ["running", "submitted", "running"])
    assert [number(cli, task) for task in tasks] == jobs
    cli("rm", "--force", tasks[0])
    slurm.run("scontrol", "update", f"jobid={jobs[1]}", "starttime=now")
    slurm.run("scontrol", "release", jobs[1])
    until(lambda: state(cli, tasks[1]) == "running" and cli("logs", tasks[1]).out.endswith("\n2\n"))
    assert state(cli, tasks[2]) == "running"
    listed = slurm.run("squeue", "--noheader", "--states=all", "--array", f"--jobs={','.join(jobs)}", "--format=%i %T")
    assert dict(line.split() for line in listed.splitlines())[jobs[0]] in ("CANCELLED", "COMPLETING", "FAILED")
    cli("kill", *tasks[1:])


def test_a_job_that_arrives_late_does_not_run_beside_the_one_that_replaced_it(cli: Cli, slurm: Slurm) -> None:
    runs = cli.lab.root / "runs-late"
    task = running(cli, "--", "sh", "-c", f"echo run >> {runs}; sleep 300")
    folder, said = f"$HOME/.agentless/slurm/agentless-{task}", cli.lab.root / "said"
    cli.lab.nodes["login"].sh(f"sbatch --job-name=agentless-{task} --output={said} {folder}/script")
    until(lambda: "FAILED" in jobs(slurm, task))
    assert said.read_text() == f"job {number(cli, task)} is the job of this task\n"
    assert (state(cli, task), runs.read_text()) == ("running", "run\n")
    cli("kill", task)


def test_a_job_that_was_renamed_while_no_controller_ran_runs_or_is_lost_and_does_not_run_again(
    cli: Cli, slurm: Slurm
) -> None:
    runs = running(cli)
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=drain", "reason=fan")
    waits = cli.submit("--retries", "1", "hpc", "1x", "--", "true")
    until(lambda: state(cli, waits) == "submitted")
    held = [number(cli, task) for task in (runs, waits)]
    cli("controller", "stop")
    for each in held:
        slurm.run("scontrol", "update", f"jobid={each}", "name=mine", "comment=mine")
    until(lambda: state(cli, waits) == "lost")
    assert (state(cli, runs), jobs(slurm, waits)) == ("running", [])
    assert f"its job {held[1]} has another name and comment" in cli("explain", waits).out
    slurm.run("scontrol", "update", f"jobid={held[1]}", f"name=agentless-{waits}")
    until(lambda: state(cli, waits) == "submitted")
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=resume")
    assert end(cli, waits)[:2] == ("completed", 0)
    cli("kill", runs)


def test_a_job_that_has_got_the_number_of_a_task_is_left_alone(cli: Cli, slurm: Slurm) -> None:
    """Slurm has lost its state, and counts anew."""
    tasks = [running(cli) for _ in range(4)]
    numbers = [number(cli, task) for task in tasks]
    with slurm.without_controller():
        slurm.forget()
    while (last := slurm.run("sbatch", "--parsable", "--wrap=sleep 300").strip()) not in numbers[-1:]:
        if last not in numbers:
            slurm.run("scancel", last)
    for task, words in zip(tasks, (["stop"], ["kill"], ["pause"], ["rm", "--force"]), strict=True):
        cli(*words, task, code=None)
    shown = slurm.run("squeue", "--noheader", "--states=all", f"--jobs={','.join(numbers)}", "--format=%i %T")
    assert {state for _, state in map(str.split, shown.splitlines())} <= {"RUNNING", "PENDING"}
    slurm.run("scancel", "--user=root")
    until(lambda: not cli.get("/v1/tasks"))


def test_tasks_of_a_cluster_that_is_another_slurm_now_are_lost_and_go_on_when_it_is_back(
    cli: Cli, slurm: Slurm
) -> None:
    slurm.run("scontrol", "update", "nodename=c2", "state=drain", "reason=fan")
    runs, waits = (running(cli, "2x", "--", "sleep", "300"), cli.submit("--retries", "1", "hpc", "2x", "--", "true"))
    until(lambda: state(cli, waits) == "submitted")
    programs = [*(cli.lab.nodes["login"].dir / "bin").iterdir()]

    def switch(before: Slurm, now: Slurm) -> None:
        for program in programs:
            program.write_text(program.read_text().replace(before.env["SLURM_CONF"], now.env["SLURM_CONF"]))

    with started({"c1": 2}, {"gpu": "Default=YES State=UP"}, {"ClusterName": "other"}) as other:
        switch(slurm, other)
        until(lambda: [state(cli, task) for task in (runs, waits)] == ["lost", "lost"])
        for task in (runs, waits):
            assert f"task {task} is lost: hpc is another Slurm now (ClusterName other at " in cli("explain", task).out
        assert cli("stop", runs, code=None).code != 0
        assert other.run("squeue", "--noheader", "--states=all") == ""
        switch(other, slurm)
        assert end(cli, runs)[0] == "stopped"
    assert end(cli, waits)[:2] == ("completed", 0)
    slurm.run("scontrol", "update", "nodename=c2", "state=resume")


def cancel(slurm: Slurm, job: str) -> None:
    slurm.run("scancel", job)


def preempt(slurm: Slurm, job: str) -> None:
    del job
    slurm.run("sbatch", "--partition=urgent", "--nodes=2", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 1")


def lose_its_node(slurm: Slurm, job: str) -> None:
    node = slurm.run("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
    slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=fan")
    until(lambda: is_resumed(slurm, node))


def is_resumed(slurm: Slurm, node: str) -> bool:
    with contextlib.suppress(RuntimeError):  # its job has to be gone first
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    return slurm.run("sinfo", "--noheader", "--partition=gpu", f"--nodes={node}", "--format=%t").strip() == "idle"


@pytest.mark.parametrize(
    ("what", "expected", "why"),
    [
        (cancel, "killed", "its job was cancelled on the cluster, outside agentless"),
        (preempt, "failed", "its job was preempted by Slurm"),
        (lose_its_node, "failed", "a node of its job failed"),
    ],
)
def test_what_slurm_does_to_a_job_is_told_in_words(
    cli: Cli, slurm: Slurm, what: Callable[[Slurm, str], None], expected: str, why: str
) -> None:
    task = running(cli, "2x", "--", "sleep", "300")
    what(slurm, number(cli, task))
    state, code, reason = end(cli, task)
    assert (state, reason) == (expected, why)
    assert code in (137, 143, 255)
    assert why in cli("explain", task).out


def test_a_preemptible_task_runs_again_as_the_same_job_or_ends_as_preempted(cli: Cli, slurm: Slurm) -> None:
    work = ("2x", "--", "sh", "-c", "echo run; [ $SLURM_RESTART_COUNT ] || sleep 300")
    again = running(cli, "--preemptible", *work)
    job = number(cli, again)
    until(lambda: cli("logs", again, code=None).out == "run\n")
    preempt(slurm, job)
    until(lambda: state(cli, again) == "submitted")
    assert "its start time has not come" in cli("explain", again).out  # Slurm waits for two minutes
    slurm.run("scontrol", "update", f"jobid={job}", "starttime=now")
    assert end(cli, again)[:2] == ("completed", 0)
    assert (number(cli, again), cli("logs", again).out.splitlines().count("run")) == (job, 2)
    ends = running(cli, "--preemptible", "--on-preempt", "end", "2x", "--", "sleep", "300")
    preempt(slurm, number(cli, ends))
    assert end(cli, ends)[::2] == ("preempted", "its job was preempted by Slurm")


def test_a_step_that_slurm_killed_for_want_of_memory_is_told_apart_from_a_failure(cli: Cli) -> None:
    """By what srun says then, apart from the output."""
    srun = cli.lab.nodes["login"].dir / "bin" / "srun"
    real = srun.read_text()
    srun.write_text(f"{real.replace('exec ', '')}echo 'srun: error: c1: task 0: Out Of Memory' >&2; exit 1\n")
    task = cli.submit("hpc", "--", "true")
    assert end(cli, task)[:2] == ("killed_oom", 137)
    srun.write_text(real)


def test_a_step_that_takes_more_memory_than_its_job_has_is_killed_and_its_task_says_so() -> None:
    """Also on one of several nodes; the kernel does it, and what takes less goes on."""
    lacks = [] if os.access(MEMORY_GROUPS / "cgroup.procs", os.W_OK) else ["no control groups of version 1 for memory"]
    nodes, takes = {"memory1": 1, "memory2": 1}, ("--", "python3", "-c", "bytearray(300 << 20)")
    with (
        started(nodes, {"gpu": "Default=YES State=UP"}, {}, memory=2000, lacks=lacks) as slurm,
        Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab,
    ):
        _, cluster = slurm.login_of(lab)
        cli = Cli(lab, inventory=f"version: 1\nclusters:\n  hpc: {{engine: slurm, {cluster}}}\nnodes: {{}}\n")
        try:
            words = [("--memory", "64M"), ("--memory", "64M", "--nodes", "2"), ("--memory", "900M")]
            tasks = [cli.submit(*each, "hpc", *takes) for each in words]
            assert [end(cli, each)[:2] for each in tasks] == [("killed_oom", 137)] * 2 + [("completed", 0)]
            assert "oom-kill event" in cli("logs", tasks[0]).out
        finally:
            cli.close()


def test_a_drained_node_is_a_reason_to_wait_and_its_tasks_run_on(cli: Cli, slurm: Slurm) -> None:
    stays = running(cli)
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=drain", "reason=fan")
    waits = cli.submit("hpc", "1x", "--", "true")
    until(lambda: "down, drained, or kept for other jobs" in cli("explain", waits).out)
    assert state(cli, stays) == "running"
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=resume")
    assert end(cli, waits)[:2] == ("completed", 0)
    cli("kill", stays)


def test_a_job_that_slurm_puts_back_has_no_secret_left_and_says_so(cli: Cli, slurm: Slurm) -> None:
    words = ("--secret-env", "TOKEN", "hpc", "--", "sh", "-c", "echo ${#TOKEN}; sleep 300")
    task = cli("submit", *words, TOKEN="hush").out.strip()
    until(lambda: cli("logs", task, code=None).out == "4\n" and state(cli, task) == "running")
    slurm.run("scontrol", "update", f"jobid={number(cli, task)}", "requeue=1")
    slurm.run("scontrol", "requeuehold", number(cli, task))
    until(lambda: state(cli, task) == "submitted" and "held" in str(cli.task(task)["reason"]))
    slurm.run("scontrol", "update", f"jobid={number(cli, task)}", "starttime=now")
    slurm.run("scontrol", "release", number(cli, task))
    assert end(cli, task)[:2] == ("failed", 1)
    assert "its secrets are gone; submit the task again" in cli("logs", task).out


def test_slurmctld_that_is_killed_changes_nothing_for_a_job(cli: Cli, slurm: Slurm) -> None:
    task = running(cli, "--", "sh", "-c", "sleep 20; exit 5")
    slurm.wait_until_saved(number(cli, task))
    with slurm.without_controller():
        late = cli.start("submit", "hpc", "--", "true")
        until(lambda: "Unable to contact slurm controller" in cli("ps").out)
        done = finish(late)
        new = done.out.strip()
        assert "may have submitted" in done.err
        assert f"task {new} is assigning: hpc does not answer: " in cli("explain", new).out
    assert end(cli, task)[:2] == ("failed", 5)
    assert end(cli, new)[:2] == ("completed", 0)
    assert jobs(slurm, new) == ["COMPLETED"]


def test_slurmctld_that_answers_nothing_keeps_nobody_waiting(cli: Cli, slurm: Slurm) -> None:
    """What is shown says as of when it is, and what is asked for meanwhile is done when it answers."""
    assert [row["as_of"] for row in cli.json("gpus", "hpc")] == [None, None]
    stays = running(cli, "--", "sleep", "300")
    with slurm.frozen_controller():
        began = time.monotonic()
        listed = cli("gpus", "hpc")
        submitted = cli("submit", "hpc", "--", "true")
        stopped = cli("stop", stays, code=None)
        took = time.monotonic() - began
        until(lambda: str(cli.task(stays)["reason"]).startswith("as of "))
        assert "as of " in cli("nodes").out
    assert f"hpc does not answer; agentless ends task {stays} when hpc answers" in stopped.err
    assert end(cli, stays)[0] == "stopped"
    assert "hpc does not answer. Its nodes are as of " in listed.err
    assert [row.split()[0] for row in listed.out.splitlines()] == ["NODE", "c1", "c2"]
    task = submitted.out.strip()
    assert f"hpc has not answered yet, and may have submitted task {task}" in submitted.err
    assert took < 25
    assert end(cli, task)[:2] == ("completed", 0)
    assert jobs(slurm, task) == ["COMPLETED"]


def test_a_login_node_that_is_away_for_a_minute_takes_nothing_along(cli: Cli, slurm: Slurm) -> None:
    timed = running(cli)
    slurm.run("scontrol", "update", f"jobid={number(cli, timed)}", "timelimit=1")
    task = running(cli, "--", "sh", "-c", "for n in $(seq 80); do echo $n; sleep 1; done; exit 7")
    login = cli.lab.nodes["login"]
    following = cli.start("logs", "-f", task)
    assert following.stdout.readline() == "1\n"
    login.stop_sshd()
    late = cli.start("submit", "hpc", "--", "true")
    until(lambda: state(cli, task) == "lost", 90)
    login.start_sshd()
    numbers = [int(line) for line in following.stdout]
    assert numbers == list(range(2, 81))
    assert "its output continues here when the node answers" in finish(following).err
    assert end(cli, task)[:2] == ("failed", 7)
    assert end(cli, finish(late).out.strip())[:2] == ("completed", 0)
    assert end(cli, timed) == ("timeout", 143, "reached the time limit of its job")
