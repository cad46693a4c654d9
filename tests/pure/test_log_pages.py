"""Kept logs by lines: read from their files, also after another log took the place of one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from agentless.controller.tasks.logs.kept import AT_ONCE, KeptLogs
from agentless.errors import StateError
from agentless.formats.log_index import Found, Part
from agentless.stores.files.log_pages import LogIndexes
from agentless.stores.files.logs import LogStore


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return LogStore(tmp_path / "logs")


def keep(store: LogStore, task: str, *said: tuple[int, bytes], note: str = "") -> None:
    with store.writer(task, 1 << 20) as log:
        for stream, data in said:
            log.add(stream, data)
        if note:
            log.cut(note)
        log.finish()
        log.commit()


def texts(indexes: LogIndexes, task: str) -> list[bytes]:
    with indexes.open(task) as log:
        return [line for _, line in log.lines(Part(0, 100))[1]]


def test_lines_of_both_streams_are_in_the_order_of_their_ends(store):
    keep(store, "t1", (1, b"one\ntw"), (2, b"err\n"), (1, b"o\nthree"))
    assert texts(LogIndexes(store), "t1") == [b"one", b"err", b"two", b"three"]


def test_a_log_that_was_cut_says_so(store):
    keep(store, "t1", (1, b"one\n"), note="100 bytes of stdout omitted")
    with LogIndexes(store).open("t1") as log:
        assert log.is_cut
        assert log.lines(Part(0, 9))[1][-1] == (3, b"100 bytes of stdout omitted")


def test_a_log_that_replaces_another_is_indexed_again(store):
    indexes = LogIndexes(store)
    for text in (b"one\n", b"another one\n"):
        keep(store, "t1", (1, text))
        assert texts(indexes, "t1") == text.splitlines()


@pytest.mark.parametrize("end", [1, 3, 6])
def test_a_damaged_log_is_told_in_a_sentence(store, tmp_path, end):
    keep(store, "t1", (1, b"one\ntwo\n"))
    file = tmp_path / "logs" / "t1.log"
    file.write_bytes(file.read_bytes()[:-end])
    with pytest.raises(StateError, match="the kept log of task t1 is damaged; to remove it, run: agentless rm t1"):
        LogIndexes(store).open("t1")


def test_a_log_that_is_not_kept_is_told_in_a_sentence(store):
    with pytest.raises(StateError, match="cannot keep or read the log"):
        LogIndexes(store).open("t1")


async def test_few_logs_are_read_at_a_time_so_that_other_work_has_threads():
    """Who waits for an index to be made would have a thread of those that all others need, too."""
    inside, most, done = [], [], Event()

    @contextlib.contextmanager
    def opened(task: str) -> Iterator[object]:
        inside.append(task)
        most.append(len(inside))
        done.wait(30)
        inside.remove(task)
        yield SimpleNamespace(find=lambda *_, **__: Found(1, None))

    logs = SimpleNamespace(state=lambda _: "whole")
    lookup = SimpleNamespace(find=lambda task: SimpleNamespace(live=False, id=task))
    kept = KeptLogs(None, lookup, logs, SimpleNamespace(open=opened))
    asking = [asyncio.create_task(kept.find(f"t{at}", "x", 0, back=False, only=None)) for at in range(9)]
    await asyncio.wait_for(asyncio.to_thread(lambda: "other work"), 30)
    done.set()
    assert [(await each).line for each in asking] == [1] * 9
    assert max(most) <= AT_ONCE
