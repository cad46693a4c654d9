"""A workflow whose state was lost: what goes on, what asks, and what never runs again."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
import threading
from pathlib import Path

import pytest

from agentless.controller.http.workflow_rows import WorkflowRows
from agentless.controller.workflows import recovery
from agentless.errors import NotFound, Refused, StateError
from agentless.model.caller import Caller
from agentless.model.files.file_spec import Output
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.job import Job
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Ended, Placement, Task
from agentless.rules.workflows.carried import JOBS, unpack
from tests.fleet.client import gone, until
from tests.fleet.desk import me
from tests.fleet.test_workflows import ended, run, states

TEXT = """\
jobs:
  a: {command: sleep 600, stop_grace: 0}
  b: {command: 'true', requires: [{a: ended}]}
  c: {command: 'true', requires: b}
  d: {command: 'true', requires: [{b: failed}]}
"""


async def begun(controller, text=TEXT, *jobs):
    workflow = await run(controller, text)
    await until(lambda: all(states(controller, workflow)[job] == "running" for job in jobs or ("a",)))
    return workflow


def lose(desk, **also):
    """The state folder is lost, and maybe the key, or the record of stopped jobs."""
    shutil.rmtree(desk.state)
    desk.state.mkdir(mode=0o700)
    for path in proof_of(desk).iterdir() if also else ():
        if also.get("key") or (also.get("stops") and path.name.startswith("stopped")):
            path.unlink()


def proof_of(desk):
    return desk.controller.workflow_proof._folder


def decisions(views):
    return [{job.job: job.decision for job in view.jobs} for view in views]


async def recovered(controller):
    """All tasks are taken back, and the workflows are as they were shown before."""
    await until(lambda: controller.recovery.unremembered(me(controller)))
    views = await controller.workflow_recovery.offer(me(controller))
    offer = await controller.recovery.offer(me(controller))
    controller.recovery.recover([task.id for task in offer.tasks], offer.digests, by=me(controller))
    return views


async def go_on(controller, view, by_hand=False):
    jobs = [job.id for job in view.jobs]
    return await controller.workflow_recovery.go_on(view.id, view.digest, jobs, by_hand=by_hand, by=me(controller))


async def test_jobs_that_cannot_have_started_go_on_after_the_state_was_lost(desk):
    async with desk.running() as controller:
        workflow = await begun(controller)
    lose(desk)
    async with desk.running() as controller:
        (view,) = await recovered(controller)
        assert (view.id, view.signed, len(view.nodes)) == (workflow, True, 1)
        assert decisions([view]) == [{"b": "goes_on", "c": "goes_on", "d": "goes_on"}]
        await go_on(controller, view)
        assert states(controller, workflow) == {"a": "running", "b": "blocked", "c": "blocked", "d": "blocked"}
        assert controller.workflows.show(workflow, me(controller)).text == TEXT
        with pytest.raises(Refused, match="no job of workflow"):
            await go_on(controller, view)
        await controller.stops.stop(workflow, "kill", by=me(controller))
        await ended(controller, workflow)
        assert states(controller, workflow) == {"a": "killed", "b": "completed", "c": "completed", "d": "cancelled"}
        assert await controller.workflow_recovery.offer(me(controller)) == []


async def test_a_job_that_was_stopped_or_removed_while_it_waited_does_not_come_back(desk):
    text = """\
jobs:
  a: {command: sleep 600, stop_grace: 0}
  b: {command: 'true', requires: a}
  c: {command: 'true', requires: a}
  d: {command: 'true', requires: c}
  e: {command: 'true', requires: [{a: ended}]}
"""
    async with desk.running() as controller:
        workflow = await begun(controller, text)
        jobs = {each.job: each.task.id for each in controller.workflows.show(workflow, me(controller)).jobs}
        await controller.stops.stop(jobs["b"], "stop", by=me(controller))
        await controller.stops.stop(jobs["c"], "stop", by=me(controller))  # d cannot be met any more
        await until(lambda: states(controller, workflow)["d"] == "cancelled")
    lose(desk)
    async with desk.running() as controller:
        assert decisions(await recovered(controller)) == [{"e": "goes_on"}]


@pytest.mark.slow
async def test_what_a_person_stopped_lets_nothing_go_on(desk):
    """The container of a job that is being stopped may run for long, and end with 0."""
    text = "jobs: {a: {command: sleep 600, stop_grace: 600}, b: {command: 'true', requires: [{a: ended}]}}"
    async with desk.running() as controller:
        workflow = await begun(controller, text)
        controller.nodes.links["n1"].engines.runtime.signal = controller.nodes.links["n2"].engines.runtime.signal = dies
        with pytest.raises(RuntimeError):
            await controller.stops.stop(workflow, "stop", by=me(controller))
    lose(desk)
    async with desk.running() as controller:
        (view,) = await recovered(controller)
        assert [(job.decision, job.reason) for job in view.jobs] == [
            ("ask", "a job that it requires was stopped or preempted")
        ]


def dies(*_, **__):
    raise RuntimeError("killed here")


@pytest.mark.slow
async def test_jobs_that_only_wait_for_a_free_gpu_ask_and_run_when_a_person_says_so(desk):
    text = """\
jobs:
  a: {command: sleep 600, stop_grace: 0, node: n1, gpus: 4}
  b: {command: 'true', node: n1, gpus: 1}
  c: {command: 'true', requires: b}
  d: {command: 'true', node: n1, gpus: 1, secret_env: [TOKEN]}
"""
    async with desk.running() as controller:
        workflow = await begun(controller, text)
    lose(desk)
    async with desk.running() as controller:
        (view,) = await recovered(controller)
        assert decisions([view]) == [{"b": "ask", "c": "ask", "d": "cannot"}]
        with pytest.raises(Refused):
            await go_on(controller, view)
        with pytest.raises(NotFound):
            await controller.workflow_recovery.go_on("0", view.digest, [], by_hand=True, by=me(controller))
        with pytest.raises(Refused, match="has changed since it was shown"):
            await controller.workflow_recovery.go_on(workflow, "0" * 64, [], by_hand=True, by=me(controller))
        await go_on(controller, view, by_hand=True)
        assert states(controller, workflow) == {"a": "running", "b": "pending", "c": "blocked"}
        await controller.stops.stop(workflow, "kill", by=me(controller))
        await ended(controller, workflow)
        assert states(controller, workflow) == {"a": "killed", "b": "completed", "c": "completed"}


@pytest.mark.parametrize(
    ("also", "signed", "why"),
    [
        ({"key": True}, False, "not signed by this controller"),
        ({"stops": True}, True, "the record of stopped jobs was lost or is an old copy"),
    ],
)
async def test_without_the_key_or_the_record_of_stops_nothing_goes_on_by_itself(desk, also, signed, why):
    async with desk.running() as controller:
        workflow = await begun(controller)
    lose(desk, **also)
    async with desk.running() as controller:
        (view,) = await recovered(controller)
        assert (view.signed, {(job.decision, job.reason) for job in view.jobs}) == (signed, {("ask", why)})
        with pytest.raises(Refused):
            await go_on(controller, view)
        await go_on(controller, view, by_hand=True)
        assert states(controller, workflow) == {"a": "running", "b": "blocked", "c": "blocked", "d": "blocked"}


@pytest.mark.slow
async def test_an_old_copy_of_the_record_of_stops_is_noticed(desk):
    async with desk.running() as controller:
        workflow = await begun(controller)
        jobs = controller.workflows.show(workflow, me(controller)).jobs
        await controller.stops.stop(jobs[1].task.id, "stop", by=me(controller))
        await begun(controller)
        record = next(path for path in proof_of(desk).iterdir() if path.name.startswith("stopped"))
    record.write_text("")
    lose(desk)
    async with desk.running() as controller:
        assert {job.decision for view in await recovered(controller) for job in view.jobs} == {"ask"}


@pytest.mark.slow
async def test_what_is_known_or_of_somebody_else_is_not_offered(desk):
    async with desk.running() as controller:
        workflow = await begun(controller)
        assert await controller.workflow_recovery.offer(me(controller)) == []
    lose(desk)
    async with desk.running() as controller:
        controller.tasks.owner = "bob@desk"
        assert await controller.workflow_recovery.offer(Caller("eve@desk")) == []
        with pytest.raises(NotFound):
            await controller.workflow_recovery.go_on(workflow, "", [], by_hand=True, by=Caller("eve@desk"))


@pytest.mark.slow
async def test_a_workflow_goes_on_also_after_a_second_loss(desk):
    async with desk.running() as controller:
        workflow = await begun(controller)
    text = "jobs: {x: {command: sleep 600}, y: {command: sleep 600, requires: x}, z: {command: 'true', requires: y}}"
    lose(desk)
    async with desk.running() as controller:
        controller.workflows.show((await begun(controller, text, "x")), me(controller))
        (view,) = await recovered(controller)
        await go_on(controller, view)
    lose(desk)
    async with desk.running() as controller:
        found = {view.id: decisions([view])[0] for view in await recovered(controller)}
        assert found[workflow] == {"b": "goes_on", "c": "goes_on", "d": "goes_on"}
        assert min(found.values(), key=len) == {"y": "goes_on", "z": "goes_on"}


@pytest.mark.slow
async def test_a_workflow_that_is_too_large_says_that_it_is_not_carried(desk, monkeypatch):
    monkeypatch.setattr("agentless.rules.workflows.carried.MAX_JOBS", 10)
    async with desk.running() as controller:
        workflow = await begun(controller)
        shown = controller.workflows.show(workflow, me(controller))
        assert shown.not_carried == "it has more jobs, or longer ones, than labels can hold"
    lose(desk)
    async with desk.running() as controller:
        assert await recovered(controller) == []


@pytest.mark.slow
async def test_nothing_of_a_secret_is_in_a_label(desk):
    text = "jobs: {a: {command: sleep 600, secret_env: [TOKEN]}, b: {command: ls, requires: a, secret_env: [TOKEN]}}"
    async with desk.running() as controller:
        await begun(controller, text)
        for node in desk.fleet.nodes.values():
            for container in node.engine.containers.values():
                jobs = unpack(container.config.labels[JOBS])
                assert jobs is not None
                assert all(spec.secret_env == ("TOKEN",) for spec in jobs.jobs.values())
                assert "t0p" not in repr((jobs, container.config.labels))


@pytest.mark.slow
async def test_each_job_is_checked_like_one_of_a_submit(desk):
    """What the inventory or a rule refuses by now does not start, and nothing else of the workflow does."""
    text = "jobs: {a: {command: sleep 600, node: n1}, b: {command: ls, requires: a, gpus: 1, node: n2, share: true}}"
    async with desk.running() as controller:
        await begun(controller, text)
    lose(desk)
    desk.write(without="n2")
    async with desk.running() as controller:
        (view,) = await recovered(controller)
        answer = await go_on(controller, view)
        assert answer.workflow is None
        assert "n2" in answer.starts[0].message
        assert len(controller.tasks.live) == 1


@pytest.mark.slow
async def test_a_controller_whose_lock_was_removed_ends_and_the_next_one_goes_on(agentless, environment, tmp_path):
    def typed(*words, code=0):
        return asyncio.to_thread(agentless, *words, code=code)

    state = Path(environment["XDG_STATE_HOME"], "agentless")
    (tmp_path / "w.yaml").write_text(TEXT)
    workflow = (await typed("workflow", "run", "w.yaml"))[0].strip()
    first = json.loads((await typed("controller", "status", "--json"))[0])["pid"]
    (state / "lock").unlink()
    assert await gone(first)
    assert "was removed or replaced" in (state / "controller.log").read_text()
    assert json.loads((await typed("workflow", "show", workflow, "--json"))[0])["state"] == "running"
    await typed("workflow", "stop", workflow, "--grace", "0")


GANG = """\
jobs:
  a: {command: sleep 600, stop_grace: 0}
  pair: {command: [sh, -c, 'exit 0'], nodes: 2, requires: [{a: ended}]}
  merge: {command: 'true', requires: pair}
  beside: {command: 'true', requires: [{a: ended}]}
"""


async def test_a_job_on_several_nodes_goes_on_as_a_whole_and_so_do_those_beside_it(desk):
    async with desk.running() as controller:
        workflow = await begun(controller, GANG)
        before = [each.task.id for each in controller.workflows.show(workflow, me(controller)).jobs]
    lose(desk)
    async with desk.running() as controller:
        (view,) = await recovered(controller)
        assert [(job.job, job.decision) for job in view.jobs] == [
            (name, "goes_on") for name in ("pair", "pair", "beside", "merge")
        ]
        assert [view.jobs[0].id, view.jobs[1].id] == list(view.jobs[0].spec.gang.members)
        with pytest.raises(Refused):  # half of it
            await controller.workflow_recovery.go_on(
                workflow, view.digest, [view.jobs[0].id], by_hand=False, by=me(controller)
            )
        await go_on(controller, view)
        assert [each.task.id for each in controller.workflows.show(workflow, me(controller)).jobs] == before
        assert states(controller, workflow) == dict.fromkeys(("pair", "merge", "beside"), "blocked") | {"a": "running"}
        await controller.stops.stop(workflow, "kill", by=me(controller))
        await until(
            lambda: states(controller, workflow)["pair"] == states(controller, workflow)["beside"] == "completed"
        )


async def test_a_workflow_that_was_recovered_is_listed_after_its_end_and_is_not_completed_if_jobs_are_missing(
    desk, tmp_path
):
    text = (
        f"jobs: {{a: {{command: [sh, -c, 'while [ ! -e {tmp_path}/go ]; do sleep 0.1; done']}}, "
        "b: {command: 'true', requires: a, secret_env: [TOKEN]}}"
    )
    async with desk.running() as controller:
        workflow = await begun(controller, text)
    lose(desk)
    async with desk.running() as controller:
        assert decisions(await recovered(controller)) == [{"b": "cannot"}]
        (tmp_path / "go").touch()
        assert await ended(controller, workflow) == "incomplete"
        (listed,) = controller.workflows.all(me(controller))
        rows = WorkflowRows(controller.workflows, controller.tasks, me(controller))
        rows.take(controller.lookup.find(workflow))
        assert dict(rows.changes()) == {workflow: listed}
        assert (listed.state, listed.missing, listed.counts) == ("incomplete", 1, {"completed": 1})
        assert controller.workflows.find("f")


@pytest.mark.parametrize(
    ("task_id", "artifacts", "rank", "wanted"),
    [
        ("2a", ("out", "/x/../y"), 0, ["out", "/y"]),
        ("2a-3", ("out",), 0, ["out"]),
        ("2a", ("out", ".."), 0, None),
        ("2b", ("out",), 1, None),
    ],
)
async def test_of_forged_labels_only_artifacts_are_fetched_and_to_where_we_say(desk, task_id, artifacts, rank, wanted):
    spec = TaskSpec(
        ("true",),
        image="busybox",
        job=Job("a", "w", workflow="2a", artifacts=artifacts),
        outputs=(Output("/etc/passwd", "/root/.ssh/authorized_keys"), Output("out", "/elsewhere/{id}/")),
        gang=Gang(2, rank, ("2a", "2b")) if rank else None,
    )
    async with desk.running() as controller:
        status = Ended("completed", 1.0, 0, None, Placement("n1"), "c" * 64, 0.5)
        controller.ledger.adopt(Task(task_id, spec, "2a", "eve", 0.0, status), "agentless recover")
        found = controller.expected_outputs.store.wanted(task_id)
        assert (found and [each.path for each in found.outputs]) == wanted
        if found:
            assert {each.local for each in found.outputs} == {f"{desk.state}/artifacts/2a/"}
            assert task_id in controller.expected_outputs


@pytest.mark.slow
async def test_the_list_of_workflows_points_to_recover_while_jobs_run_that_are_unknown(
    agentless, environment, tmp_path
):
    def typed(*words, code=0):
        return asyncio.to_thread(agentless, *words, code=code)

    (tmp_path / "w.yaml").write_text(GANG)
    workflow = (await typed("workflow", "run", "w.yaml"))[0].strip()
    await typed("controller", "stop")
    shutil.rmtree(Path(environment["XDG_STATE_HOME"], "agentless"))
    said = (await typed("workflow", "list"))[1]
    assert re.search(r"1 task on n[12] of workflows unknown here\. If you ran them: agentless recover", said)
    said = (await typed("recover", "--yes"))[1]
    assert "3 jobs had not started" in said
    assert "will go on: pair (2 nodes), beside, merge" in said
    assert "unknown here" not in (await typed("workflow", "list"))[1]
    await typed("workflow", "stop", workflow, "--grace", "0")


async def test_jobs_that_cannot_be_read_are_counted(desk, monkeypatch):
    async with desk.running() as controller:
        workflow = await begun(controller)
    lose(desk)
    async with desk.running() as controller:
        monkeypatch.setattr("agentless.controller.workflows.recovery.unpack", lambda _: None)
        for _ in range(2):
            (view,) = await recovered(controller) if not controller.tasks.live else await offered(controller)
            assert (view.id, view.jobs, view.unread, view.signed) == (workflow, (), 3, True)
        monkeypatch.undo()
        (view,) = await offered(controller)
        assert view.unread == 0
        await go_on(controller, view)
        monkeypatch.setattr("agentless.controller.workflows.recovery.unpack", lambda _: None)
        assert await offered(controller) == []


async def offered(controller):
    return await controller.workflow_recovery.offer(me(controller))


async def test_short_workflows_that_have_ended_do_not_hide_one_that_runs(desk, monkeypatch):
    monkeypatch.setattr(recovery, "_READ", 2)
    async with desk.running() as controller:
        await begun(controller, "jobs: {a: {command: sleep 600, node: n1}, b: {command: 'true', requires: a}}")
        two = "jobs: {x: {command: 'true', node: n1}, y: {command: 'true', node: n1, requires: x}}"
        one = "jobs: {x: {command: 'false', node: n1}, y: {command: 'true', node: n1, requires: x}}"
        for text in (two, one, one):  # of the last two, y never begins
            await ended(controller, await run(controller, text))
        await begun(controller, "jobs: {a: {command: sleep 600, node: n1}}")
        await begun(controller, "jobs: {a: {command: sleep 600, node: n1}}")
    lose(desk)
    async with desk.running() as controller:
        assert {"b": "goes_on"} in decisions(await recovered(controller))


@pytest.fixture
def full(monkeypatch):
    """What makes the disk of the record full; and what gives it space again."""
    real = os.open

    def refuse(path, flags, *args, **kwargs):
        if "stopped-" in str(path) and flags & os.O_APPEND:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, flags, *args, **kwargs)

    return (lambda: monkeypatch.setattr(os, "open", refuse)), (lambda: monkeypatch.setattr(os, "open", real))


async def test_a_waiting_job_is_stopped_only_once_that_is_recorded(desk, full):
    fill, empty = full
    text = "jobs: {a: {command: sleep 600, stop_grace: 0}, b: {command: 'true', requires: [{a: ended}]}}"
    async with desk.running() as controller:
        workflow = await begun(controller, text)
        jobs = {each.job: each.task.id for each in controller.workflows.show(workflow, me(controller)).jobs}
        fill()
        with pytest.raises(StateError, match=r"No space left on device; task .* does not start, and ends when"):
            await controller.stops.stop(jobs["b"], "stop", by=me(controller))
        await controller.stops.stop(jobs["a"], "kill", by=me(controller))  # what runs is stopped all the same
        assert states(controller, workflow) == {"a": "killed", "b": "blocked"}
        empty()
        controller.reconciler.retry()
        desk.clock.ahead = 60
        controller.deadlines.tick()
        await until(lambda: states(controller, workflow)["b"] == "cancelled")
        assert controller.workflow_proof.stopped() == set(jobs.values())
    lose(desk)
    async with desk.running() as controller:
        assert await recovered(controller) == []


@pytest.mark.parametrize(("grace", "decision"), [(0, "goes_on"), pytest.param(600, "ask", marks=pytest.mark.slow)])
async def test_a_job_that_gives_way_lets_others_go_on_only_once_it_runs_again(desk, grace, decision):
    """Its container may end with 0 because of the signal. That is not the end of the job."""
    text = (
        f"jobs: {{a: {{command: sleep 600, stop_grace: {grace}, preemptible: true}}, b: {{command: ls, requires: a}}}}"
    )
    async with desk.running() as controller:
        workflow = await begun(controller, text)
        task = controller.tasks.live[controller.workflows.show(workflow, me(controller)).jobs[0].task.id]
        if grace:
            for link in controller.nodes.links.values():
                link.engines.runtime.signal = dies
            with pytest.raises(RuntimeError):
                await controller.stops.preempt([task], "for the test")
        else:
            await controller.stops.preempt([task], "for the test")
            await until(lambda: states(controller, workflow)["a"] == "running")
    lose(desk)
    async with desk.running() as controller:
        assert decisions(await recovered(controller)) == [{"b": decision}]


async def test_reading_labels_of_others_does_not_hold_up_the_controller(desk, monkeypatch):
    async with desk.running() as controller:
        await begun(controller)
    lose(desk)
    threads = set()

    def noted(work):
        def seen(*args):
            threads.add(threading.current_thread())
            return work(*args)

        return seen

    for name in ("parse_head", "unpack", "candidates", "jobs_left"):
        monkeypatch.setattr(recovery, name, noted(getattr(recovery, name)))
    async with desk.running() as controller:
        assert await recovered(controller)
    assert threads
    assert threading.main_thread() not in threads
