"""The disk under the kept logs: its budget, its end, and crashes while it is written."""

from __future__ import annotations

import itertools
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless.errors import StateError
from agentless.stores.files.logs import LogStore
from tests.pure.test_log_store import keep, text


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return LogStore(tmp_path / "logs")


# ---------------------------------------------------------------------- the budget


def test_the_budget_takes_the_oldest_first_and_leaves_a_word(store: LogStore) -> None:
    for task in ("t3", "t1", "t2"):
        keep(store, task, [(1, bytes(10_000))])
    store.shrink(30_000)
    assert [(task, store.state(task)) for task in ("t3", "t1", "t2")] == [
        ("t3", "given up"),
        ("t1", "whole"),
        ("t2", "whole"),
    ]
    assert "t3" in store


def test_the_order_and_the_gaps_outlive_a_restart(tmp_path: Path) -> None:
    first = LogStore(tmp_path)
    for n, task in enumerate(("t3", "t1", "t2")):
        keep(first, task, [(1, b"x")])
        os.utime(next(tmp_path.glob(f"{task}*")), ns=(n, n))
    first.shrink(10_000)
    again = LogStore(tmp_path)
    again.shrink(5_000)
    assert [again.state(task) for task in ("t3", "t1", "t2")] == ["given up", "given up", "whole"]


def test_the_newest_log_stays_even_if_it_is_alone_too_large(store: LogStore) -> None:
    for task in ("t1", "t2"):
        keep(store, task, [(1, bytes(10_000))])
    store.shrink(1)
    assert [store.state(task) for task in ("t1", "t2")] == ["given up", "whole"]


def test_after_the_budget_was_passed_a_tenth_of_it_is_free(store: LogStore) -> None:
    for n in range(11):
        keep(store, f"t{n}", [(1, b"x")])
        store.shrink(10 * 4096)
    assert [store.state(f"t{n}") for n in range(11)] == ["given up"] * 2 + ["whole"] * 9


def test_small_logs_count_as_what_they_take_on_the_disk(store: LogStore) -> None:
    for n in range(10):
        keep(store, f"t{n}", [(1, b"x")])
    store.shrink(24_000)
    assert [store.state(f"t{n}") for n in range(10)] == ["given up"] * 5 + ["whole"] * 5


def test_a_log_that_was_given_up_may_be_kept_again(store: LogStore) -> None:
    keep(store, "t1", [(1, b"x")])
    keep(store, "t2", [(1, b"x")])
    store.shrink(1)
    store.remove("t1")
    keep(store, "t1", [(1, b"y")])
    assert (store.state("t1"), text(store.read("t1"))) == ("whole", b"y")


def test_who_reads_a_log_that_is_given_up_reads_it_to_its_end(store: LogStore) -> None:
    keep(store, "t1", [(1, b"x"), (2, bytes(500_000))])
    keep(store, "t2", [])
    reading = store.read("t1")
    first = next(reading)
    store.shrink(1)
    assert [first, *reading] == [(1, b"x"), (2, bytes(500_000))]


# ---------------------------------------------------------------------- what may go wrong


def test_a_log_is_on_the_disk_before_it_is_in_its_place(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    real = {name: getattr(os, name) for name in ("fsync", "replace")}
    for name, call in real.items():
        monkeypatch.setattr(os, name, lambda *words, name=name, call=call: (done.append(name), call(*words))[1])
    keep(store, "t1", [(1, b"x")])
    assert done == ["fsync", "replace", "fsync"]


class Crash(BaseException):
    """The process ends here."""


STEPS = ("open", "fsync", "replace", "unlink")


def test_a_crash_at_any_step_leaves_the_log_before_or_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = []
    for at in itertools.count():
        folder = tmp_path / str(at)
        keep(LogStore(folder), "t1", [(1, b"old")])
        with monkeypatch.context() as patch:
            for name, step in _crashing(at):
                patch.setattr(os, name, step)
            try:
                keep(LogStore(folder), "t1", [(1, b"new")])
                crashed = False
            except Crash:
                crashed = True
        again = LogStore(folder)
        reached.append(text(again.read("t1")))
        assert [path.suffix for path in folder.iterdir()] == [".log"]
        if not crashed:
            break
    assert (reached[0], reached[-1], set(reached)) == (b"old", b"new", {b"old", b"new"})
    assert len(reached) > 4


def _crashing(at: int) -> Iterator[tuple[str, object]]:
    """The calls to the file system, of which number `at` and all after it are never made."""
    calls = itertools.count()

    def wrap(real: object) -> object:
        def call(*words: object, **more: object) -> object:
            if next(calls) >= at:
                raise Crash
            return real(*words, **more)  # type: ignore[operator]

        return call

    return ((name, wrap(getattr(os, name))) for name in STEPS)


@pytest.fixture
def no_room() -> Iterator[None]:
    """No file can grow beyond 100 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, old)


@pytest.mark.parametrize("size", [200_000, 99_996], ids=["in a write", "in the last flush"])
def test_a_log_for_which_there_is_no_room_is_told_and_leaves_nothing(tmp_path: Path, no_room: None, size: int) -> None:
    store = LogStore(tmp_path)
    keep(store, "t1", [(1, b"old")])
    with pytest.raises(StateError, match="cannot keep"):
        keep(store, "t1", [(1, bytes(size))])
    assert [path.name for path in tmp_path.iterdir()] == ["t1.log"]
    assert text(store.read("t1")) == b"old"


@pytest.mark.parametrize("size", range(1, 23))
def test_a_torn_file_is_told_and_not_taken_for_a_shorter_log(tmp_path: Path, size: int) -> None:
    store = LogStore(tmp_path)
    keep(store, "t1", [(1, b"four"), (2, b"four")])
    os.truncate(tmp_path / "t1.log", size)
    with pytest.raises(StateError, match="the kept log of task t1 is damaged; to remove it, run: agentless rm t1"):
        list(store.read("t1"))


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    with pytest.raises(StateError, match=r"cannot use the folder .*logs"):
        LogStore(tmp_path / "logs")
