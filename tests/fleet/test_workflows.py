"""Workflows on simulated nodes: n1 has four GPUs, n2 has one that somebody else uses."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace

import orjson
import pytest

from agentless.controller.files import arrivals, artifacts
from agentless.controller.http.live_feed import LiveFeed
from agentless.controller.http.workflow_schemas import WorkflowRequest
from agentless.controller.state.event_bus import TaskChanged
from agentless.controller.submit.request import Submit
from agentless.controller.tasks import removal
from agentless.errors import NotFound, Refused, Unreachable, UsageError
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.job import Job
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import first_try
from agentless.model.tasks.terms import Terms
from agentless.rules.submit.task_request import Outside
from agentless.rules.workflows.file import Settings, read_workflow
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.fleet.test_batches import typed

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


async def test_one_failed_task_of_several_is_enough_and_all_can_be_asked_for(desk):
    text = (
        "jobs: {t: {command: [sh, -c, 'exit {{ matrix.n }}'], matrix: {n: [0, 3]}}, "
        "any: {command: 'true', requires: [{t: failed}]}, all: {command: 'true', requires: [{t: all_failed}]}}"
    )
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await ended(controller, workflow)
        assert states(controller, workflow) == {
            "t0": "completed", "t3": "failed", "any": "completed", "all": "cancelled"
        }  # fmt: skip


async def test_reasons_name_jobs_of_the_same_workflow_and_not_their_ids(desk):
    text = (
        "max_parallel: 1\njobs: {a: {command: sleep 600, stop_grace: 0}, t: {command: ls, matrix: {n: [1, 2]}},"
        " b: {command: ls, requires: [a, t]}, c: {command: ls, requires: 't[n=2]'},"
        " d: {command: ls, requires: [{t: failed}]}}"
    )
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await is_running(controller, workflow, "a")

        def reasons():
            shown = controller.workflows.show(workflow, me(controller)).jobs
            return {each.job: each.task.reason for each in shown}

        await until(lambda: "of its workflow" in (reasons()["t"] or ""))
        assert reasons() == {
            "a": None,
            "t": "1 job of its workflow is running (max_parallel)",
            "b": "waits for job a (running) and 2 tasks of job t",
            "c": "waits for job t[n=2] (pending)",
            "d": "waits for one of 2 tasks of job t to fail",
        }
        await controller.workflow_changes.stop(workflow, 0, by=me(controller))


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


async def wanting(controller, target="4x"):
    """A task of somebody else that needs all GPUs of n1, and a preemptible one gives way to."""
    spec = TaskSpec(("sleep", "600"), needs=parse_target(target), stop_grace=0)
    (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
    return start.task.id


async def is_running(controller, workflow, *jobs):
    await until(lambda: all(states(controller, workflow)[job] == "running" for job in jobs))


async def test_a_job_that_is_preempted_for_good_has_not_failed_and_what_requires_it_is_cancelled(desk):
    text = (
        "on_failure: stop\n"
        "jobs: {a: {command: sleep 600, gpus: 1, preemptible: true, on_preempt: end, stop_grace: 0},"
        " b: {command: ls, requires: a}, c: {command: 'true', requires: [{a: ended}]}}"
    )
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await is_running(controller, workflow, "a")
        await wanting(controller)
        assert await ended(controller, workflow) == "preempted"
        assert states(controller, workflow) == {"a": "preempted", "b": "cancelled", "c": "completed"}
        shown = {each.job: each.task for each in controller.workflows.show(workflow, me(controller)).jobs}
        assert shown["b"].reason == "needs job a to complete, but it was preempted"


@pytest.mark.slow
@pytest.mark.parametrize("first", ["preempted", "failed"])
async def test_a_failure_stops_also_a_preempted_job_that_would_run_again(desk, tmp_path, first):
    """Whether it gives way already when the other fails, or is back in the queue."""
    slow = "trap 'while ! test -e %s; do sleep 0.05; done; exit 0' TERM; while :; do sleep 0.05; done"
    fails, ends = tmp_path / "fails", tmp_path / "ends"
    text = (
        "on_failure: stop\n"
        f"jobs: {{bad: {{command: [sh, -c, 'while ! test -e {fails}; do sleep 0.05; done; exit 3']}},"
        f' gives: {{command: [sh, -c, "{slow % ends}"], gpus: 1, preemptible: true, stop_grace: 60}}}}'
    )
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await is_running(controller, workflow, "bad", "gives")
        await wanting(controller)
        (task,) = (each.id for each in controller.tasks.live.values() if each.spec.name == "gives")
        await until(lambda: controller.lookup.task(task).stop == "preempt")
        if first == "preempted":
            ends.touch()
            await until(lambda: not controller.lookup.task(task).live)
        fails.touch()
        await until(lambda: states(controller, workflow)["bad"] == "failed")
        await until(lambda: controller.lookup.find(task).stop == "stop")
        ends.touch()
        assert await ended(controller, workflow) == "failed"
        assert states(controller, workflow)["gives"] == ("cancelled" if first == "preempted" else "stopped")


@pytest.mark.slow
async def test_no_more_jobs_than_max_parallel_have_a_place_also_with_retries_and_preemption(desk, tmp_path):
    ends = tmp_path / "ends"
    tried = f"{tmp_path}/tried{{{{ matrix.n }}}}"
    command = f"test -e {tried} || {{ touch {tried}; exit 1; }}; while ! test -e {ends}; do sleep 0.05; done"
    text = (
        "max_parallel: 2\n"
        f"jobs: {{t: {{command: [sh, -c, '{command}'], matrix: {{n: [1, 2, 3, 4]}}, gpus: 1, retries: 1, backoff: 0,"
        " preemptible: true, stop_grace: 0}, free: {command: 'true', matrix: {n: [1, 2]}}}"
    )
    most = 0
    async with desk.running() as controller:

        def count(_):
            nonlocal most
            has_place = [task for task in controller.tasks.live.values() if task.placement and task.spec.job]
            most = max(most, len(has_place))

        def is_second(task):
            return task.state == "running" and task.attempt == 2

        controller.bus.subscribe(TaskChanged, count)
        workflow = await run(controller, text)
        await until(lambda: len([task for task in controller.tasks.live.values() if is_second(task)]) == 2)
        other = await wanting(controller)
        await until(lambda: controller.lookup.task(other).state == "running")
        await controller.stops.stop(other, "kill", by=me(controller))
        await until(lambda: sum(state == "running" for state in states(controller, workflow).values()) == 2)
        ends.touch()
        assert await ended(controller, workflow) == "completed"
        tries = [each.task for each in controller.workflows.show(workflow, me(controller)).jobs]
        assert sum(task.preemptions for task in tries) >= 1
    assert most == 2


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


async def test_what_a_failure_let_run_runs_again_when_the_retry_fails_too_and_is_not_needed_when_it_does_not(
    desk, tmp_path
):
    text = (
        f"jobs: {{train: {{command: [sh, -c, 'test -e {tmp_path}/well']}}, "
        "alarm: {command: 'true', requires: [{train: failed}]}, told: {command: 'true', requires: alarm}}"
    )
    async with desk.running() as controller:
        workflow = await run(controller, text)
        assert await ended(controller, workflow) == "failed"
        controller.workflow_changes.retry(workflow, None, by=me(controller))
        assert await ended(controller, workflow) == "failed"
        assert {name: (task.state, task.attempt) for name, task in jobs(controller, workflow).items()} == {
            "train": ("failed", 2), "alarm": ("completed", 2), "told": ("completed", 2),
        }  # fmt: skip
        (tmp_path / "well").touch()
        controller.workflow_changes.retry(workflow, None, by=me(controller))
        assert await ended(controller, workflow) == "completed"
        assert states(controller, workflow) == {"train": "completed", "alarm": "cancelled", "told": "cancelled"}


async def test_a_job_that_is_not_needed_is_told_apart_also_if_the_workflow_has_failed(desk):
    text = (
        "jobs: {well: {command: 'true'}, alarm: {command: 'true', requires: [{well: failed}]}, "
        "told: {command: 'true', requires: alarm}, bad: {command: 'false'}, next: {command: 'true', requires: bad}}"
    )
    async with desk.running() as controller:
        workflow = await run(controller, text)
        assert await ended(controller, workflow) == "failed"
        shown = controller.workflows.show(workflow, me(controller))
        assert (shown.counts["cancelled"], shown.not_needed) == (3, 2)


async def test_one_job_is_removed_by_force_or_with_all_others(desk):
    async with desk.running() as controller:
        workflow = await run(controller, "jobs: {a: {command: 'true'}, b: {command: 'false', retries: 1, backoff: 0}}")
        assert await ended(controller, workflow) == "failed"
        a, b = (jobs(controller, workflow)[name].id for name in "ab")
        with pytest.raises(Refused, match=rf"^task {a} is job a of workflow {workflow}; .* workflow rm {workflow}; .*"):
            await controller.removal.remove(a, by=me(controller))
        before = f"{first_try(b)}-1"
        found = await controller.removal.remove_all([a, before], by=me(controller))
        assert isinstance(found[a], Refused)
        assert found[before].attempt == 1
        await controller.removal.remove(a, by=me(controller), force=True)
        assert controller.workflows.show(workflow, me(controller)).missing == 1
        await controller.removal.remove(b, by=me(controller))
        assert not controller.workflows.all(me(controller))


async def test_some_tasks_of_a_job_run_again_with_what_waits_for_them(desk):
    async with desk.running() as controller:
        workflow = await run(controller, GRAPH)
        await ended(controller, workflow)
        controller.workflow_changes.retry(workflow, "train[lr=2]", by=me(controller))
        await ended(controller, workflow)
        shown = controller.workflows.show(workflow, me(controller)).jobs
        assert {each.job + "".join(each.parameters.values()): each.task.attempt for each in shown} == {
            "prepare": 1, "train1": 1, "train2": 2, "evaluate": 2, "alarm": 2,
        }  # fmt: skip
        with pytest.raises(Refused, match="has no job 'train\\[lr=3\\]'"):
            controller.workflow_changes.retry(workflow, "train[lr=3]", by=me(controller))


async def test_while_jobs_are_being_stopped_the_workflow_says_so_and_nothing_runs_again(desk):
    text = "jobs: {a: {command: [sh, -c, 'trap : TERM; while :; do sleep 0.1; done']}, b: {command: ls, requires: a}}"
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await until(lambda: states(controller, workflow)["a"] == "running")
        stopping = asyncio.create_task(controller.workflow_changes.stop(workflow, 600.0, by=me(controller)))
        await until(lambda: states(controller, workflow)["b"] == "cancelled" and controller.tasks.live[workflow].stop)
        assert controller.workflows.show(workflow, me(controller)).state == "stopping"
        with pytest.raises(Refused, match="job a is being stopped"):
            controller.workflow_changes.retry(workflow, None, by=me(controller))
        await controller.stops.stop(workflow, "kill", by=me(controller))
        await asyncio.gather(stopping, return_exceptions=True)
        assert await ended(controller, workflow) == "stopped"


async def test_a_name_that_several_workflows_have_removes_none(agentless, tmp_path):
    (tmp_path / "w.yaml").write_text("jobs: {a: {command: 'true'}}")
    ids = [(await typed(agentless, "workflow", "run", "w.yaml", "--wait"))[0].split()[0] for _ in range(2)]
    said = (await typed(agentless, "workflow", "rm", "w", "--yes", code=3))[1]
    assert f"2 workflows are named w; to remove the newest, run: agentless workflow rm {ids[1]}" in said
    await typed(agentless, "workflow", "rm", ids[1], "--yes")
    await typed(agentless, "workflow", "rm", "w", "--yes")
    assert "No workflows" in (await typed(agentless, "workflow", "list"))[1]


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
    assert f"{workflow}  w: completed, 5 of 5 done (1 not needed)" in out
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


def jobs(controller, workflow):
    return {each.job: each.task for each in controller.workflows.show(workflow, me(controller)).jobs}


async def test_a_job_holds_no_gpu_while_artifacts_are_to_arrive_and_fails_with_the_reason_if_they_do_not(
    desk, monkeypatch
):
    # The simulated engine does not tell the working folder, and answers like Go's templates.
    text = "jobs: {a: {command: 'true', artifacts: [out], node: n1}, b: {command: ls, requires: a, gpus: 1, node: n1}}"
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await until(lambda: jobs(controller, workflow)["a"].outputs[0].state == "stuck")
        controller.arrivals.tick()
        task = controller.lookup.find(jobs(controller, workflow)["b"].id)
        assert (task.state, task.placement) == ("blocked", None)
        words = "waits for job a (ended; its artifacts: n1 does not tell the working folder"
        assert words in controller.explanations.explain(task).summary
        assert words in jobs(controller, workflow)["b"].reason
        monkeypatch.setattr(arrivals, "PATIENCE", 0.0)
        controller.arrivals.tick()
        assert await ended(controller, workflow) == "failed"
        assert "artifacts of job a cannot be fetched: n1 does not tell" in jobs(controller, workflow)["b"].reason


@pytest.mark.slow
async def test_a_job_waits_for_artifacts_also_after_the_controller_was_killed(desk):
    text = "jobs: {a: {command: 'true', artifacts: [out], node: n1}, b: {command: ls, requires: a}}"
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await until(lambda: states(controller, workflow)["a"] == "completed")
    async with desk.running() as controller:
        await until(lambda: not controller.prerequisites.touched)
        b = jobs(controller, workflow)["b"]
        assert (b.state, b.reason) == ("blocked", "waits for job a (ended; its artifacts: copying)")


async def test_nothing_of_a_workflow_is_removed_if_something_of_it_cannot_be(desk):
    async with desk.running() as controller:
        workflow = await run(controller, "jobs: {a: {command: 'true'}, b: {command: 'true', requires: a}}")
        await ended(controller, workflow)
        terms = Terms(requires=(Requirement(workflow, "failed"),), if_impossible="wait")
        await controller.submission.submit(Submit((TaskSpec(("true",), terms=terms),), {}, me(controller)))
        with pytest.raises(Refused, match=f"waits for job a .*run: agentless workflow rm --force {workflow}"):
            await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        assert states(controller, workflow) == {"a": "completed", "b": "completed"}


async def test_jobs_are_removed_several_at_a_time_and_the_next_controller_removes_the_rest(desk, monkeypatch):
    """The controller is killed when containers are gone, and what it knows of their tasks is not."""
    monkeypatch.setattr(removal, "AT_ONCE", 2)
    text = "jobs: {a: {command: 'true {{ matrix.n }}', node: n1, matrix: {n: [1, 2, 3, 4, 5]}}}"
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await ended(controller, workflow)
        forget, parts = controller.ledger.forget_all, []

        def cut(tasks, *words):
            parts.append(len(tasks))
            if len(parts) == 2:
                raise InterruptedError
            return forget(tasks, *words)

        monkeypatch.setattr(controller.ledger, "forget_all", cut)
        with pytest.raises(InterruptedError):
            await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        assert parts == [2, 2]
    async with desk.running() as controller:
        assert list(states(controller, workflow).values()) == ["completed"] * 3
        await until(lambda: len(controller.nodes.links["n1"].containers) == 1)
        await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        await until(lambda: not controller.nodes.links["n1"].containers)
        assert not controller.workflows.all(me(controller))


async def test_of_many_tasks_each_is_removed_or_says_why_not(desk):
    async with desk.running() as controller:
        workflow = await run(controller, "jobs: {a: {command: 'true'}, b: {command: sleep 600, stop_grace: 0}}")
        await is_running(controller, workflow, "b")
        await until(lambda: states(controller, workflow)["a"] == "completed")
        a, b = (jobs(controller, workflow)[name].id for name in "ab")
        found = await controller.removal.remove_all([a, b, "zzz"], by=me(controller), part=True)
        assert found[a].state == "completed"
        assert str(found[b]).startswith(f"task {b} is running")
        assert "zzz" in str(found["zzz"])
        assert (await controller.removal.remove_all([b], by=me(controller), force=True))[b].state == "killed"


TWO_NODES = (
    "jobs: {a: {command: sleep 600, node: n1, stop_grace: 0}, b: {command: sleep 600, node: n2, stop_grace: 0},"
    " c: {command: ls, requires: a}}"
)


async def test_a_workflow_is_stopped_at_once_where_nodes_answer_and_elsewhere_when_they_do(desk):
    async with desk.running() as controller:
        workflow = await run(controller, TWO_NODES)
        await is_running(controller, workflow, "a", "b")
        desk.fleet.nodes["n2"].cut()
        await until(lambda: not controller.nodes.links["n2"].online)
        b = jobs(controller, workflow)["b"].id
        with pytest.raises(Unreachable, match=rf"^n2 does not answer; agentless ends task {b} there when it does; all"):
            await controller.workflow_changes.stop(workflow, by=me(controller))
        assert states(controller, workflow)["a"] == "stopped"
        assert states(controller, workflow)["c"] == "cancelled"
        await desk.fleet.nodes["n2"].restore()
        assert await ended(controller, workflow) == "stopped"


async def test_nothing_of_a_workflow_is_removed_while_a_node_does_not_answer(desk):
    async with desk.running() as controller:
        workflow = await run(controller, TWO_NODES)
        await is_running(controller, workflow, "a", "b")
        await controller.workflow_changes.stop(workflow, by=me(controller))
        desk.fleet.nodes["n2"].cut()
        await until(lambda: not controller.nodes.links["n2"].online)
        before = states(controller, workflow)
        with pytest.raises(Unreachable, match=r"^n2 does not answer; nothing was removed, because task"):
            await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        assert states(controller, workflow) == before
        assert desk.fleet.nodes["n1"].engine.containers
        await desk.fleet.nodes["n2"].restore()
        await until(lambda: controller.nodes.links["n2"].online)
        await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        assert controller.workflows.all(me(controller)) == []


@pytest.mark.slow
async def test_how_much_of_a_workflow_is_left_is_said_if_a_node_falls_silent_meanwhile(desk, monkeypatch):
    async with desk.running() as controller:
        workflow = await run(controller, TWO_NODES)
        await is_running(controller, workflow, "a", "b")
        await controller.workflow_changes.stop(workflow, by=me(controller))
        b, link = jobs(controller, workflow)["b"].id, controller.nodes.links["n2"]

        async def falls_silent(command):
            raise Unreachable("n2 is unreachable")

        monkeypatch.setattr(link, "run", falls_silent)
        with pytest.raises(
            Unreachable, match=f"^n2 does not .*; 2 of 3 tasks were removed, but not task {b}; to remove"
        ):
            await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        assert states(controller, workflow) == {"b": "stopped"}
        monkeypatch.undo()
        await controller.workflow_changes.remove(workflow, force=False, by=me(controller))
        assert not controller.workflows.store.ids()


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
        words = {job: controller.explanations.explain(controller.lookup.find(key)).summary for job, key in jobs.items()}
        assert "agentless logs" in words["a"]
        assert "agentless logs" not in words["b"]


async def test_a_job_does_not_wait_for_artifacts_of_a_node_that_left_the_inventory(desk, monkeypatch):
    text = "jobs: {a: {command: 'true', artifacts: [out], node: n1}, b: {command: ls, requires: a, node: n2}}"
    async with desk.running() as controller:
        workflow = await run(controller, text)
        await until(lambda: jobs(controller, workflow)["a"].outputs[0].state == "stuck")
        with monkeypatch.context() as gone:
            gone.delitem(controller.nodes.links, "n1")
            gone.delitem(controller.nodes.every, "n1")
            controller.arrivals.tick()
            assert await ended(controller, workflow) == "failed"
        assert "cannot be fetched: n1 is no longer in the inventory" in jobs(controller, workflow)["b"].reason


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


PAIR = """
jobs:
  prepare: {{command: 'true'}}
  train: {{command: [sh, -c, '{}'], nodes: 2, requires: prepare}}
  evaluate: {{command: 'true', requires: train}}
  alarm: {{command: 'true', requires: [{{train: failed}}]}}
"""


def members(controller, workflow):
    shown = controller.workflows.show(workflow, me(controller)).jobs
    return [each.task for each in shown if each.job == "train"]


async def test_who_waits_for_a_job_on_two_nodes_waits_for_both(desk, tmp_path):
    """Rank 0 has completed long before."""
    async with desk.running() as controller:
        script = f"[ $NODE_RANK = 0 ] || until [ -e {tmp_path}/go ]; do sleep 0.1; done"
        workflow = await run(controller, PAIR.format(script))
        await until(lambda: [each.state for each in members(controller, workflow)] == ["completed", "running"])
        assert states(controller, workflow)["evaluate"] == "blocked"
        tmp_path.joinpath("go").touch()
        assert await ended(controller, workflow) == "completed"
        assert [states(controller, workflow)[job] for job in ("evaluate", "alarm")] == ["completed", "cancelled"]


async def test_a_job_on_two_nodes_fails_when_one_of_them_does_and_is_tried_again_whole(desk, tmp_path):
    async with desk.running() as controller:
        script = f"[ $NODE_RANK = 0 ] || [ -e {tmp_path}/well ] || exit 7; sleep 1"
        workflow = await run(controller, PAIR.format(script))
        assert await ended(controller, workflow) == "failed"
        assert [each.state for each in members(controller, workflow)] == ["stopped", "failed"]
        assert [states(controller, workflow)[job] for job in ("evaluate", "alarm")] == ["cancelled", "completed"]
        reason = {each.job: each.task.reason for each in controller.workflows.show(workflow, me(controller)).jobs}
        assert reason["evaluate"].endswith("to complete, but it failed")
        tmp_path.joinpath("well").touch()
        controller.workflow_changes.retry(workflow, None, by=me(controller))
        assert await ended(controller, workflow) == "completed"
        assert [(each.state, each.attempt) for each in members(controller, workflow)] == [("completed", 2)] * 2
        assert states(controller, workflow)["evaluate"] == "completed"


@pytest.mark.slow
async def test_a_job_on_two_nodes_is_stopped_and_removed_with_its_workflow(desk):
    async with desk.running() as controller:
        workflow = await run(controller, PAIR.format("sleep 600"))
        await until(lambda: [each.state for each in members(controller, workflow)] == ["running"] * 2)
        await controller.workflow_changes.stop(workflow, 0.1, by=me(controller))
        assert {each.state for each in members(controller, workflow)} <= {"stopped", "killed"}
        await controller.workflow_changes.remove(workflow, force=True, by=me(controller))
        assert not controller.workflows.all(me(controller))


async def test_only_the_first_node_of_a_job_has_artifacts_to_bring(desk):
    async with desk.running() as controller:
        spec = TaskSpec(("true",), job=Job("train", "w", artifacts=("model",)))
        whole = [replace(spec, gang=Gang(2, rank)) for rank in (0, 1)]
        assert [len(controller.artifacts.wanted(one).outputs) for one in whole] == [1, 0]


def test_jobs_on_several_nodes_cannot_be_limited_in_number():
    text = "max_parallel: 2\njobs: {a: {command: 'true', nodes: 2}}"
    with pytest.raises(UsageError, match=r"f\.yaml:1:15: max_parallel: cannot be combined with nodes, which job a has"):
        request(text)


async def test_what_becomes_of_a_job_on_two_nodes_is_told_of_that_job(agentless, tmp_path):
    """Each of its nodes has an answer of its own, so the answers after it belong to other jobs."""
    (tmp_path / "w.yaml").write_text(
        "jobs:\n"
        "  pair: {command: 'true', nodes: 2}\n"
        "  one: {command: 'true', gpus: 1}\n"
        "  next: {command: 'true', requires: pair}\n"
    )
    out, _ = await asyncio.to_thread(agentless, "workflow", "run", "w.yaml", "--dry-run")
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["pair", "n1,", "n2", "would", "start", "now"],
        ["one", "n1::0", "would", "start", "now"],
        ["next", "waits", "for", "pair"],
    ]
    (tmp_path / "w.yaml").write_text("jobs: {pair: {command: [sh, -c, 'echo $NODE_RANK'], nodes: 2}}")
    out, _ = await asyncio.to_thread(agentless, "workflow", "run", "w.yaml", "--follow")
    assert sorted(out.splitlines()) == ["pair 0 | 0", "pair 1 | 1"]
    (tmp_path / "w.yaml").write_text("jobs: {pair: {command: ls, nodes: 3}, one: {command: ls}}")
    _, error = await asyncio.to_thread(agentless, "workflow", "run", "w.yaml", code=3)
    assert "w.yaml:1:8: pair: only" in error
    assert "one:" not in error
