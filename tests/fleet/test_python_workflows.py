"""Workflows from Python, on simulated nodes."""

from __future__ import annotations

import asyncio

import pytest

from agentless import Cluster, NotFound, Refused, UsageError
from agentless.demo.fleet import NodePlan
from tests.fleet.inhabited import inhabited


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with inhabited(tmp_path_factory.mktemp("flows"), [NodePlan("n1", 2), NodePlan("n2", 2)]):
        yield Cluster()


def test_a_file_runs_with_parameters_and_its_paths_are_relative_to_its_folder(cluster, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words").write_text("hello\n")
    path = tmp_path / "flow.yaml"
    path.write_text(
        "params: {name: nobody}\n"
        "jobs: {greet: {command: 'echo {{ matrix.word }} {{ params.name }}', matrix: {word: 'span:[@data/words]'}}}\n"
    )
    done = cluster.submit_workflow(path, params={"name": "ann"}).wait("60s")
    assert (done.name, done.state) == ("flow", "completed")
    assert done.jobs[0].task.exit_code == 0
    assert [line for _, line in done.logs(follow=True)] == ["hello ann"]
    assert "greet" not in repr(done)  # a notebook shows it after each call
    assert len(repr(done)) < 400


def test_mistakes_are_told_with_their_places_and_nothing_is_started(cluster):
    before = len(cluster.workflows())
    with pytest.raises(UsageError, match=r"workflow:3:5: .*gpuz"):
        cluster.submit_workflow({"jobs": {"a": {"gpuz": 1, "command": "true"}}})
    with pytest.raises(Refused, match="big: no node can run 9x"):
        cluster.submit_workflow({"jobs": {"big": {"command": "true", "gpus": 9}}})
    for value in (object(), {"jobs": {"a": {"command": object()}}}):
        with pytest.raises(UsageError):
            cluster.submit_workflow(value)
    with pytest.raises(UsageError, match="params: x is"):
        cluster.submit_workflow({"params": {"x": 1}, "jobs": {}}, params={"x": float("nan")})
    with pytest.raises(NotFound):
        cluster.workflow("nope")
    assert len(cluster.workflows()) == before


def test_a_failed_workflow_is_tried_again_and_a_live_one_is_stopped(cluster):
    text = {"jobs": {"bad": {"command": ["sh", "-c", "exit 3"]}, "next": {"command": "true", "requires": "bad"}}}
    done = cluster.submit_workflow(text).wait()
    assert (done.state, done.jobs[0].task.exit_code) == ("failed", 3)
    assert {job.task.attempt for job in done.retry().wait().jobs} == {2}
    flow = cluster.submit_workflow({"jobs": {"long": {"command": "sleep 600", "stop_grace": 0}}})
    with pytest.raises(TimeoutError, match=f"workflow {flow.id} is"):
        flow.wait(0.1)
    assert flow.stop().state == "stopped"
    with pytest.raises(UsageError, match="no job 'nope'"):
        list(flow.logs(["nope"]))


async def test_each_method_can_be_awaited(cluster):
    flow = await cluster.submit_workflow.aio({"jobs": {"a": {"command": "echo hi"}}})
    async with asyncio.timeout(60):
        done = await flow.wait.aio()
    assert [pair async for pair in done.logs.aio()] == [("a", "hi")]
    assert (await done.graph.aio()).startswith("✓  a  completed in ")


def test_a_task_on_two_nodes_is_asked_for_and_read_by_the_names_of_the_command_line(cluster):
    script = "echo from $NODE_RANK; sleep $NODE_RANK; exit $((7 * NODE_RANK))"
    task = cluster.submit("sh", "-c", script, nodes=2, gpus=1, grace=0)
    ended = task.wait("60s")
    assert (ended.id, ended.state, ended.exit_code) == (task.id, "failed", 7)
    assert ended.reason == "rank 1 on n2 failed with exit code 7"
    assert list(task.logs()) == ["0 | from 0", "1 | from 1"]
    assert list(task.logs(rank=1)) == ["from 1"]
    with pytest.raises(UsageError, match=r"rank 2: task .* has ranks 0 to 1"):
        list(task.logs(rank=2))
    flow = cluster.submit_workflow({"jobs": {"pair": {"command": ["sh", "-c", script], "nodes": 2}}}).wait("60s")
    assert list(flow.logs()) == [("pair", "from 0"), ("pair", "from 1")]


def test_a_delay_that_is_none_and_a_name_that_is_given_twice_are_told(cluster):
    with pytest.raises(
        UsageError, match=r"--in .*2mxf.* to start after another task, use --after; in Python, requires="
    ):
        cluster.submit("true", gpus=0, after="2mxf")
    with pytest.raises(UsageError, match="nodes and gang are the same option"):
        cluster.submit("true", gpus=0, gang=3, nodes=2)
