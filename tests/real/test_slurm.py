"""Tasks on a real Slurm: munged, slurmctld and three slurmd, reached by SSH over a login node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from agentless.engines import launch_script
from agentless.engines.slurm.engine import Slurm as Engine
from agentless.errors import RuntimeFailed
from agentless.model.command import Result
from agentless.model.containers.launch import Launch
from agentless.model.containers.signature import Signer
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Placement, Task
from agentless.paths import template_dir
from agentless.render import Renderer
from tests import ready
from tests.lab import Lab
from tests.lab.slurm import Slurm
from tests.pure import build
from tests.real.cli import Cli, finish, until
from tests.real.slurm import end, jobs, number, running, started, state

ENGINE = Engine(NodeConfig("hpc", "login1"), SlurmCluster(), Renderer([template_dir()]), Signer("c1", b"key"))
SECRETS = {"TOKEN": "hush"}
SECRET = TaskSpec(("true",), secret_env=("TOKEN",))
CANCELLED = "its job was cancelled on the cluster, outside agentless"
APPTAINER = """#!/bin/sh
echo "apptainer $*"
while [ "${1#docker://}" = "$1" ]; do shift; done
shift
exec env A="$APPTAINERENV_A" "$@"
"""
PYXIS = """#!/bin/sh
for word; do
  shift
  case $word in
    --container-*) asked="$asked $word" ;;
    *) set -- "$@" "$word" ;;
  esac
done
[ -z "$asked" ] || set -- --export=ALL,ASKED="$(echo "$asked" | tr , ';')" "$@"
{srun}
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Nodes with 2, 2 and 4 GPUs, which are plain files."""
    settings = {"SchedulerParameters": "bf_interval=1,sched_interval=1"}
    with started({"c1": 2, "c2": 2, "c3": 4}, {"gpu": "Default=YES State=UP"}, settings) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def cli(slurm: Slurm) -> Iterator[Cli]:
    """A person whose inventory has the cluster `hpc`, and a machine that is not there."""
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        login, cluster = slurm.login_of(lab)
        # A job has the PATH of the login. Stand-ins for apptainer and for the plugin pyxis say what they are asked for.
        (login.dir / "bin" / "apptainer").write_text(APPTAINER)
        srun = login.dir / "bin" / "srun"
        srun.write_text(PYXIS.format(srun=srun.read_text()))
        (login.dir / "bin" / "apptainer").chmod(0o755)
        (login.dir / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: GPU-1)'\n")
        kinds = {"hpc": "none", "boxed": "apptainer", "squashed": "pyxis"}
        clusters = [f"  {name}: {{engine: slurm, {cluster}, container: {kind}}}\n" for name, kind in kinds.items()]
        text = (
            f"version: 1\nclusters:\n{''.join(clusters)}overflow: {{after: 1ms}}\nnodes:\n  away: {{host: 127.0.0.9}}\n"
        )
        cli = Cli(lab, inventory=text)
        yield cli
        cli.close()


def sent(cli: Cli, *tasks: Task, before: str = "") -> list[Result]:
    """The answers to the script that launches them, by a shell on the login node."""
    command = ENGINE.launches([Launch(each, Placement("hpc"), secrets=SECRETS) for each in tasks])
    ran = cli.lab.nodes["login"].sh(f"export TOKEN=hush\n{before}{command.script}")
    return ENGINE.answers(len(tasks), Result(ran.returncode, ran.stdout.encode(), ran.stderr.encode()))


def test_a_task_runs_on_the_cluster_and_its_output_and_exit_code_come_back(cli: Cli) -> None:
    ran = cli("submit", "--follow", "hpc", "1x", "--", "sh", "-c", "echo out; echo err >&2; exit 3", code=3)
    assert sorted(ran.out.split()) == ["err", "out"]
    (task,) = cli.get("/v1/tasks", ended=True)
    assert (task["state"], task["exit_code"], task["node"]) == ("failed", 3, "hpc")
    cli.kill_controller()
    assert cli.task(task["id"])["compute_nodes"] == "c1"
    assert " hpc 1x (c1) " in cli("ps", "--all").out
    assert f"task {task['id']} has ended on c1 of hpc (failed" in cli("explain", task["id"]).out


def test_output_without_a_line_break_is_in_the_log_while_the_task_runs(cli: Cli) -> None:
    asks = "printf '\\r1%%'; printf ok? >&2; until [ -e $0 ]; do sleep 0.2; done; [ -t 1 ] || echo no terminal"
    go = cli.lab.root / "go"
    task = cli.submit("hpc", "--", "sh", "-c", asks, str(go))
    until(lambda: cli("logs", task, code=None).out == "\r1%ok?")
    go.touch()
    assert end(cli, task)[0] == "completed"
    assert cli("logs", task).out == "\r1%ok?no terminal\n"


def test_what_waits_in_slurm_says_why_and_can_be_stopped_there(cli: Cli, slurm: Slurm) -> None:
    holder = running(cli, "4x", "--", "sleep", "300")
    waiting = cli.submit("hpc", "4x", "--time-limit", "10min", "--", "true")
    until(lambda: "waits for free resources" in str(cli.task(waiting)["reason"]))
    assert cli("explain", waiting).out.startswith(f"task {waiting} is job ")
    assert "  starts  unknown\n" in cli("show", waiting).out  # what holds the GPUs has no time limit
    assert [task["id"] for task in cli.get("/v1/queue")] == [waiting]
    cli("stop", waiting)
    assert (state(cli, waiting), jobs(slurm, waiting)) == ("cancelled", ["CANCELLED"])
    after = cli("submit", "--after", holder, "hpc", "--", "true")
    assert f"in the queue of hpc: job {number(cli, after.out.strip())}: waits for task {holder}\n" in after.err
    cli("stop", after.out.strip())
    cli("pause", holder)
    assert (state(cli, holder), jobs(slurm, holder)) == ("paused", ["SUSPENDED"])
    cli("resume", holder)
    cli("stop", holder)
    assert state(cli, holder) == "stopped"
    refused = cli("shell", "hpc", code=2).err
    assert "hpc is a cluster, not a task; to log in to its login node, run: agentless ssh hpc" in refused


def test_a_command_that_ignores_sigterm_is_killed_at_once_and_a_job_without_a_command_yet_ends_too(cli: Cli) -> None:
    ignores = ("--", "sh", "-c", "trap '' TERM; echo up; exec sleep 300")
    tasks = [running(cli, "1x", *words, *ignores) for words in ((), ("--nodes", "2"), ())]
    until(lambda: all("up" in cli("logs", each, code=None).out for each in tasks))
    cli("pause", tasks[-1])
    program = cli.lab.nodes["login"].dir / "bin" / "srun"
    before = program.read_text()
    program.write_text("#!/bin/sh\nexec sleep 300\n")
    try:
        tasks.append(running(cli))
    finally:
        program.write_text(before)
    began = time.monotonic()
    cli("kill", *tasks)
    assert time.monotonic() - began < 10  # Slurm itself waits for 30 seconds
    found = [cli.task(each) for each in tasks]
    assert [each["state"] for each in found] == ["killed"] * 4
    assert [each["exit_code"] for each in found[:2]] == [137] * 2


def test_a_task_on_several_nodes_is_one_job_whose_command_runs_once_on_each(cli: Cli) -> None:
    """Also as elements of an array. Each has the secret; the first failure is the exit code, and ends the others."""
    says = (
        "echo $NODE_RANK/$AGENTLESS_NNODES $AGENTLESS_NODES $MASTER_ADDR $WORLD_SIZE ${#TOKEN}; cat $AGENTLESS_HOSTFILE"
    )
    words = ("-s", "TOKEN", "--nodes", "2", "hpc", "2x", "--", "sh", "-c", f"{says}; [ $MASTER_PORT -gt 29499 ]")
    ran = cli("submit", "-f", *words, TOKEN="hush", code=None)
    expected = [[f"{rank}: {rank}/2 c1,c2 c1 4 4", f"{rank}: c1 slots=2", f"{rank}: c2 slots=2"] for rank in range(2)]
    assert sorted(ran.out.splitlines()) == sorted(expected[0] + expected[1])
    fails = "[ $NODE_RANK = 0 ] || exit $0; exec sleep 300"
    batch = cli("submit", "--wait", "--nodes", "2", "hpc", "2x", "--", "sh", "-c", fails, "span:{3..4}", code=None)
    found = [cli.task(each) for each in batch.out.split()]
    assert [(each["exit_code"], each["job_nodes"]) for each in found] == [(3, 2), (4, 2)]
    assert {each["container"].partition("_")[2][:1] for each in found} == {"1", "2"}
    assert {each["compute_nodes"] for each in found} == {"c[1-2]"}
    task = running(cli, "1x", "--nodes", "2", "--", "sh", "-c", "trap 'exit 5' TERM; sleep 300 & wait")
    assert cli("shell", task, "--", "echo", "inside").out == "inside\n"
    cli("stop", task)
    assert state(cli, task) == "stopped"


@pytest.mark.slow
def test_a_command_that_fails_before_it_has_begun_on_the_other_node_ends_the_task(cli: Cli, slurm: Slurm) -> None:
    login, conf = cli.lab.nodes["login"], Path(slurm.env["SLURM_CONF"])
    program, report = login.dir / "bin" / "srun", f"{login.dir}/home/.agentless/slurm/$SLURM_JOB_NAME/srun"
    before = program.read_text()
    ended = f"until grep -qs Terminating {report}; do sleep 0.1; done"
    daemon = conf.with_name("c1.pid").read_text().strip()
    program.write_text(f"#!/bin/sh\nkill -STOP {daemon}\n({ended}; kill -CONT {daemon}) &\n{before}")
    try:
        command = ("sh", "-c", "[ $NODE_RANK = 0 ] || exit 3; exec sleep 300")
        task = cli.submit("hpc", "2x", "--nodes", "2", "--exclude", "c3", "--", *command)
        assert end(cli, task)[:2] == ("failed", 3)
    finally:
        program.write_text(before)


@pytest.mark.slow
def test_a_task_that_waits_too_long_leaves_the_queue_and_no_excluded_node_runs_one(cli: Cli, slurm: Slurm) -> None:
    where = ("--", "sh", "-c", "echo $SLURMD_NODENAME")
    assert cli("submit", "-f", "--exclude", "c1", "--exclude", "c2", "hpc", "1x", *where).out == "c3\n"
    refused = cli("submit", "--exclude", "c4", "hpc", *where, code=2)
    assert "hpc has no such node" in refused.err
    holder = running(cli, "4x", "--wait-for", "1min", "--", "sleep", "300")
    waiting = cli.submit("hpc", "4x", "--wait-for", "1s", "--", "true")
    assert end(cli, waiting) == ("cancelled", 1, "gave up after 1s in the queue (--wait-for)")
    until(lambda: cli.get("/v1/clusters")[0]["gpus_free"] == 4, 15)  # of 8, as of the start of the holder
    assert (jobs(slurm, waiting), state(cli, holder)) == (["CANCELLED"], "running")
    cli("kill", holder)


@pytest.mark.slow
def test_a_task_that_is_not_to_wait_ends_if_slurm_does_not_start_it(cli: Cli, slurm: Slurm) -> None:
    holder = running(cli, "4x", "--no-queue", "--", "sleep", "300")
    waiting = cli.submit("hpc", "4x", "--no-queue", "--", "true")
    assert end(cli, waiting) == ("cancelled", 1, "could not start at once (--no-queue)")
    assert (jobs(slurm, waiting), state(cli, holder)) == (["CANCELLED"], "running")
    cli("kill", holder)


@pytest.mark.slow
def test_slurm_keeps_a_task_until_its_start_time(cli: Cli, slurm: Slurm) -> None:
    begin = time.time() + 3600
    later, soon = (cli.submit("--in", delay, "hpc", "--", "true") for delay in ("1h", "2s"))
    until(lambda: "its start time has not come; begins in 59m" in cli("explain", later).out)
    said = slurm.run("squeue", "--noheader", f"--name=agentless-{later}", "--format=%S")
    assert 0 <= datetime.fromisoformat(said.strip()).timestamp() - begin < 60
    cli("stop", later)
    assert end(cli, soon)[0] == "completed"


def test_a_job_that_an_answer_lacks_is_not_gone_and_an_element_that_is_cancelled_leaves_no_secret(
    cli: Cli, slurm: Slurm
) -> None:
    login = cli.lab.nodes["login"]
    folder, program = login.dir / "home" / ".agentless" / "slurm", login.dir / "bin" / "squeue"
    holder = running(cli, "4x", "--", "sleep", "300")
    words = ("--secret-env", "TOKEN", "hpc", "4x", "--", "true", "span:{1..3}")
    batch = cli("submit", *words, TOKEN="secret").out.split()[0]
    tasks = [each for each in cli.get("/v1/tasks") if each["batch"] == batch]
    until(lambda: {state(cli, each["id"]) for each in tasks} == {"submitted"})
    (login.dir / "lacking").touch()
    real = program.read_text()
    program.write_text(f"#!/bin/sh\necho asked >> {login.dir}/lacking\n")
    until(lambda: (login.dir / "lacking").read_text().count("asked") > 2)
    assert {state(cli, each["id"]) for each in [*tasks, cli.task(holder)]} == {"submitted", "running"}
    program.write_text(real)
    slurm.run("scancel", tasks[1]["container"].partition(":")[0])
    until(lambda: state(cli, tasks[1]["id"]) == "killed")
    left = [(folder / f"agentless-{each['id']}" / "secrets").exists() for each in tasks]
    assert left == [True, False, True]
    cli("kill", *(each["id"] for each in tasks if each is not tasks[1]), holder)


def test_what_no_node_of_the_cluster_has_is_refused_and_leaves_no_job(cli: Cli) -> None:
    refused = cli("submit", "hpc", "16x", "--", "true", code=1)
    assert "hpc: Requested node configuration is not available" in refused.err
    refused = cli("submit", "hpc", "2x:40G", "--", "true", code=2)
    assert "40G per GPU on hpc: Slurm knows types, and no type there is known to have that; use hpc 2x" in refused.err


def test_the_value_of_a_secret_is_in_no_file_and_in_nothing_that_slurm_shows(cli: Cli, slurm: Slurm) -> None:
    task = cli(
        "submit", "--secret-env", "TOKEN", "hpc", "--", "sh", "-c", "echo ${#TOKEN}; sleep 300", TOKEN="s3cret"
    ).out.strip()
    until(lambda: cli("logs", task, code=None).out == "6\n")
    number = cli.task(task)["container"].partition(":")[0]
    shown = slurm.run("scontrol", "show", "job", number) + slurm.run("scontrol", "write", "batch_script", number, "-")
    assert "s3cret" not in shown
    assert subprocess.run(["grep", "-rl", "s3cret", cli.lab.root], capture_output=True, check=False).stdout == b""
    cli("kill", task)


def test_a_launch_that_is_sent_once_more_submits_no_second_job(cli: Cli, slurm: Slurm) -> None:
    """Each way in which its job is found, alone; and where none is left, it may be one that is only on its way."""
    one, login = build.task("2oncemore", "hpc"), cli.lab.nodes["login"]
    script = ENGINE.launches([Launch(one, Placement("hpc"))]).script
    folder = login.dir / "home" / ".agentless" / "slurm" / one.container_name

    def again(*kept: str, asked: float = 0) -> tuple[int, str]:
        noted = {name: folder.joinpath(name).read_text() for name in ("job", "started")}
        for name in noted.keys() - set(kept):
            folder.joinpath(name).unlink()
        os.utime(folder / "asked", (asked, asked))
        ran = login.sh(("" if "name" in kept else "squeue() { :; }\n") + script)
        for name, text in noted.items():
            folder.joinpath(name).write_text(text)
        return ran.returncode, ran.stdout

    first = login.sh(script)
    until(folder.joinpath("ended").exists)
    expected = dict.fromkeys(("name", "job", "started"), (0, first.stdout))
    assert {kept: again(kept) for kept in expected} == expected
    assert again(asked=time.time()) == (launch_script.UNCLEAR, "")
    assert jobs(slurm, one.id) == ["COMPLETED"]


def test_a_failure_of_sbatch_is_no_answer_while_there_may_be_a_job(cli: Cli, slurm: Slurm) -> None:
    """What counts is whether Slurm has the job; of what Slurm does not say, a minute later."""
    at, after = cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm", '; command sbatch "$@" > /dev/null; '

    def launch(name: str, sbatch: str) -> tuple[int, str]:
        one = build.task(name, "hpc", spec=SECRET)
        (answer,) = sent(cli, one, before=f"sbatch() {{ {sbatch}; }}\n")
        return answer.exit_code, answer.out.strip() or answer.err.strip()

    noise = [
        ("2noise1", f"echo Hi{after}echo 'Invalid account' >&2; return 1"),
        ("2noise2", f"{after[2:]}sh -c 'kill -9 $PPID'"),
        ("2noise3", 'echo Hi; command sbatch "$@"; echo 12 hours left'),
    ]
    for name, sbatch in noise:
        code, said = launch(name, sbatch)
        (found,) = slurm.run("squeue", "--noheader", "--states=all", f"--name=agentless-{name}", "--format=%A").split()
        assert (code, said) == (0, f"job {found}")
    for name, words in (("2unclear", "Socket timed out on send/recv operation"), ("2unknown", "no budget")):
        sbatch = f"echo '{words}' >&2; return 1"
        assert launch(name, sbatch) == (launch_script.UNCLEAR, words)
        os.utime(at / f"agentless-{name}" / "asked", (0, 0))
        assert launch(name, sbatch) == ((launch_script.UNCLEAR if name == "2unclear" else 1), words)
    assert launch("2refused", "echo 'Invalid account or' >&2; return 1") == (1, "Invalid account or")
    assert not [name for name in ("2unknown", "2refused") if at.joinpath(f"agentless-{name}").exists()]
    assert launch("2unclear", "exit 9") == (launch_script.UNCLEAR, "")  # not asked again so soon
    shutil.rmtree(at / "agentless-2unclear")


def test_a_file_that_a_crash_or_a_person_has_left_odd_ends_and_repeats_nothing(cli: Cli, slurm: Slurm) -> None:
    at = cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm"
    noted, began, *array = (build.task(f"2odd{each}", "hpc", batch="2odd") for each in range(1, 6))
    hold = 'sbatch() { command sbatch --hold "$@"; }\n'
    answers = [sent(cli, each, before=hold)[0] for each in (noted, began)] + sent(cli, *array, before=hold)
    numbers = [answer.out.removeprefix("job ").strip() for answer in answers]
    folders = [at / each.container_name for each in (noted, began, *array)]
    folders[0].joinpath("job").write_text("")
    folders[1].joinpath("started").write_text("")
    shutil.rmtree(folders[2])  # which has the script of the array
    slurm.run("scancel", numbers[2])
    slurm.run("scontrol", "release", numbers[0], numbers[1], numbers[2].partition("_")[0])
    until(lambda: all(folder.joinpath("ended").exists() for folder in (folders[0], folders[1], *folders[3:])))
    for odd in ("", "; rm -rf /", "99999999999", "4711 4712", "\0" * 10**6, None):
        folders[0].joinpath("job").unlink()
        folders[0].joinpath("job").write_text(odd) if odd is not None else os.mkfifo(folders[0] / "job")
        assert sent(cli, noted)[0].out == answers[0].out
    for name in ("asked", "ended", "started"):
        folders[0].joinpath(name).unlink()
        os.mkfifo(folders[0] / name)
    look = cli.lab.nodes["login"].sh(ENGINE.containers(noted.id).script)
    assert [each.exit_code for each in ENGINE.parse_containers(Result(0, look.stdout.encode()), 0.0)] == [0]
    shutil.rmtree(folders[0])


def test_where_nothing_can_be_written_nothing_is_submitted_and_no_secret_is_left(cli: Cli, slurm: Slurm) -> None:
    tasks = [build.task(f"2full{each}", "hpc", batch="2full", spec=SECRET) for each in range(1, 4)]
    at = cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm"
    full = "trap '' XFSZ; ulimit -f 0\n"
    for answer in (*sent(cli, tasks[0], before=full), *sent(cli, *tasks, before=full)):
        with pytest.raises(RuntimeFailed, match=r"cannot write to .* check its disk space"):
            ENGINE.parse_launch(tasks[0], answer)
    at.chmod(0o775)
    (answer,) = sent(cli, tasks[0])
    at.chmod(0o700)
    with pytest.raises(RuntimeFailed, match=r"others may write to .*chmod go-w"):
        ENGINE.parse_launch(tasks[0], answer)
    assert [*at.glob("agentless-2full*")] == []
    assert not any(jobs(slurm, each.id) for each in tasks)


def test_an_array_that_is_sent_once_more_has_one_element_for_each_task(cli: Cli, slurm: Slurm) -> None:
    """Whoever sends it, in whatever order, with others; whether its number, its name or nothing is left."""
    tasks = [replace(build.task(f"2array{at}", "hpc"), batch="2array") for at in range(1, 8)]
    at = cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm"

    def launch(*numbers: int, before: str = "") -> tuple[list[int], list[str]]:
        found = sent(cli, *(tasks[number - 1] for number in numbers), before=before)
        return [each.exit_code for each in found], [each.out.removeprefix("job ") for each in found]

    unclear = "sbatch() { command sbatch \"$@\"; echo 'Socket timed out' >&2; return 1; }\n"
    unclear += 'squeue() { [ ! -e agentless-2array1/array ] && command squeue "$@"; }\n'
    refuses = (
        'sbatch() { case "$*" in *--array*) echo Invalid job array >&2; return 1 ;; *) command sbatch "$@" ;; esac; }\n'
    )
    assert launch(1, 2, 3, before=unclear)[0] == [launch_script.UNCLEAR] * 3
    codes, [third, first, fourth, fifth] = launch(3, 1, 4, 5)
    array, new = first.partition("_")[0], fourth.partition("_")[0]
    assert (codes, third, first) == ([0] * 4, f"{array}_3", f"{array}_1")
    assert (new != array, fourth, fifth) == (True, f"{new}_1", f"{new}_2")
    until(lambda: all(at.joinpath(f"agentless-2array{each}", "ended").exists() for each in range(1, 6)))
    assert launch(5, 4, 3, 2, 1) == ([0] * 5, [fifth, fourth, third, f"{array}_2", first])
    assert launch(5, 1, before="squeue() { :; }\n") == ([0] * 2, [fifth, first])
    for each in range(1, 6):
        at.joinpath(f"agentless-2array{each}", "started").unlink()
    assert launch(2, before="squeue() { :; }\n")[0] == [launch_script.UNCLEAR]
    codes, alone = launch(6, 7, before=refuses)
    assert (codes, "_" in "".join(alone)) == ([0, 0], False)
    names = slurm.run("squeue", "--noheader", "--states=all", "--array", "--format=%j").split()
    assert sorted(name for name in names if "2array" in name) == [
        "agentless-2array6", "agentless-2array7", *["agentless_array-2array1"] * 3, *["agentless_array-2array4"] * 2,
    ]  # fmt: skip


def test_a_controller_that_dies_in_a_submit_leaves_one_job_and_never_two(cli: Cli, slurm: Slurm) -> None:
    for step in range(4):
        submit = cli.start("submit", "hpc", "--", "sleep", "1")
        until(cli.client.is_running)
        if step:
            until(lambda: any(task["state"] in ("assigning", "submitted") for task in cli.get("/v1/tasks")))
        cli.kill_controller()
        task = finish(submit).out.strip()
        cli("wait", task)
        assert jobs(slurm, task) == ["COMPLETED"]


def test_a_task_for_which_nodes_have_no_room_goes_to_the_cluster_once(cli: Cli, slurm: Slurm) -> None:
    words = ("1x", "--overflow", "hpc", "--container", "NULL")
    assert "--share cannot be used" in cli("submit", *words, "--share", "--", "true", code=2).err
    assert "would be pending" in (rehearsed := cli("submit", "--dry-run", *words, "--", "true")).out + rehearsed.err
    assert "goes to hpc" in rehearsed.out + rehearsed.err
    said = cli("submit", *words, "--", "sh", "-c", "echo $SLURM_JOB_NAME")
    assert "goes to hpc" in said.err
    task = said.out.strip()
    assert "goes to hpc" in cli("explain", "1x", "--overflow", "hpc").out
    assert cli("logs", "-f", task).out == f"agentless-{task}\n"
    (cause,) = handed_over(cli, task)
    assert cause.startswith("it has waited ")
    assert cause.endswith(" for a node, and its start there is unknown")
    assert jobs(slurm, task) == ["COMPLETED"]
    assert cli("show", task).out.count("Handed over to hpc") == 1


def test_a_task_that_the_cluster_refuses_waits_for_nodes_again(cli: Cli, slurm: Slurm) -> None:
    sbatch = cli.lab.nodes["login"].dir / "bin" / "sbatch"
    real = sbatch.read_text()
    said = "sbatch: error: Batch job submission failed: Invalid account"
    sbatch.write_text(f"#!/bin/sh\ntouch {sbatch}.asked; echo '{said}' >&2; exit 1\n")
    task = cli.submit("1x", "--overflow", "hpc", "--container", "NULL", "--", "true")
    until(lambda: Path(f"{sbatch}.asked").exists() and (state(cli, task), cli.task(task)["node"]) == ("pending", None))
    said = cli("explain", task).out
    assert said.count("cannot go to hpc: hpc refused its job: Invalid account") == said.count("Invalid account") == 1
    sbatch.write_text(real)
    assert len(handed_over(cli, task)) == 1
    assert "Refused by the cluster, waits for nodes" in cli("show", task).out
    cli("stop", task)
    assert jobs(slurm, task) == []


@pytest.mark.slow
def test_a_controller_that_dies_while_it_hands_a_task_over_leaves_one_job(cli: Cli, slurm: Slurm) -> None:
    def is_at(task: str, step: int) -> bool:
        found = cli.task(task)
        return bool(step == 0 or (found["node"] == "hpc" and (step == 1 or found["state"] != "pending")))

    for step in range(3):
        batch = cli("submit", "1x", "--overflow", "hpc", "--container", "NULL", "--", "true", "span:{1..3}").out.split()
        until(lambda: is_at(batch[0], step))  # noqa: B023 - it is asked at once
        cli.kill_controller()
        cli("wait", "--batch", batch[0])
        tasks = [task for task in cli.get("/v1/tasks", ended=True) if task["batch"] == batch[0]]
        assert [(task["state"], task["node"]) for task in tasks] == [("completed", "hpc")] * 3
        assert len({task["container"].partition(":")[0] for task in tasks}) == 3
        names = slurm.run("squeue", "--noheader", "--states=all", "--array", "--format=%j").split()
        named = {f"agentless{between}{task['id']}" for task in tasks for between in ("-", "_array-")}
        assert sum(name in named for name in names) == 3
        assert [len(handed_over(cli, task["id"])) for task in tasks] == [1] * 3


def handed_over(cli: Cli, task: str) -> list[str]:
    """Why a task was handed over, each time."""
    events = map(json.loads, cli("events", task, "--json").out.splitlines())
    return [event["cause"] for event in events if event["event"] == "handed-over"]


def test_a_batch_whose_controller_dies_meanwhile_has_one_job_for_each_task(cli: Cli, slurm: Slurm) -> None:
    words = ("--secret-env", "TOKEN", "hpc", "--", "sh", "-c", "echo ${#TOKEN} $0; exit 3", "span:{1..12}")
    submit = ready.Started("submit", *words, env={**cli.env, "TOKEN": "it's"}, cwd=cli.lab.home)
    folder = cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm"
    before = len([*folder.glob("agentless-*/job")])
    until(lambda: len([*folder.glob("agentless-*/job")]) > before + 2)
    cli.kill_controller()
    batch = finish(submit).out.split()[0]
    cli("wait", "--batch", batch, code=None)
    tasks = [task for task in cli.get("/v1/tasks", ended=True) if task["batch"] == batch]
    assert {(task["state"], task["exit_code"]) for task in tasks} == {("failed", 3)}
    assert len(tasks) == 12
    numbers = {task["container"].partition(":")[0] for task in tasks}
    assert (len(numbers), len({number.partition("_")[0] for number in numbers})) == (12, 1)
    named = {f"agentless{between}{task['id']}" for task in tasks for between in ("-", "_array-")}
    listed = slurm.run("squeue", "--noheader", "--states=all", "--array", "--format=%j").split()
    assert sum(name in named for name in listed) == 12
    assert cli("logs", tasks[-1]["id"]).out == "4 12\n"
    assert not [*folder.glob("agentless-*/secrets")]


def test_a_sweep_is_one_array_of_which_each_element_is_a_task_of_its_own(cli: Cli, slurm: Slurm) -> None:
    holder = cli.submit("hpc", "4x", "--", "sleep", "300")
    until(lambda: state(cli, holder) == "running")
    words = ("--secret-env", "TOKEN", "hpc", "4x", "--", "sh", "-c", "echo ${#TOKEN} $0; exit $0", "span:{3..8}")
    batch = cli("submit", *words, TOKEN="it's").out.split()[0]
    found = [each for each in cli.get("/v1/tasks") if each["batch"] == batch]
    numbers = [each["container"].partition(":")[0] for each in found]
    assert sorted(number.partition("_")[2] for number in numbers) == list("123456")
    assert len({number.partition("_")[0] for number in numbers}) == 1
    until(lambda: {each["state"] for each in cli.get("/v1/tasks") if each["batch"] == batch} == {"submitted"})
    ids = [each["id"] for each in found]
    cli("stop", ids[0])
    until(lambda: "waits for free resources" in cli("explain", ids[1]).out)
    folder = cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm"
    assert not folder.joinpath(f"agentless-{ids[0]}", "secrets").exists()
    whole = cli("submit", "hpc", "4x", "--", "true", "span:{1..3}").out.split()[0]
    others = [each for each in cli.get("/v1/tasks") if each["batch"] == whole]
    slurm.run("scancel", others[0]["container"].partition(":")[0])
    until(lambda: state(cli, others[0]["id"]) == "killed")
    slurm.run("scancel", others[0]["container"].partition("_")[0])
    until(lambda: not any(each["batch"] == whole for each in cli.get("/v1/tasks")))
    ends = [cli.task(each["id"]) for each in others]
    assert [(each["state"], each["reason"]) for each in ends[1:]] == [("killed", CANCELLED)] * 2
    cli("kill", holder)
    cli("wait", "--batch", batch, code=None)
    ended = [cli.task(each) for each in ids]
    assert [(each["state"], each["exit_code"]) for each in ended] == [
        ("cancelled", None), *(("failed", code) for code in range(4, 9)),
    ]  # fmt: skip
    assert cli("logs", ids[5]).out == "4 8\n"
    assert cli("logs", "-f", ids[4], code=None).out == "4 7\n"
    assert not [*folder.glob("agentless-*/secrets")]


def test_no_more_tasks_of_a_limited_batch_run_than_may(cli: Cli, slurm: Slurm) -> None:
    """Slurm has the limit of an array; what is tried again beside it waits in the queue of agentless."""
    words = ("--max-parallel", "2", "hpc", "--", "sh", "-c", "exec sleep $0", "span:{301..304}")
    batch = cli("submit", *words).out.split()
    until(lambda: [state(cli, each) for each in batch] == ["running"] * 2 + ["submitted"] * 2)
    until(lambda: "as many tasks of its array run as may at the same time" in str(cli.task(batch[2])["reason"]))
    cli("kill", batch[1])
    until(lambda: [state(cli, each) for each in batch[2:]] == ["running", "submitted"])
    again = cli("retry", batch[1]).out.split()[0]
    until(lambda: "2 tasks of its batch are running (--max-parallel)" in str(cli.task(again)["reason"]))
    cli("kill", "--batch", batch[0])


def test_the_limit_of_a_batch_holds_where_slurm_takes_no_array(cli: Cli, slurm: Slurm) -> None:
    """Also where a launch comes apart from the others: then it submits nothing, and is found if it was submitted."""
    login = cli.lab.nodes["login"]
    folder = login.dir / "home" / ".agentless" / "slurm"
    refuses = (
        'sbatch() { case "$*" in *--array*) echo Invalid job array >&2; return 1 ;; *) command sbatch "$@" ;; esac; }\n'
    )

    def launch(*asked: tuple[int, int | None], before: str = "") -> list[int]:
        tasks = [replace(build.task(f"2limit{at}", "hpc"), batch="2limit") for at, _ in asked]
        wanted = [Launch(one, Placement("hpc"), limit=most) for one, (_, most) in zip(tasks, asked, strict=True)]
        ran = login.sh(before + ENGINE.launches(wanted).script)
        return [each.exit_code for each in ENGINE.answers(len(asked), Result(ran.returncode, ran.stdout.encode()))]

    assert launch((1, 2), (2, 2), (3, 2), before=refuses) == [0, 0, 74]
    assert not folder.joinpath("agentless-2limit3").exists()
    assert launch((3, 0)) == [74]
    assert launch((1, 0), (3, 0)) == [0, 74]
    assert launch((1, 2), (4, 2), (5, 2)) == [0, 0, 0]
    names = slurm.run("squeue", "--noheader", "--states=all", "--array", "--format=%j").split()
    assert sorted(name for name in names if "2limit" in name) == [
        "agentless-2limit1", "agentless-2limit2", *["agentless_array-2limit4"] * 2,
    ]  # fmt: skip


def test_a_job_that_slurm_puts_back_into_its_queue_waits_again_and_runs_again(cli: Cli, slurm: Slurm) -> None:
    task = running(cli)
    number = cli.task(task)["container"].partition(":")[0]
    assert cli.task(task)["compute_nodes"] == "c1"
    slurm.run("scontrol", "update", f"jobid={number}", "requeue=1")
    slurm.run("scontrol", "requeuehold", number)
    until(lambda: state(cli, task) == "submitted")
    assert "held" in cli.task(task)["reason"]
    assert cli.task(task)["compute_nodes"] is None
    slurm.run("scontrol", "release", number)
    cli("kill", task)
    assert state(cli, task) in ("killed", "cancelled")


def test_its_nodes_are_listed_as_slurm_has_them(cli: Cli, slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "nodename=c2", "state=drain", "reason=fan broken")
    rows = {row["name"]: row for row in cli.json("gpus", "hpc")}
    assert {name: row["gpus"] for name, row in rows.items()} == {"c1": {"": 2}, "c2": {"": 2}, "c3": {"": 4}}
    assert [row["name"] for row in cli.json("gpus", "hpc", "--free")] == ["c1", "c3"]
    clusters = cli.get("/v1/clusters")
    assert next(cli.client.lines("/v1/watch"))["clusters"] == clusters
    (cluster,) = (each for each in clusters if each["name"] == "hpc")
    assert (cluster["gpus"], cluster["gpus_free"], cluster["out"]) == ({"": 8}, 6, {"c2": "fan broken"})
    assert cli("explain", "hpc", "8x").out == cli("explain", "hpc 8x").out
    assert rows["c2"]["state"] in ("idle+drain", "drained")  # Slurm 20.11 has one word for both
    assert rows["c2"]["reason"] == "fan broken"
    assert "hpc       online  slurm" in cli("nodes").out
    slurm.run("scontrol", "update", "nodename=c2", "state=resume")


def test_doctor_checks_the_cluster_and_proves_that_a_job_gets_a_gpu(cli: Cli, slurm: Slurm) -> None:
    checks = {check["check"]: check for check in cli.json("doctor", "hpc", "--run", code=None)}
    assert [check for check in checks.values() if not check["ok"]] == [checks["account"]]
    assert {"login", "commands", "slurmctld", "partition", "folder", "gpus", "run", "shared"} <= checks.keys()
    assert checks["gpus"]["detail"].startswith("8 GPUs on 3 nodes")
    assert checks["run"]["detail"].endswith(": GPU 0: NVIDIA A100")
    assert [at.name for at in Path(cli.lab.nodes["login"].dir, "home/.agentless/slurm").glob("doctor-*")] == []


def test_a_job_of_the_same_name_by_somebody_else_changes_nothing(cli: Cli, slurm: Slurm) -> None:
    task = running(cli)
    forged = f"agentless {task} x 1:{'0' * 64}"
    slurm.run("sbatch", "--hold", f"--job-name=agentless-{task}", f"--comment={forged}", "--wrap=true")
    slurm.run("scontrol", "update", f"jobid={cli.task(task)['container'].partition(':')[0]}", "comment=changed")
    cli.submit("hpc", "--", "true")  # which is looked at, and so is the other one
    until(lambda: len(jobs(slurm, task)) == 2)
    ended = f"{number(cli, task)}|FAILED|None|256|1|1795812000|1795812003|c1|agentless-{task}|x"
    slurm.run("sbatch", "--hold", f"--job-name=x\n{ended}", "--comment=|agentless", "--wrap=true")
    look = cli.lab.nodes["login"].sh(ENGINE.facts()[0].script)
    assert ended in look.stdout
    seen = ENGINE.parse_containers(Result(0, look.stdout.encode()), 0.0)
    assert {each.state for each in seen if each.id == cli.task(task)["container"]} == {"running"}
    until(lambda: all(each["state"] in ("running", "completed") for each in cli.get("/v1/tasks", ended=True)[-1:]))
    assert state(cli, task) == "running"
    cli("kill", task)
    slurm.run("scancel", "--state=PENDING", "--user=root")


def test_a_job_that_somebody_renames_is_that_of_its_task_all_the_same(cli: Cli, slurm: Slurm) -> None:
    plain = running(cli)
    batch = cli("submit", "hpc", "--", "sleep", "300", "span:{1..2}").out.split()[0]
    tasks = [plain, *(each["id"] for each in cli.get("/v1/tasks") if each["batch"] == batch)]
    until(lambda: {state(cli, task) for task in tasks} == {"running"})
    slurm.run("scontrol", "update", f"jobid={number(cli, plain)}", "name=mine", "comment=mine")
    slurm.run("scontrol", "update", f"jobid={number(cli, tasks[1])}", "name=mine")
    cli("pause", *tasks[:2])
    assert [state(cli, task) for task in tasks] == ["paused", "paused", "running"]
    cli("stop", *tasks)
    assert {state(cli, task) for task in tasks} == {"stopped"}


def test_a_job_that_slurm_has_forgotten_does_not_run_again(cli: Cli, slurm: Slurm) -> None:
    runs = cli.lab.root / "runs"
    task = cli.submit("hpc", "--", "sh", "-c", f"echo run >> {runs}; sleep 300")
    until(lambda: state(cli, task) == "running" and runs.exists())
    number = cli.task(task)["container"].partition(":")[0]
    cli.kill_controller()
    slurm.run("scancel", number)
    folder = cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm" / f"agentless-{task}"
    assert folder.joinpath("started").read_text().strip() == number
    until(lambda: state(cli, task) not in ("running", "submitted"))
    assert runs.read_text() == "run\n"


def test_variables_of_any_name_reach_the_command_and_nothing_else(cli: Cli) -> None:
    given = ("folder=/x", "SLURM_JOB_ID=99", "began=soon", "PATH=/nowhere", "IFS=h", "secrets=x")
    odd = [word for each in given for word in ("--env", each)]
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
    shown = 'echo "$folder $SLURM_JOB_ID $began $PATH $secrets ${#TOKEN}"'
    words = ("hpc", "--", "/bin/sh", "-c", f"{shown}; echo '{oom}'; exit 3")
    ran = cli("submit", "-f", *odd, "--secret-env", "TOKEN", *words, TOKEN="hush", code=3)
    assert ran.out == f"/x 99 soon /nowhere x 4\n{oom}\n"
    (task,) = (each for each in cli.get("/v1/tasks", ended=True) if each["command"] == [*words[2:]])
    assert task["state"] == "failed"
    assert not [*cli.lab.nodes["login"].dir.joinpath("home/.agentless/slurm").glob("agentless-*/secrets")]
    gone = cli("submit", "-f", "--workdir", "/nowhere", "hpc", "--", "true", code=None)
    assert gone.code != 0
    assert "/nowhere" in gone.out


def test_a_secret_of_a_task_that_is_stopped_in_the_queue_or_outside_is_removed(cli: Cli, slurm: Slurm) -> None:
    holder = running(cli, "4x", "--", "sleep", "300")
    words = ("submit", "--secret-env", "TOKEN", "hpc", "4x", "--", "true")
    task = cli(*words, TOKEN="s3cret").out.strip()
    until(lambda: state(cli, task) == "submitted")
    outside = cli(*words, TOKEN="s3cret").out.strip()
    until(lambda: state(cli, outside) == "submitted")
    slurm.run("scancel", f"--name=agentless-{outside}")
    cli("stop", task)
    cli("kill", holder)
    cli("wait", outside, code=None)
    assert subprocess.run(["grep", "-rl", "s3cret", cli.lab.root], capture_output=True, check=False).stdout == b""


def test_secrets_that_a_job_has_left_are_removed_once_its_task_has_ended(cli: Cli) -> None:
    """Of a job that never began and that Slurm has forgotten, nothing else removes them; those of others stay."""
    folder = cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm"
    ended, removed, live = cli.submit("hpc", "--", "true"), cli.submit("hpc", "--", "true"), running(cli)
    cli("wait", ended, removed)
    cli("rm", removed)
    left = {name: folder / f"agentless-{name}" / "secrets" for name in (ended, removed, live, "2ofothers")}
    for file in left.values():
        file.parent.mkdir(exist_ok=True)
        file.write_text("export TOKEN='hush'")
    until(lambda: not left[ended].exists() and not left[removed].exists())
    assert left[live].exists()
    assert left["2ofothers"].exists()
    cli("kill", live)
    until(lambda: not left[live].exists())
    shutil.rmtree(left["2ofothers"].parent)


def test_a_shell_takes_its_input_from_a_pipe(cli: Cli) -> None:
    """Also in an element of an array, which is paused apart from the others."""
    alone = running(cli)
    batch = cli("submit", "hpc", "--", "sleep", "300", "span:{1..2}").out.split()[0]
    first, second = (each["id"] for each in cli.get("/v1/tasks") if each["batch"] == batch)
    until(lambda: all(state(cli, task) == "running" for task in (alone, first, second)))
    for task in (alone, second):
        assert cli("shell", task, "--", "cat", stdin="hello world\n").out == "hello world\n"
    cli("pause", first)
    assert (state(cli, first), state(cli, second)) == ("paused", "running")
    cli("kill", alone, first, second)


def test_an_image_runs_with_what_the_cluster_has_for_it(cli: Cli) -> None:
    asked = [
        "--image",
        "nvcr.io/nvidia/pytorch:25.01",
        "--mount",
        "/data:/data:ro",
        "--workdir",
        "/work",
        "--env",
        "A=a b",
    ]
    ran = cli("submit", "-f", *asked, "boxed", "1x", "--", "sh", "-c", "echo $A")
    options = "--nv --bind /data:/data:ro --pwd /work"
    assert ran.out.splitlines() == [
        f"apptainer exec {options} docker://nvcr.io/nvidia/pytorch:25.01 sh -c echo $A",
        "a b",
    ]
    ran = cli("submit", "-f", *asked, "squashed", "1x", "--", "sh", "-c", "echo $A; echo $ASKED")
    a, options = ran.out.splitlines()
    image = " --container-image=nvcr.io#nvidia/pytorch:25.01 --container-workdir=/work"
    assert (a, options.partition(" --container-mounts=")[0]) == ("a b", image.strip())
    assert options.endswith(";/data:/data:ro")
    refused = cli("submit", "--image", "busybox", "hpc", "--", "true", code=2)
    assert "hpc runs no images; if it has pyxis or apptainer, set container: of hpc in the inventory" in refused.err
    assert cli("explain", "--image", "busybox", "hpc", code=2).err == refused.err
    assert "would be a job of boxed" in cli("explain", "--image", "busybox", "boxed").out


@pytest.mark.slow
def test_a_task_in_an_image_starts_among_its_uploaded_files(cli: Cli) -> None:
    (cli.lab.home / "a").write_text("one")
    asked = ("--image", "i", "--upload", "a")
    show = "cat a; echo; pwd; echo $APPTAINER_BIND$ASKED"
    for cluster in ("boxed", "squashed"):
        task = cli.submit(*asked, cluster, "--gpus", "0", "--", "sh", "-c", show)
        cli("wait", task)
        *_, one, there, seen = cli("logs", task).out.splitlines()
        folder = there.removesuffix("/files")
        assert (one, folder.rpartition("/")[2]) == ("one", f"agentless-{task}")
        options = f"--container-image=i --container-mounts={folder}:{folder} --container-workdir={there}"
        assert seen == (folder if cluster == "boxed" else options)
    refused = cli("submit", "--image", "i", "--output", "x", "boxed", "--", "true", code=2)
    assert "use an absolute path on a shared disk" in refused.err


@pytest.mark.slow
def test_slurm_waits_for_a_job_of_another_task_and_its_end_decides_as_on_nodes(
    cli: Cli, slurm: Slurm, tmp_path: Path
) -> None:
    def first(code: int, *words: str) -> str:
        wait = f"until [ -e {tmp_path}/{code} ]; do sleep 0.1; done; exit {code}"
        return running(cli, *words, "--", "sh", "-c", wait)

    good, bad, again = first(0), first(3), first(4, "--retries", "1", "--backoff", "1s")
    wait = {key: cli.submit("--after", key, "hpc", "--", "true") for key in (good, bad, f"{bad}:ended", again)}
    wait["chain"] = cli.submit("--after", wait[bad], "hpc", "--", "true")
    wait["failed"] = cli.submit("--after", f"{bad}:failed", "hpc", "--", "true")
    there = [wait[key] for key in (good, bad, f"{bad}:ended", "chain")]
    until(lambda: {state(cli, task) for task in there} == {"submitted"})
    assert {*jobs(slurm, wait[good])} == {"PENDING"}
    assert f"the queue of hpc: waits for task {good} (running without a time limit)" in cli("explain", wait[good]).out
    assert [state(cli, wait[key]) for key in (again, "failed")] == ["blocked"] * 2
    waits = f"waits for task {bad} to fail (running without a time limit); then it goes to hpc"
    assert waits in cli("explain", wait["failed"]).out
    for code in (0, 3, 4):
        tmp_path.joinpath(str(code)).touch()
    found = {key: end(cli, task) for key, task in wait.items()}
    failed = f"needs task {bad} to complete, but it failed"
    assert found == {
        **dict.fromkeys((good, f"{bad}:ended", "failed"), ("completed", 0, "None")),
        bad: ("cancelled", 1, failed),
        "chain": ("cancelled", 1, f"needs task {wait[bad]} to complete, but it was cancelled"),
        again: ("cancelled", 1, f"needs task {again} to complete, but it failed"),
    }  # fmt: skip
    assert jobs(slurm, wait[bad]) == ["CANCELLED"]


@pytest.mark.slow
def test_what_ended_while_no_controller_ran_decides_about_the_job_that_waited_for_it(cli: Cli, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = running(cli, "--", "sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done; exit 3")
    wait, chain, then = (cli.submit("--after", first, "hpc", "--", "true") for _ in range(3))
    until(lambda: {state(cli, each) for each in (wait, chain, then)} == {"submitted"})
    cli.kill_controller()
    go.touch()
    until(lambda: [*cli.lab.nodes["login"].dir.glob(f"home/.agentless/slurm/agentless-{first}/ended")])
    ends = [end(cli, each) for each in (wait, chain, then)]
    assert ends == [("cancelled", 1, f"needs task {first} to complete, but it failed")] * 3


WORKFLOW = """\
jobs:
  prepare: {command: "sh -c 'until [ -e GO ]; do sleep 0.1; done; exit {{ params.code }}'"}
  train: {command: echo trained, requires: prepare}
  alarm: {command: echo alarm, requires: [{prepare: failed}]}
params: {code: 0}
"""


def ends(cli: Cli, workflow: str) -> dict[str, str]:
    jobs = cli.get(f"/v1/workflows/{workflow}")["jobs"]
    assert {job["task"]["node"] for job in jobs} == {"hpc"}
    return {job["job"]: job["task"]["state"] for job in jobs}


def test_a_workflow_runs_on_the_cluster_where_slurm_waits_for_a_job_that_is_required(
    cli: Cli, slurm: Slurm, tmp_path: Path
) -> None:
    file, go = tmp_path / "w.yaml", tmp_path / "go"
    file.write_text(WORKFLOW.replace("GO", str(go)))
    words = ("workflow", "run", "--node", "hpc", str(file), "--set")
    both = [cli(*words, f"code={code}").out.strip() for code in (0, 3)]
    found = [{job["job"]: job["task"]["id"] for job in cli.get(f"/v1/workflows/{each}")["jobs"]} for each in both]
    for each in found:
        until(lambda task=each["train"]: state(cli, task) == "submitted")  # type: ignore[misc]
        assert (jobs(slurm, each["train"]), state(cli, each["alarm"])) == (["PENDING"], "blocked")
    go.touch()
    for workflow in both:
        cli("wait", "--batch", workflow, code=None)
    completed, failed = (ends(cli, each) for each in both)
    assert completed == {"prepare": "completed", "train": "completed", "alarm": "cancelled"}
    assert failed == {"prepare": "failed", "train": "cancelled", "alarm": "completed"}
    assert cli.task(found[1]["train"])["reason"] == "needs job prepare to complete, but it failed"


@pytest.mark.slow
def test_a_failure_stops_a_job_of_its_workflow_that_waits_in_the_queue_of_slurm(
    cli: Cli, slurm: Slurm, tmp_path: Path
) -> None:
    holder, file = running(cli, "4x", "--", "sleep", "300"), tmp_path / "w.yaml"
    bad = f"sh -c 'until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit 3'"
    each = f"  bad: {{command: \"{bad}\"}}\n  waits: {{command: 'true', gpus: 4}}\n"
    file.write_text(f"on_failure: stop\ndefaults: {{node: hpc}}\njobs:\n{each}")
    workflow = cli("workflow", "run", str(file)).out.strip()
    tasks = {job["job"]: job["task"]["id"] for job in cli.get(f"/v1/workflows/{workflow}")["jobs"]}
    until(lambda: state(cli, tasks["waits"]) == "submitted")
    tmp_path.joinpath("go").touch()
    why = "job bad of its workflow failed, and on_failure is stop"
    assert end(cli, tasks["waits"]) == ("cancelled", 1, why)
    assert jobs(slurm, tasks["waits"]) == ["CANCELLED"]
    cli("kill", holder)


@pytest.mark.slow
def test_a_workflow_on_the_cluster_goes_on_after_its_state_was_lost(cli: Cli, tmp_path: Path) -> None:
    (hpc,) = (line for line in cli.inventory.read_text().splitlines() if line.startswith("  hpc:"))
    ann = Cli(cli.lab, "ann", inventory=f"version: 1\nclusters:\n{hpc}\nnodes:\n  away: {{host: 127.0.0.9}}\n")
    file, go, waiting = tmp_path / "w.yaml", tmp_path / "go", {"running", "submitted", "blocked"}
    file.write_text(WORKFLOW.replace("GO", str(go)))
    workflow = ann("workflow", "run", "--node", "hpc", str(file)).out.strip()
    until(lambda: {job["task"]["state"] for job in ann.get(f"/v1/workflows/{workflow}")["jobs"]} == waiting)
    ann("controller", "stop")
    shutil.rmtree(ann.state)
    assert "will go on: alarm" in ann("recover", "--yes", code=4).err  # the job of train is found, as that of prepare
    go.touch()
    ann("wait", "--batch", workflow, code=None)
    assert ends(ann, workflow) == {"prepare": "completed", "train": "completed", "alarm": "cancelled"}
    ann.close()
