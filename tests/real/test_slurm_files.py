"""Files of tasks on a real Slurm, and connections with them."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.lab.slurm import Slurm
from tests.ports import reserve
from tests.real.cli import Cli, finish, until
from tests.real.slurm import end, running, started
from tests.real.slurm import number as job_number

ECHO = """
import socket
there = socket.create_server(("127.0.0.1", 0))
print(there.getsockname()[1], flush=True)
while True:
    one, _ = there.accept()
    one.sendall(b"no line break: " + one.recv(99))
    one.close()
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    settings = {"SchedulerParameters": "bf_interval=1,sched_interval=1"}
    with started({"c1": 2, "c2": 2}, {"gpu": "Default=YES State=UP"}, settings) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def cli(slurm: Slurm) -> Iterator[Cli]:
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        _, cluster = slurm.login_of(lab)
        cli = Cli(lab, inventory=f"version: 1\nclusters:\n  hpc: {{engine: slurm, {cluster}}}\nnodes: {{}}\n")
        yield cli
        cli.close()


def test_ports_of_a_task_are_reached_on_its_compute_node_and_programs_run_there(cli: Cli) -> None:
    """Also a port that only listens on the loopback of the compute node."""
    task = running(cli, "--", "python3", "-c", ECHO)
    port = until(lambda: cli("logs", task, code=None).out).strip()
    with reserve() as holder:
        local = holder.getsockname()[1]
        forward = cli.start("forward", task, f"{port}:{local}")
        try:
            assert forward.stdout.readline().startswith("Forwarding ")
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", local)) as one:
                    one.sendall(b"you")
                    assert one.recv(99) == b"no line break: you"
        finally:
            forward.send_signal(signal.SIGINT)
            finish(forward)
    ran = cli("ssh", task, "--", "test -t 1 || echo pipe; echo $SLURM_JOB_ID; cat; exit 4", stdin="a\0b", code=4)
    assert ran.out == f"pipe\n{cli.task(task)['container'].partition(':')[0]}\na\0b"
    assert cli("ssh", "hpc", "--", "printf '%s ' \"$SSH_CONNECTION\"; exit 3", code=3).out.startswith("127.0.0.1 ")
    cli("kill", task)


@pytest.mark.slow
def test_files_are_copied_to_the_login_node_and_to_where_a_task_works_and_back(cli: Cli) -> None:
    home, here = cli.lab.nodes["login"].dir / "home", cli.lab.home
    (here / "data").mkdir()
    (here / "data" / "a").write_text("one")
    cli("cp", "data", "hpc:runs")
    task = running(cli, "--workdir", "runs", "--", "sh", "-c", "cat a > b; sleep 300")
    until((home / "runs" / "b").exists)
    cli("cp", f"{task}:b", "back")
    cli("cp", "back", f"{task}:sub")
    assert ((here / "back").read_text(), (home / "runs" / "sub").read_text()) == ("one", "one")
    assert "/nowhere" in cli("cp", f"{task}:/nowhere", ".", code=1).err
    cli("kill", task)


@pytest.mark.slow
def test_uploaded_files_are_in_a_folder_of_each_task_where_it_starts(cli: Cli) -> None:
    """Also of the tasks of an array; the files are sent once, and go with the tasks."""
    here, jobs = cli.lab.home, cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm"
    (here / "code").mkdir()
    (here / "code" / "run.sh").write_text("cat data/a; echo $1 >> data/a; cat data/a")
    (here / "code" / "run.sh").chmod(0o750)
    (here / "d").mkdir()
    (here / "d" / "a").write_text("one\n")
    sent = ("--upload", "code:.", "--upload", "d:data")
    tasks = cli("submit", "hpc", *sent, "--gpus", "0", "--", "sh", "run.sh", "span:{1..3}").out.split()
    for number, task in enumerate(tasks, 1):
        assert end(cli, task)[:2] == ("completed", 0)
        assert cli("logs", task).out == f"one\none\n{number}\n"
    assert len({job_number(cli, task).partition("_")[0] for task in tasks}) == 1
    cli("cp", f"{tasks[1]}:data/a", "got")
    assert (here / "got").read_text() == "one\n2\n"
    assert len(list((jobs / "uploads").iterdir())) == 1
    elsewhere = cli.submit("hpc", *sent, "--workdir", "/tmp", "--", "pwd")
    assert end(cli, elsewhere)[1] == 0
    assert cli("logs", elsewhere).out == "/tmp\n"
    for left in (jobs / "uploads").iterdir():
        os.utime(left, (0, 0))
    cli("rm", *tasks, elsewhere)
    assert [each.name for each in jobs.iterdir() if each.name[10:] in tasks] == []
    assert list((jobs / "uploads").iterdir()) == []
    again = cli.submit("hpc", *sent, "--", "cat", "data/a")
    assert end(cli, again)[1] == 0
    for wrong in ("d:/data", "d:../x"):
        assert "relative DEST" in cli("submit", "hpc", "--upload", wrong, "--", "true", code=2).err


@pytest.mark.slow
def test_outputs_and_what_a_run_changes_come_back_from_a_cluster(cli: Cli) -> None:
    here, home = cli.lab.home, cli.lab.nodes["login"].dir / "home"
    (here / "work" / "src").mkdir(parents=True)
    (here / "work" / "src" / "a.py").write_text("one")
    (here / "work" / "same").write_text("same")
    script = "cat src/a.py; echo two > src/a.py; mkdir -p new/deep; echo x > new/deep/x; touch -d 2001-01-01 old"
    script += "; ln -s /etc out"
    ran = cli.shell(f"cd {here}/work && agentless run hpc 1x -- sh -c {shlex.quote(script)}")
    assert (ran.code, ran.out) == (0, "one"), ran
    found = {str(path.relative_to(here / "work")) for path in (here / "work").rglob("*") if path.is_file()}
    assert (found, (here / "work" / "out").exists()) == ({"src/a.py", "same", "new/deep/x", "old"}, False)
    assert (here / "work" / "src" / "a.py").read_text() == "two\n"
    (home / "far").mkdir()
    wanted = ("--output", "sub:results/sub", "--output", f"{home}/far/b:results/b", "--output", "none:results/none")
    task = cli.submit(
        "hpc", *wanted, "--workdir", "far", "--", "sh", "-c", "mkdir sub; echo 1 > sub/a; ln -s a sub/l; echo 2 > b"
    )
    cli("wait", task, code=None)
    assert (here / "results" / "sub" / "a").read_text() == "1\n"
    assert os.readlink(here / "results" / "sub" / "l") == "a"
    assert (here / "results" / "b").read_text() == "2\n"
    assert "none on hpc" in cli("show", task).out
    waits = cli.submit("hpc", "--output", "sub:never", "--in", "1h", "--", "true")
    cli("stop", waits)
    astray = cli.submit("hpc", "--output", "sub:never", "--workdir", "nowhere", "--", "true")
    for never in (waits, astray):
        cli("wait", never, code=None)
        shown = cli("show", never).out
        assert "its command did not start" in shown or "the task never started" in shown, shown
