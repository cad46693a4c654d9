"""Somebody at a terminal is asked before what cannot be undone, and sees what takes long."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentless.client.client import Client
from agentless.demo.fleet import NodePlan
from tests.fleet.inhabited import forget_tasks, inhabited
from tests.keyboard import Keyboard


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with inhabited(tmp_path_factory.mktemp("fleet"), [NodePlan("n1", 2)]):
        yield Client.found(None)


@pytest.fixture
def at_terminal(client: Client) -> Iterator[Any]:
    boards: list[Keyboard] = []

    def begin(*words: str) -> Keyboard:
        argv = [sys.executable, "-m", "agentless", *words]
        boards.append(Keyboard(argv, {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}))
        return boards[-1]

    yield begin
    for each in boards:
        each.close()
    forget_tasks(client)


def submitted(client: Client, *command: str) -> str:
    (start,) = client.submit({"spec": {"command": list(command)}, "targets": ["1x"]})
    return str(start["task"]["id"])


def test_rm_says_what_it_removes_and_asks(client: Client, at_terminal: Any) -> None:
    task = submitted(client, "true")
    client.wait(task)
    first = at_terminal("rm", task)
    first.sees(f"Remove task {task}, with containers, logs and records [y/N]:".encode())
    first.type(b"n\n")
    assert first.ended() == 3
    assert client.get(f"/v1/tasks/{task}")["id"] == task
    second = at_terminal("rm", task)
    second.sees(b"[y/N]:")
    second.type(b"y\n")
    second.sees(b"removed")
    assert second.ended() == 0


@pytest.mark.parametrize("option", ["--yes", "--force"])
def test_whoever_says_yes_is_not_asked(client: Client, at_terminal: Any, option: str) -> None:
    task = submitted(client, "true")
    client.wait(task)
    board = at_terminal("rm", option, task)
    assert board.ended() == 0
    board.sees(b"removed")
    assert b"[y/N]" not in board.output


def test_a_batch_is_killed_after_a_question_and_one_task_without(client: Client, at_terminal: Any) -> None:
    task = submitted(client, "sleep", "600")
    asked = at_terminal("kill", "--batch", task)
    asked.sees(b"Kill 1 task of batch")
    asked.type(b"\n")
    assert asked.ended() == 3
    assert client.get(f"/v1/tasks/{task}")["state"] == "running"
    assert at_terminal("kill", task).ended() == 0


def test_what_takes_long_is_shown_until_it_is_over(client: Client, at_terminal: Any) -> None:
    task = submitted(client, "sleep", "600")
    board = at_terminal("wait", task)
    board.sees(f"Waiting for task {task}".encode())
    client.post(f"/v1/tasks/{task}/kill")
    assert board.ended() == 137
    board.sees(b"\x1b[2K", board.output.rindex(b"Waiting for task"))


def test_whoever_follows_a_workflow_is_told_once_how_it_ended(client: Client, at_terminal: Any, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("jobs: {a: {command: echo hi}, b: {command: 'true', requires: a}}")
    board = at_terminal("workflow", "run", str(tmp_path / "w.yaml"), "--follow")
    assert board.ended() == 0
    board.sees(b"a | hi")
    assert board.output.count(b"2 of 2 done") == 1
