"""Tasks on a real Slurm: munged, slurmctld and three slurmd, reached by SSH over a login node."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentless.engines import launch_script
from agentless.engines.slurm.engine import Slurm as Engine
from agentless.model.command import Result
from agentless.model.containers.launch import Launch
from agentless.model.containers.signature import Signer
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.tasks.task import Placement
from agentless.paths import template_dir
from agentless.render import Renderer
from tests import ready
from tests.lab import Lab
from tests.lab.slurm import Slurm
from tests.pure import build
from tests.real.cli import Cli, finish, until
from tests.real.slurm import jobs, running, started, state

ENGINE = Engine(NodeConfig("hpc", "login1"), SlurmCluster(), Renderer([template_dir()]), Signer("c1", b"key"))
CANCELLED = "its job was cancelled on the cluster, outside agentless"
APPTAINER = """#!/bin/sh
echo "apptainer $*"
while [ "${1#docker://}" = "$1" ]; do shift; done
shift
exec env A="$APPTAINERENV_A" "$@"
"""
PYXIS = """#!/bin/sh
export SLURM_CONF={conf}
for word; do
  shift
  case $word in
    --container-*) asked="$asked $word" ;;
    *) set -- "$@" "$word" ;;
  esac
done
[ -z "$asked" ] || set -- --export=ALL,ASKED="$(echo "$asked" | tr , ';')" "$@"
exec /usr/bin/srun "$@"
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
        (login.dir / "bin" / "srun").write_text(PYXIS.format(conf=slurm.env["SLURM_CONF"]))
        (login.dir / "bin" / "apptainer").chmod(0o755)
        (login.dir / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: GPU-1)'\n")
        kinds = {"hpc": "none", "boxed": "apptainer", "squashed": "pyxis"}
        clusters = [f"  {name}: {{engine: slurm, {cluster}, container: {kind}}}\n" for name, kind in kinds.items()]
        text = f"version: 1\nclusters:\n{''.join(clusters)}nodes:\n  away: {{host: 127.0.0.9}}\n"
        cli = Cli(lab, inventory=text)
        yield cli
        cli.close()


def test_a_task_runs_on_the_cluster_and_its_output_and_exit_code_come_back(cli: Cli) -> None:
    ran = cli("submit", "--follow", "hpc", "1x", "--", "sh", "-c", "echo out; echo err >&2; exit 3", code=3)
    assert sorted(ran.out.split()) == ["err", "out"]
    (task,) = cli.get("/v1/tasks", ended=True)
    assert (task["state"], task["exit_code"], task["node"]) == ("failed", 3, "hpc")


def test_what_waits_in_slurm_says_why_and_can_be_stopped_there(cli: Cli, slurm: Slurm) -> None:
    holder = running(cli, "4x", "--", "sleep", "300")
    waiting = cli.submit("hpc", "4x", "--time-limit", "10min", "--", "true")
    until(lambda: "waits for free resources" in str(cli.task(waiting)["reason"]))
    assert cli("explain", waiting).out.startswith(f"task {waiting} is job ")
    assert [task["id"] for task in cli.get("/v1/queue")] == [waiting]
    cli("stop", waiting)
    assert (state(cli, waiting), jobs(slurm, waiting)) == ("cancelled", ["CANCELLED"])
    cli("pause", holder)
    assert (state(cli, holder), jobs(slurm, holder)) == ("paused", ["SUSPENDED"])
    cli("resume", holder)
    cli("stop", holder)
    assert state(cli, holder) == "stopped"


def test_what_no_node_of_the_cluster_has_is_refused_and_leaves_no_job(cli: Cli) -> None:
    refused = cli("submit", "hpc", "16x", "--", "true", code=1)
    assert "hpc: Requested node configuration is not available" in refused.err


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


def test_an_array_that_is_sent_once_more_has_one_element_for_each_task(cli: Cli, slurm: Slurm) -> None:
    """Whoever sends it, in whatever order, with others; whether its number, its name or nothing is left."""
    tasks = [replace(build.task(f"2array{at}", "hpc"), batch="2array") for at in range(1, 8)]
    login = cli.lab.nodes["login"]
    at = login.dir / "home" / ".agentless" / "slurm"

    def launch(*numbers: int, before: str = "") -> tuple[list[int], list[str]]:
        wanted = [Launch(tasks[number - 1], Placement("hpc")) for number in numbers]
        ran = login.sh(before + ENGINE.launches(wanted).script)
        found = ENGINE.answers(len(numbers), Result(ran.returncode, ran.stdout.encode(), ran.stderr.encode()))
        return [each.exit_code for each in found], [each.out.removeprefix("job ") for each in found]

    unclear = "sbatch() { command sbatch \"$@\"; echo 'Socket timed out' >&2; return 1; }\n"
    refuses = 'sbatch() { case "$*" in *--array*) echo no >&2; return 1 ;; *) command sbatch "$@" ;; esac; }\n'
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
    slurm.run("scancel", others[0]["container"].partition("_")[0])
    until(lambda: not any(each["batch"] == whole for each in cli.get("/v1/tasks")))
    assert {cli.task(each["id"])["reason"] for each in others} == {CANCELLED}
    cli("kill", holder)
    cli("wait", "--batch", batch, code=None)
    ended = [cli.task(each) for each in ids]
    assert [(each["state"], each["exit_code"]) for each in ended] == [
        ("cancelled", None), *(("failed", code) for code in range(4, 9)),
    ]  # fmt: skip
    assert cli("logs", ids[5]).out == "4 8\n"
    assert cli("logs", "-f", ids[4], code=None).out == "4 7\n"
    assert not [*folder.glob("agentless-*/secrets")]


def test_a_job_that_slurm_puts_back_into_its_queue_waits_again_and_runs_again(cli: Cli, slurm: Slurm) -> None:
    task = running(cli)
    number = cli.task(task)["container"].partition(":")[0]
    slurm.run("scontrol", "update", f"jobid={number}", "requeue=1")
    slurm.run("scontrol", "requeuehold", number)
    until(lambda: state(cli, task) == "submitted")
    assert "held" in cli.task(task)["reason"]
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
    assert (rows["c2"]["state"], rows["c2"]["reason"]) == ("idle+drain", "fan broken")
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
    until(lambda: all(each["state"] in ("running", "completed") for each in cli.get("/v1/tasks", ended=True)[-1:]))
    assert state(cli, task) == "running"
    cli("kill", task)
    slurm.run("scancel", f"--name=agentless-{task}")


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
    odd = ["--env", "folder=/x", "--env", "SLURM_JOB_ID=99", "--env", "began=soon"]
    ran = cli("submit", "-f", *odd, "hpc", "--", "sh", "-c", 'echo "$folder $SLURM_JOB_ID $began"')
    assert ran.out == "/x 99 soon\n"
    gone = cli("submit", "-f", "--workdir", "/nowhere", "hpc", "--", "true", code=None)
    assert gone.code != 0
    assert "/nowhere" in gone.out


def test_a_secret_of_a_task_that_is_stopped_in_the_queue_is_removed(cli: Cli) -> None:
    holder = running(cli, "4x", "--", "sleep", "300")
    words = ("submit", "--secret-env", "TOKEN", "hpc", "4x", "--", "true")
    task = cli(*words, TOKEN="s3cret").out.strip()
    until(lambda: state(cli, task) == "submitted")
    cli("stop", task)
    cli("kill", holder)
    assert subprocess.run(["grep", "-rl", "s3cret", cli.lab.root], capture_output=True, check=False).stdout == b""


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
