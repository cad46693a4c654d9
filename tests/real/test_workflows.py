"""Workflows on two real nodes, with artifacts, and with a controller that is killed."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.real.cli import Cli, until

GRAPH = """\
name: twelve
defaults: {image: busybox, workdir: /w}
jobs:
  fetch:
    command: [sh, -c, 'mkdir data; for n in 1 2 3 4; do echo $n > data/$n; done']
    artifacts: [data]
    node: node1
  split:
    command: [sh, -c, 'cat /artifacts/fetch/data/{{ matrix.n }} > part; echo "part of {{ matrix.n }}"']
    matrix: {n: 'span:{1..4}'}
    requires: fetch
    artifacts: [part]
    gpus: 1
  square:
    command: [sh, -c, 'n=$(cat "/artifacts/split/n={{ matrix.n }}/part"); echo $((n * n)) > out.txt']
    matrix: {n: 'span:{1..4}'}
    requires: ['split[n={{ matrix.n }}]']
    artifacts: [out.txt]
    node: node2
  sum:
    command: [sh, -c, 'cat /artifacts/square/*/out.txt | tr "\\n" " " > sum; cat sum']
    requires: square
    artifacts: [sum]
  alarm: {command: echo alarm, requires: [{sum: failed}]}
  report: {command: [sh, -c, 'test "$(cat /artifacts/sum/sum)" = "1 4 9 16 " && echo right'], requires: sum}
"""


@pytest.fixture
def ann(lab):
    cli = Cli(lab, "ann")
    yield cli.settle()
    cli.close()


def written(cli: Cli, tmp_path, text: str = GRAPH) -> str:
    path = tmp_path / "twelve.yaml"
    path.write_text(text)
    return str(path)


def check(cli: Cli, workflow: str) -> None:
    """All jobs of the graph have run once, as they had to."""
    found = cli.get(f"/v1/workflows/{workflow}")
    states = [(each["job"], each["task"]["state"]) for each in found["jobs"]]
    assert [state for job, state in states if job != "alarm"] == ["completed"] * 11, states
    assert dict(states)["alarm"] == "cancelled"
    assert cli("workflow", "logs", workflow, "report").out == "report | right\n"
    for each in found["jobs"]:
        task = each["task"]
        assert task["attempt"] == 1
        names = [event["event"] for event in cli.get(f"/v1/tasks/{task['id']}/events")]
        assert names.count("exited") == (each["job"] != "alarm"), names


@pytest.mark.slow
def test_twelve_jobs_hand_on_what_they_make(ann, tmp_path):
    done = ann("workflow", "run", written(ann, tmp_path), "--wait")
    workflow = done.out.split()[0]
    check(ann, workflow)
    artifacts = ann.state / "artifacts"
    assert len(list(artifacts.iterdir())) == 10
    ann("workflow", "rm", workflow, "--yes")
    assert list(artifacts.iterdir()) == []


@pytest.mark.slow
def test_a_controller_that_is_killed_at_every_step_loses_nothing_and_runs_nothing_twice(ann, tmp_path):
    workflow = ann("workflow", "run", written(ann, tmp_path)).out.split()[0]

    def done() -> int:
        counts = ann.get(f"/v1/workflows/{workflow}")["counts"]
        return counts.get("completed", 0) + counts.get("cancelled", 0)

    for least in range(1, 12):
        until(lambda least=least: done() >= least, 120)
        ann.kill_controller()
    until(lambda: done() == 12, 120)
    check(ann, workflow)


def test_a_job_gets_what_another_made_and_does_not_start_without_it(ann, tmp_path):
    text = (
        "defaults: {image: busybox}\n"
        "jobs:\n"
        "  make: {command: [sh, -c, 'echo made > /made'], artifacts: [/made]}\n"
        "  use: {command: cat /artifacts/make/made, requires: make}\n"
        "  idle: {command: 'true', artifacts: [/none]}\n"
        "  lacks: {command: 'true', requires: idle}\n"
    )
    done = ann("workflow", "run", written(ann, tmp_path, text), "--wait", code=None)
    assert done.code != 0
    workflow = done.out.split()[0]
    jobs = {each["job"]: each["task"] for each in ann.get(f"/v1/workflows/{workflow}")["jobs"]}
    assert ann("logs", jobs["use"]["id"]).out == "made\n"
    assert "job idle left no /none for this one: no /none in its container" in jobs["lacks"]["reason"]


def jobs_of(cli: Cli, workflow: str) -> dict[str, dict[str, object]]:
    return {each["job"]: each["task"] for each in cli.get(f"/v1/workflows/{workflow}")["jobs"]}


def told(cli: Cli, task: object, word: str) -> list[str]:
    """The events of a task and its tries that have this word."""
    return [str(each) for each in cli.get(f"/v1/tasks/{task}/events") if word in str(each)]


def test_an_artifact_is_fetched_once_and_sent_once_to_a_node_whoever_needs_it_and_however_often(ann, tmp_path):
    text = (
        "defaults: {image: busybox}\n"
        "jobs:\n"
        "  make: {command: [sh, -c, 'echo made > /made'], artifacts: [/made], node: node1}\n"
        "  one: {command: cat /artifacts/make/made, requires: make, node: node2}\n"
        "  two: {command: [sh, -c, 'cat /artifacts/make/made; test -e /sys/none'], requires: make, node: node2,\n"
        "    retries: 1, backoff: 0}\n"
    )
    workflow = ann("workflow", "run", written(ann, tmp_path, text), "--wait", code=None).out.split()[0]
    jobs = jobs_of(ann, workflow)
    assert {job: (task["state"], task["attempt"]) for job, task in jobs.items()} == {
        "make": ("completed", 1), "one": ("completed", 1), "two": ("failed", 2)
    }  # fmt: skip
    assert len(told(ann, jobs["make"]["id"], "'brought'")) == 1
    first = str(jobs["two"]["id"]).partition("-")[0]
    tries = [jobs["one"]["id"], first, jobs["two"]["id"]]
    assert len([each for task in tries for each in told(ann, task, "uploaded ")]) == 1


def test_an_artifact_that_is_not_what_arrived_is_refused(ann, tmp_path):
    text = (
        "defaults: {image: busybox}\n"
        "jobs:\n"
        "  make: {command: [sh, -c, 'echo made > /made'], matrix: {n: [1, 2]}, artifacts: [/made]}\n"
        "  gate: {command: sleep 600, stop_grace: 0}\n"
        "  one: {command: 'true', requires: ['make[n=1]', {gate: ended}]}\n"
        "  two: {command: 'true', requires: ['make[n=2]', {gate: ended}]}\n"
    )
    workflow = ann("workflow", "run", written(ann, tmp_path, text)).out.split()[0]
    made = [each["task"]["id"] for each in ann.get(f"/v1/workflows/{workflow}")["jobs"] if each["job"] == "make"]
    files = [ann.state / "artifacts" / task / "made" for task in made]
    until(lambda: all(ann.get(f"/v1/tasks/{task}")["outputs"][0]["state"] == "here" for task in made))
    files[0].write_text("mad")
    files[1].unlink()
    ann("stop", jobs_of(ann, workflow)["gate"]["id"])
    until(lambda: ann.get(f"/v1/workflows/{workflow}")["ended_at"])
    jobs = jobs_of(ann, workflow)
    assert f"made of job make was changed in {files[0].parent} after it had arrived; to make" in jobs["one"]["reason"]
    assert f"an artifact of job make was removed from {files[1].parent} after it had" in jobs["two"]["reason"]


JOBLET = Path(__file__).parents[1] / "pure" / "data" / "workflows" / "joblet.yaml"
SCRIPTS = {
    "preprocess.py": "import sys; print('python', sys.version_info.major)",
    "train.py": "import os, sys; print(sys.argv[1:], len(os.environ['NVIDIA_VISIBLE_DEVICES'].split(',')))",
    "evaluate.py": "import os; print(len(os.environ['NVIDIA_VISIBLE_DEVICES'].split(',')))",
}


@pytest.fixture
def python_image(lab: Lab, tmp_path: Path) -> Iterator[str]:
    """An image with a shell, Debian's Python of this machine, and the scripts of the workflow in its working folder."""
    program = Path("/usr/bin/python3").resolve()
    library = Path("/usr/lib") / program.name
    if not library.is_dir():
        pytest.skip("needs Debian's python3")
    linked = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.split()
    archive = tmp_path / "python.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        for path in {program, *(Path(word) for word in linked if word.startswith("/"))}:
            tar.add(path, str(path))
        tar.add(program, "/usr/bin/python3")
        tar.add(library.resolve(), str(library.resolve()), filter=without_tests)
        for name, script in SCRIPTS.items():
            (tmp_path / name).write_text(script)
            tar.add(tmp_path / name, f"app/{name}")
    node = lab.nodes["node1"]
    node.sh(
        f"docker create --name made busybox && docker cp - made:/ < {archive} && "
        "docker commit --change 'WORKDIR /app' made made/python:1; docker rm made"
    )
    yield "made/python:1"
    node.sh("docker rmi --force made/python:1")


def without_tests(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    left_out = ("/test", "/__pycache__", "/idlelib", "/config-3", "/lib2to3", "/ensurepip", "/dist-packages")
    return None if any(word in entry.name for word in left_out) else entry


@pytest.mark.slow
def test_a_workflow_of_joblet_runs_as_it_was_written(ann, tmp_path, python_image):
    """Only its 8 cores are fewer where the machine has fewer: no engine would start it there."""
    text = JOBLET.read_text()
    if (os.cpu_count() or 1) < 8:
        assert "max_cpu: 800" in text
        text = text.replace("max_cpu: 800", f"max_cpu: {100 * (os.cpu_count() or 1)}")
    ann("env", "create", "torch", "--from", python_image, "--on", "node1")
    ann("env", "save", "torch", "-m", "as the file needs it")
    words = ("--runtime", "python-3.11-ml=torch", "--wait")
    workflow = ann("workflow", "run", written(ann, tmp_path, text), *words).out.split()[0]
    jobs = jobs_of(ann, workflow)
    assert {task["state"] for task in jobs.values()} == {"completed"}
    logs = {job: ann("logs", str(task["id"])).out for job, task in jobs.items()}
    assert logs == {
        "data-preprocessing": "python 3\n",
        "model-training": "['--epochs', '100'] 2\n",
        "model-evaluation": "1\n",
    }


FOLLOWED = """\
defaults: {image: busybox, node: node1}
jobs:
  one: {command: [sh, -c, 'echo one out; echo one err >&2']}
  other: {command: [sh, -c, 'echo other; printf unfinished']}
  long-name: {command: [sh, -c, 'echo long; exit 7']}
  last: {command: echo last, requires: [{one: ended}, {other: ended}, {long-name: ended}]}
  never: {command: echo never, requires: long-name}
"""


@pytest.mark.slow
def test_what_jobs_print_is_followed_to_a_pipe_as_it_is_and_to_a_terminal_in_columns(ann, tmp_path):
    path = written(ann, tmp_path, FOLLOWED)
    done = ann("workflow", "run", path, "--follow", code=7)
    *others, last = done.out.splitlines()
    assert sorted(others) == ["long-name | long", "one | one out", "other | other", "other | unfinished"]
    assert last == "last | last"
    assert done.err == "one | one err\n"
    code, screen = ann.terminal("workflow", "run", path, "--follow", columns=100)
    assert code == 7
    rows = screen.splitlines()
    assert "\033[36mone       |\033[0m one out" in rows
    assert "\033[32mlong-name |\033[0m long" in rows
    assert any(row.endswith("failed, 5 of 5 done (1 failed, 1 cancelled)") for row in rows)


@pytest.mark.slow
def test_a_job_on_two_nodes_hands_on_what_its_first_node_has_made(ann, tmp_path):
    text = (
        "defaults: {image: busybox}\n"
        "jobs:\n"
        "  make: {command: [sh, -c, 'echo rank $NODE_RANK > /made'], artifacts: [/made], nodes: 2, gpus: 1}\n"
        "  use: {command: [sh, -c, 'cat /artifacts/make/made'], requires: make, nodes: 2, gpus: 1}\n"
        "  last: {command: cat /artifacts/make/made, requires: [make, use]}\n"
    )
    workflow = ann("workflow", "run", written(ann, tmp_path, text), "--wait").out.split()[0]
    assert ann("workflow", "logs", workflow, "last").out == "last | rank 0\n"
    assert sorted(ann("workflow", "logs", workflow, "use").out.splitlines()) == ["use 0 | rank 0", "use 1 | rank 0"]
    assert len(list((ann.state / "artifacts").iterdir())) == 1
    ann("workflow", "rm", workflow, "--yes")
