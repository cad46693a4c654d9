"""Logs that outlive their containers: every byte of one that is kept whole, and of a longer one what was promised."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.formats.frames import NOTE, Frame
from agentless.stores.files.logs import LogStore

chunks = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=300)), max_size=12)


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return LogStore(tmp_path / "logs")


def keep(store: LogStore, task: str, frames: Iterable[Frame], cap: int = 1 << 20) -> None:
    """Keep a log as the keeper does, here with the end of a long one at hand."""
    whole = list(frames)
    with store.writer(task, cap) as log:
        for stream, data in whole:
            log.add(stream, data)
            if log.full:
                break
        if log.full:
            log.cut("cut")
            rest = {fd: streams(whole)[fd][log.head[fd] :] for fd in (1, 2)}
            log.put(1, rest[1][len(rest[1]) - min(len(rest[1]), log.tail_bytes // 2) :])
            log.put(2, rest[2][len(rest[2]) - min(len(rest[2]), log.tail_bytes // 2) :])
        log.finish()
        log.commit()


def streams(frames: Iterable[Frame]) -> dict[int, bytes]:
    found = {1: b"", 2: b"", NOTE: b""}
    for stream, data in frames:
        found[stream] += data
    return found


def text(frames: Iterable[Frame]) -> bytes:
    return b"".join(data for _, data in frames)


# ---------------------------------------------------------------------- what is kept


@given(chunks)
@settings(max_examples=50)
def test_a_log_within_the_cap_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, frames: list[Frame]
) -> None:
    store = LogStore(tmp_path_factory.mktemp("logs"))
    keep(store, "t1", frames, cap=max(1, len(text(frames))))
    assert store.state("t1") == "whole"
    assert text(store.read("t1")) == text(frames)
    assert streams(store.read("t1")) == streams(frames)


@given(frames=chunks.filter(lambda frames: len(text(frames)) > 1), data=st.data())
@settings(max_examples=80)
def test_of_a_longer_log_the_first_half_of_the_cap_is_its_beginning_however_it_came(
    tmp_path_factory: pytest.TempPathFactory, frames: list[Frame], data: st.DataObject
) -> None:
    whole = text(frames)
    cap = data.draw(st.integers(1, len(whole) - 1))
    folder = tmp_path_factory.mktemp("logs")
    store = LogStore(folder)
    with store.writer("t1", cap) as log:
        for stream, part in frames:
            if not log.full:
                log.add(stream, part)
        assert log.full
        assert (sum(log.head.values()), log.tail_bytes) == (cap // 2, cap - cap // 2)
        log.cut("cut")
        log.finish()
        log.commit()
    *head, last = store.read("t1")
    assert (text(head), last) == (whole[: cap // 2], (NOTE, b"cut"))
    assert {fd: len(streams(head)[fd]) for fd in (1, 2)} == log.head
    assert store.state("t1") == "cut"
    assert (folder / "t1.log").stat().st_size == sum(5 + len(part) for _, part in [*head, last]) + 5


def test_a_log_without_a_word_is_a_log(store: LogStore) -> None:
    keep(store, "t1", [])
    assert (store.state("t1"), list(store.read("t1"))) == ("whole", [])


def test_a_later_log_of_the_same_task_replaces_the_first(store: LogStore) -> None:
    for data in (b"first", b"second"):
        keep(store, "t1", [(1, data)])
    assert text(store.read("t1")) == b"second"


def test_what_is_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    keep(LogStore(tmp_path), "t1", [(1, b"x")])
    again = LogStore(tmp_path)
    assert ("t1" in again, "t2" in again, again.state("t2")) == (True, False, None)
    assert text(again.read("t1")) == b"x"


def test_a_removed_log_never_was_there(store: LogStore) -> None:
    keep(store, "t1", [(1, b"x")])
    store.remove("t1")
    store.remove("t1")
    assert ("t1" in store, store.state("t1")) == (False, None)


def test_only_the_user_may_look(tmp_path: Path) -> None:
    keep(LogStore(tmp_path / "logs"), "t1", [(1, b"x")])
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "logs", *(tmp_path / "logs").iterdir())]
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize("task", ["../../t", "..", "a/b", "a\nb", "é", ".new"])
def test_no_id_leads_out_of_the_folder(tmp_path: Path, task: str) -> None:
    folder = tmp_path / "a" / "b" / "logs"
    keep(LogStore(folder), task, [(1, b"x")])
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != folder] == []
    assert text(LogStore(folder).read(task)) == b"x"


# ---------------------------------------------------------------------- the last lines


LINES = [(1, b"a1\na"), (2, b"b1\n"), (1, b"2\n"), (2, b"b2\nb3")]


@pytest.mark.parametrize(
    ("count", "out", "err"),
    [
        (0, b"", b""),
        (1, b"", b"b3"),
        (2, b"", b"b2\nb3"),
        (3, b"a2\n", b"b2\nb3"),
        (4, b"a2\n", b"b1\nb2\nb3"),
        (5, b"a1\na2\n", b"b1\nb2\nb3"),
        (99, b"a1\na2\n", b"b1\nb2\nb3"),
    ],
)
def test_the_last_lines_are_counted_over_both_streams_by_their_ends(
    store: LogStore, count: int, out: bytes, err: bytes
) -> None:
    keep(store, "t1", LINES)
    found = streams(store.read("t1", count))
    assert (found[1], found[2]) == (out, err)


@given(frames=chunks, count=st.integers(0, 9))
@settings(max_examples=50)
def test_the_last_lines_are_the_same_however_they_came(
    tmp_path_factory: pytest.TempPathFactory, frames: list[Frame], count: int
) -> None:
    """Of one stream: where two meet, the order is that of their coming."""
    whole = streams(frames)[1]
    store = LogStore(tmp_path_factory.mktemp("logs"))
    keep(store, "t1", [frame for frame in frames if frame[0] == 1])
    lines = re.findall(rb"[^\n]*\n|[^\n]+", whole)
    assert text(store.read("t1", count)) == b"".join(lines[max(0, len(lines) - count) :])


def test_a_very_long_line_counts_as_docker_counts_it(store: LogStore) -> None:
    """In pieces of 16 KiB."""
    keep(store, "t1", [(1, b"x" * 40_000 + b"\n" + b"y" * 16_384 + b"\n")])
    found = [len(text(store.read("t1", count))) for count in range(7)]
    assert found == [0, 1, 16_385, 16_385 + 7_233, 16_385 + 7_233 + 16_384, 56_386, 56_386]


def test_of_a_log_that_was_cut_the_last_lines_of_each_stream_are_given(store: LogStore) -> None:
    with store.writer("t1", 8) as log:
        log.add(1, b"1\n2\n3\n4\n5\n")
        log.cut("cut")
        log.put(1, b"4\n5\n")
        log.put(2, b"x\n")
        log.finish()
        log.commit()
    assert list(store.read("t1", 1)) == [(1, b"5\n"), (2, b"x\n")]
    assert list(store.read("t1", 2)) == [(NOTE, b"cut"), (1, b"4\n5\n"), (2, b"x\n")]
    assert list(store.read("t1", 3)) == [(NOTE, b"cut"), (1, b"2\n4\n5\n"), (2, b"x\n")]
