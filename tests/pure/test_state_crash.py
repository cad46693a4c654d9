"""A crash at any moment leaves a state file that loads, with all that was acknowledged in it."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentless.model.tasks.task import Task
from agentless.stores.state.tinydb import TaskStore
from tests.pure.build import task


def saved(file: Path, *tasks: Task) -> TaskStore:
    store = TaskStore(file)
    store.save(*tasks)
    return store


class Crash(BaseException):
    """The process ends here."""


STEPS = ("open", "fsync", "unlink", "link", "replace")


def crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> list[str]:
    """Let the process end before its call number `at` to the file system."""
    done: list[str] = []

    def wrap(name: str) -> Any:
        real = getattr(os, name)

        def call(*words: Any, **more: Any) -> Any:
            if len(done) == at:
                raise Crash
            done.append(name)
            return real(*words, **more)

        return call

    for name in STEPS:
        monkeypatch.setattr(os, name, wrap(name))
    return done


@pytest.mark.parametrize("torn", [False, True], ids=["whole before", "torn before"])
def test_a_crash_at_any_step_of_a_write_leaves_the_state_before_or_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    for at in range(100):
        file = tmp_path / str(at) / "state.json"
        file.parent.mkdir()
        saved(file, task("t1")).save(task("t2"))
        if torn:
            file.write_bytes(b'{"meta"')
        store = TaskStore(file)
        before = list(store.load())
        with monkeypatch.context() as patch:
            done = crashing(patch, at)
            try:
                store.save(task("t3"))
            except Crash:
                pass
            else:
                break
        assert list(TaskStore(file).load()) in (before, [*before, "t3"]), done
        assert (list(TaskStore(file).load()) == [*before, "t3"]) == (done.count("replace") == (1 if torn else 2)), done
    assert at >= 5


def test_a_process_that_is_killed_while_it_writes_leaves_what_it_has_acknowledged(tmp_path: Path) -> None:
    file, tasks = tmp_path / "state.json", [task(f"t{n}") for n in range(20)]
    saved(file, *tasks)
    chance = random.Random(7)
    for _ in range(30):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _save_for_ever(file, tasks, writing)
        os.close(writing)
        first = os.read(reading, 4)  # it is under way
        time.sleep(chance.random() / 100)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        acknowledged = first
        while part := os.read(reading, 65536):
            acknowledged += part
        os.close(reading)
        count = len(acknowledged) // 4
        opened = TaskStore(file)
        assert opened.warning is None
        assert count <= float(opened.load()["t0"].created_at) <= count + 1


def _save_for_ever(file: Path, tasks: list[Task], acknowledge: int) -> None:
    try:
        store = TaskStore(file)
        count = 0
        while True:
            count += 1
            store.save(replace(tasks[0], created_at=float(count)))
            os.write(acknowledge, b"save")
    finally:
        os._exit(1)
