"""Workflows in the dashboard: the list, the graph, and what can be done to them there."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from agentless.errors import NotFound
from agentless.tui.data.actions import Target, applies
from tests.fleet.eyes import Eyes
from tests.pure.test_dashboard_views import (
    HOSTILE,
    RECORDED,
    WORKFLOW,
    alone,  # noqa: F401 - a fixture for all
    over,
)

ENDED = {**WORKFLOW, "id": "2aaa", "name": "old", "state": "failed", "ended_at": WORKFLOW["created_at"]}


def copy(value: dict) -> dict:
    return json.loads(json.dumps(value))


def line(*workflows: dict) -> dict:
    return {**RECORDED, "workflows": [{**each, "jobs": []} for each in workflows]}


def answers(eyes: Eyes, workflow: dict) -> None:
    """The controller knows of nothing but this workflow."""

    def get(path: str, **_: object) -> dict:
        if path == f"/v1/workflows/{workflow['id']}":
            return workflow
        raise NotFound(f"no {path}")

    eyes.app.client.get = get


async def opened(eyes: Eyes, workflow: dict) -> None:
    """Open the graph; the controller answers with this workflow."""
    answers(eyes, workflow)
    await eyes.press("8", "enter")
    await eyes.see(lambda: "Loading" not in eyes.text)


def matrix(size: int) -> dict:
    """A workflow of which one job has this many tasks, one of them failed."""
    workflow = copy(WORKFLOW)
    first, other = workflow["jobs"][0], workflow["jobs"][1]
    failed = next(job["task"] for job in workflow["jobs"] if job["task"]["state"] == "failed")
    tasks = [
        {
            **other,
            "job": "train",
            "parameters": {"lr": str(at)},
            "task": {**(failed if at == 3 else other["task"]), "id": f"2m{at:03}"},
        }
        for at in range(size)
    ]
    return {**workflow, "jobs": [first, *tasks], "counts": dict(Counter(["completed"] * size + ["failed"]))}


async def test_workflows_that_have_not_ended_are_above_the_others_with_progress_and_owner():
    async with over(line(ENDED, WORKFLOW), (160, 30)) as eyes:
        await eyes.press("8")
        await eyes.see("4/14 done, 1 failed, 2 running", "OWNER", WORKFLOW["owner"], "nightly")
        rows = eyes.text.splitlines()
        assert [row.split()[0] for row in rows[3:5]] == [WORKFLOW["id"], "2aaa"]


async def test_an_empty_view_says_how_to_run_one():
    async with over(RECORDED) as eyes:
        await eyes.press("8")
        await eyes.see("No workflows. A workflow is", "agentless workflow run FILE")


async def test_the_graph_follows_its_tasks_and_opens_them():
    workflow = copy(WORKFLOW)
    async with over(line(workflow)) as eyes:
        await opened(eyes, workflow)
        await eyes.see("├─●    tokens", "waits for eval-small, eval-large")
        task = copy(next(job["task"] for job in workflow["jobs"] if job["job"] == "tokens"))
        eyes.app.incoming.take({"tasks": [{**task, "state": "completed", "ended_at": task["started_at"]}]})
        await eyes.see("├─✓    tokens")
        eyes.app.incoming.take({"tasks": [{**task, "id": f"{task['id']}-2", "attempt": 2, "state": "running"}]})
        await eyes.see("├─●    tokens")
        await eyes.press("down", "down", "enter")
        await eyes.see(f"{task['id']}-2", "workflow")


async def test_many_tasks_are_one_row_until_it_is_opened():
    async with over(line(matrix(50)), (80, 24)) as eyes:
        await opened(eyes, matrix(50))
        await eyes.see("✗  train ×50 ▸", "49 completed, 1 failed (failed: lr=3)")
        assert "✗   lr=3" not in eyes.text
        await eyes.press("down")
        assert eyes.app.target.task["state"] == "failed"
        await eyes.press("enter")
        await eyes.see("train ×50 ▾", "✗   lr=3", "✓   lr=4")
        await eyes.press("enter")
        await eyes.see(lambda: "✗   lr=3" not in eyes.text)


@pytest.mark.parametrize("sizes", [[(60, 20), (200, 60)], pytest.param([(80, 24), (120, 40)], marks=pytest.mark.slow)])
async def test_names_of_others_stay_in_their_lines(sizes):
    workflow = copy(WORKFLOW)
    workflow.update(name=HOSTILE, owner=HOSTILE)
    for job in workflow["jobs"]:
        job.update(job=f"{job['job']}{HOSTILE * 3}", parameters={HOSTILE: HOSTILE})
        job["task"].update(reason=HOSTILE, name=HOSTILE)
    async with over(line(workflow)) as eyes:
        await eyes.press("8")
        for size in sizes:
            await eyes.pilot.resize_terminal(*size)
            assert all(row.isprintable() for row in eyes.text.split("\n")), size
        await opened(eyes, workflow)
        for size in sizes:
            await eyes.pilot.resize_terminal(*size)
            await eyes.see("├─", lambda size=size: len(eyes.text.split("\n")) == size[1])
            assert all(row.isprintable() for row in eyes.text.split("\n")), size


async def test_keys_in_a_workflow_mean_the_whole_of_it():
    asked = []
    async with over(line(WORKFLOW)) as eyes:
        await opened(eyes, WORKFLOW)
        eyes.app.client.post = lambda path, body=None: asked.append((path, body)) or WORKFLOW
        await eyes.press("T")
        await eyes.see(f"Stop workflow {WORKFLOW['id']} (nightly)?", "Sends SIGTERM to those that run")
        await eyes.press("y")
        await eyes.see(lambda: asked)
        await eyes.press("R")
        await eyes.see(lambda: len(asked) == 2)
    path = f"/v1/workflows/{WORKFLOW['id']}"
    assert asked == [(f"{path}/stop", {}), (f"{path}/retry", {})]


async def test_a_read_only_dashboard_shows_a_workflow_and_changes_nothing():
    async with over(line(WORKFLOW), read_only=True) as eyes:
        await opened(eyes, WORKFLOW)
        await eyes.see("fetch", lambda: "Stop all" not in eyes.text and "Retry" not in eyes.text)


async def test_a_workflow_that_cannot_be_asked_for_says_why():
    async with over(line(WORKFLOW)) as eyes:
        await eyes.press("8", "enter")  # there is no controller
        await eyes.see("controller")
        await eyes.press("escape")
        await eyes.see("JOBS")


async def test_a_task_leads_to_its_workflow():
    task = copy(WORKFLOW["jobs"][2]["task"])
    async with over({**line(WORKFLOW), "tasks": [task]}) as eyes:
        answers(eyes, WORKFLOW)
        await eyes.press("4", "W")
        await eyes.see("Workflow", "├─●    tokens")


@pytest.mark.parametrize(
    ("act", "state", "counts", "offered"),
    [
        ("stop_workflow", None, {"running": 1}, True),
        ("stop_workflow", "ended", {"completed": 1}, False),
        ("retry_workflow", None, {"running": 1, "failed": 1}, True),
        ("retry_workflow", "ended", {"completed": 2}, False),
        ("remove_workflow", None, {"running": 1}, False),
        ("remove_workflow", "ended", {"completed": 1}, True),
        ("stop", None, {"running": 1}, False),
    ],
)
def test_what_is_offered_for_a_workflow(act, state, counts, offered):
    task = {**WORKFLOW["jobs"][2]["task"], "state": "running"}
    assert applies(act, Target(task, None, {**WORKFLOW, "ended_at": state, "counts": counts})) is offered


async def test_what_a_job_comes_after_stands_beside_how_far_it_is_however_wide_the_screen():
    async with over(line(WORKFLOW), (200, 30)) as eyes:
        await opened(eyes, WORKFLOW)
        await eyes.see("STATE")
        longest = next(row for row in eyes.text.splitlines() if "after split" in row)
        assert len(longest[: longest.index("after split")].rstrip()) + 2 == longest.index("after split")


async def test_what_the_list_has_no_room_for_is_in_the_title_of_the_graph():
    async with over(line(WORKFLOW), (80, 24)) as eyes:
        await eyes.press("8")
        await eyes.see("hidden columns: CREATED (press Enter for details)")
        await opened(eyes, WORKFLOW)
        await eyes.see("created 11-22 01:00")
