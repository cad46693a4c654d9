"""Workflows on two real nodes, with artifacts, and with a controller that is killed."""

from __future__ import annotations

import pytest

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
    assert sorted(ann("workflow", "logs", workflow, "use").out.splitlines()) == ["use | rank 0"] * 2
    assert len(list((ann.state / "artifacts").iterdir())) == 1
    ann("workflow", "rm", workflow, "--yes")
