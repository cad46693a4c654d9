"""Workflows on simulated nodes: n1 has four GPUs, n2 has one that somebody else uses."""

from __future__ import annotations

import asyncio
import json
import shutil

import orjson
import pytest

from agentless.controller.files import artifacts
from agentless.controller.http.live_feed import LiveFeed
from agentless.controller.http.workflow_schemas import WorkflowRequest
from agentless.controller.submit.request import Submit
from agentless.errors import NotFound, Refused, UsageError
from agentless.model.tasks.job import Job
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.tasks.terms import Terms
from agentless.rules.submit.task_request import Outside
from agentless.rules.workflows.file import Settings, read_workflow
from tests.fleet.client import until
from tests.fleet.desk import me

OUTSIDE = Outside(0.0, {"TOKEN": "t0p"}, lambda _: [], "/home/ana")


def request(text, **more):
    from agentless.client.workflows import request_of

    body = request_of(read_workflow(text, "f.yaml", "f", OUTSIDE, Settings()), text)
    return WorkflowRequest.model_validate_json(json.dumps({**body, **more}))


async def answer(controller, text, **more):
    asked = request(text, **more)
    return await controller.workflows.run(asked.submit(me(controller)), asked.name, asked.text)


async def run(controller, text, **more):
    found = await answer(controller, text, **more)
    assert found.workflow, found.starts
    return found.workflow.id


def states(controller, workflow):
    shown = controller.workflows.show(workflow, me(controller))
    return {each.job + "".join(each.parameters.values()): each.task.state for each in shown.jobs}


async def ended(controller, workflow):
    await until(lambda: controller.workflows.show(workflow, me(controller)).ended_at)
    return controller.workflows.show(workflow, me(controller)).state


GRAPH = """
jobs:
  prepare: {command: [sh, -c, 'sleep 0.2']}
  train: {command: [sh, -c, 'exit 0'], matrix: {lr: [1, 2]}, requires: prepare, gpus: 1}
  evaluate: {command: 'true', requires: train}
  alarm: {command: 'true', requires: [{evaluate: failed}]}
"""


async def test_jobs_run_in_their_order_and_what_is_not_needed_is_cancelled(desk):
    async with desk.running() as controller:
        workflow = await run(controller, GRAPH)
        assert await ended(controller, workflow) == "completed"
        assert states(controller, workflow) == {
            "prepare": "completed", "train1": "completed", "train2": "completed", "evaluate": "completed",
            "alarm": "cancelled",
        }  # fmt: skip
        jobs = {each.job: each.task for each in controller.workflows.show(workflow, me(controller)).jobs}
        assert jobs["prepare"].ended_at <= jobs["train"].started_at
        assert jobs["train"].ended_at <= jobs["evaluate"].started_at
        assert {each.batch for each in jobs.values()} == {workflow} == {each.workflow for each in jobs.values()}


async def test_nothing_is_started_if_a_job_can_never_run_and_all_of_them_are_told(desk):
    text = (
        "jobs: {a: {command: ls}, b: {command: ls, gpus: 9}, c: {command: ls, node: nope}, d: {command: ls, env: {}}}"
    )
    async with desk.running() as controller:
        found = await answer(controller, text)
        assert found.workflow is None
        assert [start.exit_code for start in found.starts] == [0, 3, 2, 0]
        assert "no node can run 9x" in found.starts[1].message
        assert not controller.tasks.live
        assert controller.workflows.all(me(controller)) == []


@pytest.mark.slow
async def test_a_name_means_the_newest_workflow_of_that_name(desk):
    async with desk.running() as controller:
        first = await run(controller, "jobs: {a: {command: 'true'}}")
        second = await run(controller, "jobs: {a: {command: 'true'}, b: {command: 'true'}}")
        await ended(controller, second)
        assert [each.id for each in controller.workflows.all(me(controller))] == [second, first]
        assert list(controller.workflows.find("f")) != list(controller.workflows.find(first))
        assert controller.workflows.show(second, me(controller)).text.startswith("jobs:")
        with pytest.raises(NotFound, match="no workflow 'nope'"):
            controller.workflows.find("nope")


async def test_a_failure_stops_the_others_but_what_waits_for_it(desk):
    text = (
        "on_failure: stop\n"
        "jobs: {bad: {command: [sh, -c, 'sleep 0.2; exit 3']}, long: {command: sleep 600, stop_grace: 0},"
        " later: {command: ls, requires: [{long: ended}]}, cleanup: {command: 'true', requires: [{bad: ended}]},"
        " never: {command: ls, requires: bad}}"
    )
    async with desk.running() as controller:
        workflow = await run(controller, text)
        assert await ended(controller, workflow) == "failed"
        assert states(controller, workflow) == {
            "bad": "failed", "long": "stopped", "later": "cancelled", "cleanup": "completed", "never": "cancelled",
        }  # fmt: skip


@pytest.mark.slow
async def test_a_failure_stops_the_others_also_if_the_controller_died_in_between(desk):
    text = "on_failure: stop\njobs: {bad: {command: [sh, -c, 'exit 3']}, long: {command: sleep 600, stop_grace: 0}}"
    async with desk.running() as controller:
        controller.workflow_failures._changed = lambda _: None
        controller.bus._subscribers.clear()
        workflow = await run(controller, text)
    async with desk.running() as controller:
        assert await ended(controller, workflow) == "failed"
        assert states(controller, workflow) == {"bad": "failed", "long": "stopped"}


async def test_what_did_not_complete_runs_again_with_what_was_cancelled_because_of_it(desk, tmp_path):
    text = (
        "jobs: {ok: {command: 'true'}, bad: {command: [sh, -c, 'exit 3'], requires: ok}, "
        "next: {command: 'true', requires: bad}, alarm: {command: 'true', requires: [{ok: failed}]}}"
    )
    async with desk.running() as controller:
        workflow = await run(controller, text)
        assert await ended(controller, workflow) == "failed"
        view = controller.workflow_changes.retry(workflow, None, by=me(controller))
        assert view.state == "running"
        assert await ended(controller, workflow) == "failed"
        shown = controller.workflows.show(workflow, me(controller))
        assert {each.job: each.task.attempt for each in shown.jobs} == {"ok": 1, "bad": 2, "next": 2, "alarm": 1}
        controller.workflow_changes.retry(workflow, "ok", by=me(controller))
        await ended(controller, workflow)
        shown = controller.workflows.show(workflow, me(controller))
        assert {each.job: each.task.attempt for each in shown.jobs} == {"ok": 2, "bad": 3, "next": 3, "alarm": 2}
        with pytest.raises(Refused, match="has no job 'okk' \\(did you mean 'ok'\\?\\)"):
            controller.workflow_changes.retry(workflow, "okk", by=me(controller))


async def test_a_workflow_is_stopped_and_removed_as_a_whole(desk):
    text = "jobs: {a: {command: sleep 600, stop_grace: 0}, b: {command: ls, requires: [{a: ended}]}}"
    async with desk.running() as controller:
        workflow = await run(controller, text)
        with pytest.raises(Refused, match="first run: agentless workflow stop"):
            await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        view = await controller.workflow_changes.stop(workflow, by=me(controller))
        assert (view.state, view.counts) == ("stopped", {"stopped": 1, "cancelled": 1})
        await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        assert controller.workflows.all(me(controller)) == []
        assert not controller.workflows.store.ids()


@pytest.mark.slow
async def test_a_workflow_that_is_sent_again_after_a_lost_answer_is_not_run_twice(desk):
    async with desk.running() as controller:
        first = await run(controller, GRAPH, request="r1")
    async with desk.running() as controller:
        assert await run(controller, GRAPH, request="r1", repeated=True) == first
        assert await ended(controller, first) == "completed"
        assert len(controller.workflows.all(me(controller))) == 1


@pytest.mark.slow
async def test_a_record_without_tasks_is_no_workflow_and_goes_with_the_next_start(desk, monkeypatch):
    """A controller that dies between the record and the tasks leaves one."""
    async with desk.running() as controller:
        monkeypatch.setattr(controller.submission._admission, "admit", dies)
        with pytest.raises(RuntimeError):
            await run(controller, GRAPH)
        assert controller.workflows.store.ids()
        assert controller.workflows.all(me(controller)) == []
    async with desk.running() as controller:
        assert controller.workflows.store.ids() == []
        assert await ended(controller, await run(controller, GRAPH)) == "completed"


def dies(*_, **__):
    raise RuntimeError("killed here")


async def test_only_what_runs_is_taken_back_after_the_state_was_lost(desk):
    """Anybody can write labels: nothing in them may start a job."""
    text = "jobs: {a: {command: sleep 600, stop_grace: 0}, b: {command: 'true', requires: [{a: ended}]}}"
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await until(lambda: states(controller, workflow)["a"] == "running")
    shutil.rmtree(desk.state)
    desk.state.mkdir(mode=0o700)
    async with desk.running() as controller:
        await until(lambda: controller.recovery.unremembered(me(controller)))
        offer = await controller.recovery.offer(me(controller))
        controller.recovery.recover([workflow], offer.digests, by=me(controller))
        assert states(controller, workflow) == {"a": "running"}
        assert list(controller.tasks.live) == [workflow]


@pytest.mark.slow
async def test_each_job_gets_its_own_secrets(desk):
    text = (
        "jobs: {a: {command: [sh, -c, 'test \"$TOKEN\" = t0p'], secret_env: [TOKEN]}, "
        "b: {command: [sh, -c, 'test -z \"$TOKEN\"'], requires: a}}"
    )
    async with desk.running() as controller:
        workflow = await run(controller, text)
        assert await ended(controller, workflow) == "completed", states(controller, workflow)


async def test_a_workflow_is_typed(agentless, tmp_path):
    def typed(*words, code=0):
        return asyncio.to_thread(agentless, "workflow", *words, code=code)

    (tmp_path / "w.yaml").write_text(GRAPH)
    out, _ = await typed("run", "w.yaml", "--wait")
    workflow = out.split()[0]
    assert f"{workflow}  w: completed, 5 of 5 done (1 cancelled)" in out
    out, _ = await typed("show", "w", "--graph")
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["✓", "prepare", "completed"], ["✓", "train", "×2"], ["✓", "evaluate", "completed"],
        ["–", "alarm", "cancelled"],
    ]  # fmt: skip
    assert (await typed("show", "w", "--text"))[0] == GRAPH
    assert (await typed("list", "-o", "name"))[0] == f"{workflow}\n"
    (tmp_path / "w.yaml").write_text("jobs: {a: {command: ls, gpus: 9}}")
    _, error = await typed("run", "w.yaml", code=3)
    assert error.startswith("agentless: w.yaml:1:8: a: no node can run 9x")
    assert error.endswith("Nothing was started\n")
    await typed("rm", "w", "--yes")
    assert "No workflows" in (await typed("list"))[1]


async def test_a_task_is_submitted_from_a_file_and_what_is_typed_wins(agentless, tmp_path):
    method = '{"name": "method", "resources": {"min_memory_mb": 8192, "cpus": 4, "gpus": 1}}'
    (tmp_path / "method.json").write_text(method)
    words = ("submit", "--file", "method.json", "--cores", "0.5", "--memory", "1G", "--wait", "--json", "--", "true")
    (task,) = json.loads((await asyncio.to_thread(agentless, *words))[0])
    assert (task["name"], task["target"], task["cores"], task["memory_bytes"]) == ("method", "1x", 0.5, 10**9)
    assert task["command"] == ["true"]


async def test_a_job_whose_artifacts_cannot_be_fetched_fails_with_the_reason(desk, monkeypatch):
    # The simulated engine does not tell the working folder, and answers like Go's templates.
    monkeypatch.setattr(artifacts, "PATIENCE", 0.5)
    monkeypatch.setattr(artifacts, "LOOK_EVERY", 0.1)
    text = "jobs: {a: {command: 'true', artifacts: [out], node: n1}, b: {command: ls, requires: a, gpus: 1, node: n1}}"
    async with desk.running() as controller:
        workflow = await run(controller, text)
        assert await ended(controller, workflow) == "failed"
        shown = {each.job: each.task for each in controller.workflows.show(workflow, me(controller)).jobs}
        assert "artifacts of job a cannot be fetched: n1 does not tell the working folder of" in shown["b"].reason
        steps = [str(event) for _, event in controller.tasks.history.events(0, -1, shown["b"].id)]
        assert any("waiting for artifacts of job a: n1 does not tell" in step for step in steps)


async def test_nothing_of_a_workflow_is_removed_if_something_of_it_cannot_be(desk):
    async with desk.running() as controller:
        workflow = await run(controller, "jobs: {a: {command: 'true'}, b: {command: 'true', requires: a}}")
        await ended(controller, workflow)
        terms = Terms(requires=(Requirement(workflow, "failed"),), if_impossible="wait")
        await controller.submission.submit(Submit((TaskSpec(("true",), terms=terms),), {}, me(controller)))
        with pytest.raises(Refused, match=f"waits for job a .*run: agentless workflow rm --force {workflow}"):
            await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        assert states(controller, workflow) == {"a": "completed", "b": "completed"}


async def test_a_request_is_checked_like_a_file(desk):
    def job(**more):
        return {"name": "a", "spec": {"command": ["true"]}, "target": "n1", **more}

    async with desk.running() as controller:
        for paths in (["/"], [".."], ["a:b"], [""], ["x/m", "m"]):
            asked = WorkflowRequest.model_validate({"name": "w", "jobs": [job(artifacts=paths)]})
            try:
                found = await controller.workflows.run(asked.submit(me(controller)), "w", "")
                assert found.starts[0].exit_code == 2, paths
            except UsageError:
                pass
        gang = WorkflowRequest.model_validate(
            {"name": "w", "jobs": [job(spec={"command": ["a"], "gang": {"size": 2}})]}
        )
        with pytest.raises(UsageError, match="several nodes is not supported in workflows"):
            gang.submit(me(controller))
        assert not controller.tasks.live


def test_each_task_of_a_matrix_has_a_folder_of_its_own():
    def target(values):
        return artifacts._target(Task("a", TaskSpec(("x",), parameters=values, job=Job("train", "w")), "b", "o", 1.0))

    assert target({"lr": "0.1"}) == "/artifacts/train/lr=0.1"
    odd = [{"d": "a/b"}, {"d": "a_b"}, {"d": "a b"}, {"d": "1,e=2"}, {"d": "1", "e": "2"}, {"d": "é" * 300}]
    assert len({target(each) for each in odd}) == len(odd)
    assert max(len(name.encode()) for each in odd for name in target(each).split("/")) < 255


async def test_what_never_started_has_no_output_to_point_to(desk):
    async with desk.running() as controller:
        workflow = await run(controller, "jobs: {a: {command: 'true'}, b: {command: ls, requires: [{a: failed}]}}")
        await ended(controller, workflow)
        jobs = {each.job: each.task.id for each in controller.workflows.show(workflow, me(controller)).jobs}
        words = {job: controller.queue.explain(controller.lookup.find(key)).summary for job, key in jobs.items()}
        assert "agentless logs" in words["a"]
        assert "agentless logs" not in words["b"]


async def test_a_job_does_not_wait_for_artifacts_of_a_node_that_left_the_inventory(desk, monkeypatch):
    monkeypatch.setattr(artifacts, "LOOK_EVERY", 0.1)
    text = "jobs: {a: {command: 'true', artifacts: [out], node: n1}, b: {command: ls, requires: a, node: n2}}"
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await until(lambda: any(getattr(task.status, "step", "") for task in controller.tasks.live.values()))
        with monkeypatch.context() as gone:
            gone.delitem(controller.nodes.links, "n1")
            assert await ended(controller, workflow) == "failed"
        shown = {each.job: each.task for each in controller.workflows.show(workflow, me(controller)).jobs}
        assert "cannot be fetched: n1 is no longer in the inventory" in shown["b"].reason


async def test_screens_are_sent_a_workflow_when_it_changes_and_when_it_is_gone(desk):
    def news():
        feed.refresh()
        return json.loads(orjson.dumps(feed.news(follower)))

    async with desk.running() as controller:
        feed = LiveFeed(controller, me(controller))
        with feed.followed() as follower:
            assert "workflows" not in news()
            workflow = await run(controller, GRAPH)
            (row,) = news()["workflows"]
            assert (row["id"], row["name"], sum(row["counts"].values())) == (workflow, "f", 5)
            await ended(controller, workflow)
            (row,) = news()["workflows"]
            assert (row["state"], row["counts"]) == ("completed", {"completed": 4, "cancelled": 1})
            controller.workflow_changes.retry(workflow, "evaluate", by=me(controller))
            assert news()["workflows"][0]["state"] == "running"
            await ended(controller, workflow)
            news()
            assert "workflows" not in news()
        other = LiveFeed(controller, me(controller))
        with other.followed() as follower:
            other.refresh()
            assert json.loads(orjson.dumps(other.news(follower)))["workflows"][0]["id"] == workflow
        with feed.followed() as follower:
            news()
            await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
            assert ["workflows", workflow] in news()["gone"]
