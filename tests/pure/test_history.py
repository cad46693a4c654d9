"""What has ended, found again by id, name, batch and age, however much of it there is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from agentless.errors import StateError
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import new_task_id
from agentless.stores.records.history import History
from tests.pure.build import NOW, spec, task

MANY = 20_000


def ended(name: str, **fields: object) -> Task:
    return task(name, state="ended", **fields)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    opened = History(tmp_path / "history.sqlite")
    yield opened
    opened.close()


def ids(tasks: list[Task]) -> list[str]:
    return [found.id for found in tasks]


def test_what_is_kept_comes_back_as_it_was_after_a_restart(tmp_path: Path) -> None:
    kept = ended("t1", spec=spec("echo", "é\n", env={"A": "1"}, name="run"), stop="kill")
    first = History(tmp_path / "h")
    first.add(kept)
    first.close()
    assert History(tmp_path / "h").find("t1") == [kept]


def test_a_task_is_found_by_the_beginning_of_its_id_and_by_its_whole_name(history: History) -> None:
    for name in ("ab1", "ab2", "b1"):
        history.add(ended(name, spec=spec(name="ab" if name == "b1" else "train")))
    assert ids(history.find("ab")) == ["b1", "ab2", "ab1"]
    assert ids(history.find("ab2")) == ["ab2"]
    assert ids(history.find("train")) == ["ab2", "ab1"]
    assert ids(history.find("trai")) == []
    assert ids(history.find("AB")) == []


@pytest.mark.parametrize("reference", ["%", "_", "a%", "' OR 1=1 --", "zz"])
def test_nothing_in_a_reference_is_syntax(history: History, reference: str) -> None:
    history.add(ended("ab1"))
    assert history.find(reference) == []


def test_no_more_are_found_than_asked_for_and_they_are_the_newest(history: History) -> None:
    for n in range(30):
        history.add(ended(f"a{n:02}", spec=spec(name="train")))
    assert ids(history.find("a")) == [f"a{n:02}" for n in range(29, 9, -1)]
    assert ids(history.find("train", limit=2)) == ["a29", "a28"]
    assert ids(history.newest(3)) == ["a29", "a28", "a27"]


def test_the_same_task_again_replaces_itself(history: History) -> None:
    history.add(ended("t1", owner="first"))
    history.add(ended("t1", owner="second"))
    assert [found.owner for found in history.find("t1")] == ["second"]


def test_a_batch_is_found_whole_in_the_order_of_its_submit(history: History) -> None:
    for name, batch in (("b3", "b2"), ("b2", "b2"), ("a9", "b2"), ("c1", "c1")):
        history.add(ended(name, batch=batch))
    assert ids(history.batch("b2")) == ["a9", "b2", "b3"]
    assert history.batch("none") == []


def test_a_removed_task_is_gone_and_its_events_stay(history: History) -> None:
    history.add(ended("t1"))
    history.record(NOW, "t1", b"{}")
    history.remove(["t1"])
    history.remove(["t1"])
    assert history.find("t1") == []
    assert [event for _, event in history.events(0, -1, "t1")] == [b"{}"]


def test_a_task_whose_removal_cannot_be_told_stays(history: History) -> None:
    history.add(ended("t1"))
    with pytest.raises(StateError):
        history.remove(["t1"], [(NOW, "t1", object())])
    assert history.has("t1")


def test_events_of_a_task_come_back_in_the_order_they_happened(history: History) -> None:
    """The clock may go back; the order does not."""
    for n, at in enumerate([NOW, NOW - 60, NOW + 60]):
        history.record(at, "t1", str(n).encode())
        history.record(at, "t2", b"other")
    assert [event for _, event in history.events(0, -1, "t1")] == [b"0", b"1", b"2"]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """Very many tasks: every third is called `train`, four make a batch."""
    opened = History(tmp_path_factory.mktemp("full") / "history.sqlite")
    sample = ended("x", spec=spec(name="NAME"))
    opened.add(sample)
    (document,) = opened._db.execute("SELECT document FROM tasks").fetchone()
    opened.remove("x")
    rows, last = [], ""
    for n in range(MANY):
        last = new_task_id(NOW + n / 10, last)
        batch = last if n % 4 == 0 else rows[n - n % 4][0]
        rows.append((last, "train" if n % 3 == 0 else None, "me", batch, document))
    with opened._db:
        opened._db.execute("BEGIN")
        opened._db.executemany("INSERT INTO tasks VALUES (?, ?, ?, ?, ?)", rows)
    yield opened
    opened.close()


def steps(history: History, ask: str, *words: object) -> int:
    """How much SQLite works for a question, in thousands of its virtual machine's instructions."""
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1

    history._db.set_progress_handler(tick, 1000)
    getattr(history, ask)(*words)
    history._db.set_progress_handler(None, 0)
    return count


@pytest.mark.parametrize("reference", ["", "1", "train", "nothing", "whole id"])
def test_a_task_is_found_among_very_many_without_looking_at_them_all(full: History, reference: str) -> None:
    (whole_id,) = full._db.execute("SELECT id FROM tasks LIMIT 1 OFFSET 500").fetchone()
    assert steps(full, "find", whole_id if reference == "whole id" else reference) < 3


def test_the_newest_and_a_batch_are_found_without_looking_at_all(full: History) -> None:
    (batch,) = full._db.execute("SELECT batch FROM tasks LIMIT 1 OFFSET 500").fetchone()
    assert len(full.batch(batch)) == 4
    assert steps(full, "batch", batch) < 3
    assert steps(full, "newest", 20) < 3


@pytest.mark.parametrize("content", [b"this is no database, it is longer than a header of SQLite would be" * 10])
def test_a_file_of_something_else_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "h").write_bytes(content)
    with pytest.raises(StateError, match="make it readable or move it away"):
        History(tmp_path / "h")


def test_a_history_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "h") as db:
        db.execute("PRAGMA user_version = 3")
    with pytest.raises(StateError, match="from a newer agentless; upgrade"):
        History(tmp_path / "h")


def test_a_history_of_the_first_version_says_what_its_tasks_needed(tmp_path: Path) -> None:
    old = orjson.loads((Path(__file__).parent / "data" / "state" / "v1.json").read_bytes())["tasks"]["t1"]
    old["status"] = {"state": "completed", "ended_at": NOW, "exit_code": 0}
    with sqlite3.connect(tmp_path / "h") as db:
        db.execute("CREATE TABLE tasks (id TEXT PRIMARY KEY, name TEXT, owner TEXT, batch TEXT, document BLOB)")
        db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL, task TEXT, document BLOB)")
        db.execute("INSERT INTO tasks VALUES ('t1', NULL, 'me@here', 't1', ?)", (orjson.dumps(old),))
        db.execute("PRAGMA user_version = 1")
    db.close()
    history = History(tmp_path / "h")
    found = history.get("t1")
    history.close()
    assert found is not None
    assert (str(found.spec.needs), found.state) == ("node1:0::0,1", "completed")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot use the history"):
        History(tmp_path / "nowhere" / "h")


def test_a_damaged_task_is_an_error_with_a_sentence(history: History) -> None:
    history.add(ended("t1"))
    history._db.execute("UPDATE tasks SET document = '{}'")
    with pytest.raises(StateError, match="the history contains a damaged task"):
        history.find("t1")


def test_a_history_that_breaks_while_it_is_open_is_an_error_with_a_sentence(history: History) -> None:
    history._db.execute("DROP TABLE tasks")
    history._db.execute("DROP TABLE events")
    for use in (
        lambda: history.find("t1"),
        lambda: history.events(0, -1, "t1"),
        lambda: history.add(ended("t1")),
        lambda: history.record(NOW, "t1", b""),
    ):
        with pytest.raises(StateError, match=r"cannot (read|write) the history"):
            use()


def test_a_task_that_has_a_name_of_another_is_its_own(history: History) -> None:
    history.add(ended("t1", spec=spec(name="t2")))
    history.add(ended("t2"))
    assert ids(history.find("t2")) == ["t2", "t1"]
    assert replace(history.find("t1")[0], spec=ended("t1").spec) == ended("t1")


def test_events_are_read_on_from_where_one_was(history: History) -> None:
    for n in range(5):
        history.record(NOW + n, f"t{n % 2}", str(n).encode())
    numbers = [number for number, _ in history.events(0, -1)]
    assert numbers == sorted(numbers)
    assert [event for _, event in history.events(numbers[1], -1)] == [b"2", b"3", b"4"]
    assert [event for _, event in history.events(numbers[0], 2, "t0")] == [b"2", b"4"]


@pytest.mark.parametrize(
    ("count", "since", "task", "expected"),
    [
        (2, 0.0, None, [b"3", b"4"]),
        (9, NOW + 2, None, [b"2", b"3", b"4"]),
        (0, 0.0, None, []),
        (9, NOW + 9, None, []),
        (2, 0.0, "t0", [b"2", b"4"]),
        (9, 0.0, "t9", []),
    ],
)
def test_the_last_events_are_by_number_and_by_time(
    history: History, count: int, since: float, task: str | None, expected: list[bytes]
) -> None:
    for n in range(5):
        history.record(NOW + n, f"t{n % 2}", str(n).encode())
    assert [event for _, event in history.events(history.last_events(count, since, task), -1, task)] == expected


def test_an_ended_task_and_its_last_event_are_kept_together_or_not_at_all(history: History) -> None:
    history.add(ended("t1"), [(NOW, "t1", b"first"), (NOW, "t1", b"last")])
    assert [event for _, event in history.events(0, -1, "t1")] == [b"first", b"last"]
    with pytest.raises(StateError):
        history.add(ended("t2"), [(NOW, "t2", b"first"), (NOW, "t2", None)])  # type: ignore[list-item]
    assert not history.has("t2")
    assert history.events(0, -1, "t2") == []
