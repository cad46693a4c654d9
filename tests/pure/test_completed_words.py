"""What Tab offers, by the answers of a controller."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agentless.cli import complete

TASKS = [
    {"id": "2mxf", "name": "train", "state": "running", "target": "1x", "command": ["a"]},
    {"id": "2mxg", "name": "x; rm -rf /", "state": "running", "target": "1x", "command": ["b"]},
]
WORKFLOWS = [
    {"id": "2mzz", "name": "nightly", "state": "running", "ended_at": None},
    {"id": "2mab", "name": "nightly", "state": "failed", "ended_at": "2026-05-01T11:22:00.000Z"},
]
SHOWN = {
    "jobs": [{"job": name, "task": {"state": "running"}} for name in ("train", "train", "evaluate", "$(reboot)")],
}


@pytest.fixture(autouse=True)
def controller(monkeypatch):
    answers = {"/v1/tasks": TASKS, "/v1/workflows": WORKFLOWS, "/v1/workflows/2mzz": SHOWN}
    monkeypatch.setattr(complete, "_answer", lambda path, **_: answers.get(path))


def words(found):
    return [word for word, _ in found]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", ["2mxf", "train", "2mxg"]),
        ("2mx", ["2mxf", "2mxg"]),
        ("2mxf,", ["2mxf,train", "2mxf,2mxg"]),
        ("2mxf:failed,tr", ["2mxf:failed,train"]),
        ("2mxf:", ["2mxf:completed", "2mxf:failed", "2mxf:ended"]),
        ("2mxg,2mxf:f", ["2mxg,2mxf:failed"]),
        ("nope,9", []),
    ],
)
def test_what_a_task_waits_for_is_completed_after_a_comma_and_a_colon(typed, offered):
    assert words(complete.required(typed)) == offered


def test_workflows_are_offered_by_id_and_name_and_to_stop_only_live_ones():
    assert words(complete.workflows("")) == ["2mzz", "2mab", "nightly"]
    assert words(complete.live_workflows("2")) == ["2mzz"]


@pytest.mark.parametrize(
    ("params", "args", "typed", "offered"),
    [
        ({"workflow": "2mzz"}, [], "", ["train", "evaluate"]),
        ({"workflow": "2mzz", "jobs": ["train"]}, [], "", ["evaluate"]),
        ({"workflow": "2mzz"}, [], "ev", ["evaluate"]),
        ({"workflow": "2gone"}, [], "", []),
        ({"workflow": "../x"}, [], "", []),
        ({}, [], "", []),
        ({}, ["2mzz"], "ev", ["evaluate"]),
    ],
)
def test_jobs_are_those_of_the_workflow_that_was_typed_before(params, args, typed, offered):
    assert words(complete.jobs(SimpleNamespace(params=params, args=args), typed)) == offered
