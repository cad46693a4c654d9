"""Tables: on a terminal no line is too long and nothing that decides is cut; a pipe gets whole lines."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.cli.table import Column, show, width

COLUMNS = [
    Column("ID", lambda row: row["id"]),
    Column("COUNT", lambda row: str(row["count"] or ""), right=True),
    Column("COMMAND", lambda row: row["command"], flexible=True),
    Column("REASON", lambda row: row["reason"], wraps=True),
]
LONG = "GPU 0 is allocated: held by task 2mz3s6sn6v1 of ann@laptop, and nobody knows until when"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def row(name: str = "2mz3s6sn6v1", count: int = 1, command: str = "sleep 60", reason: str = "") -> dict[str, Any]:
    return {"id": name, "count": count, "command": command, "reason": reason}


def printed(rows: Sequence[dict[str, Any]], out: io.StringIO, wide: int = 80) -> list[str]:
    with mock.patch.dict(os.environ, {"COLUMNS": str(wide), "NO_COLOR": "1"}), contextlib.redirect_stdout(out):
        show(COLUMNS, rows)
    return out.getvalue().splitlines()


def on_terminal(*rows: dict[str, Any], wide: int = 80) -> list[str]:
    return printed(rows, Terminal(), wide)


def in_pipe(*rows: dict[str, Any]) -> list[str]:
    return printed(rows, io.StringIO())


words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M")), min_size=1, max_size=30)
rows = st.builds(row, words, st.integers(0, 10**9), st.lists(words).map(" ".join), st.lists(words).map(" ".join))


@given(st.lists(rows, min_size=1, max_size=4), st.integers(40, 200))
def test_no_line_is_wider_than_the_terminal(table: list[dict[str, Any]], wide: int) -> None:
    assert [line for line in on_terminal(*table, wide=wide) if width(line) > wide] == []


@given(rows, st.integers(40, 200))
def test_on_a_terminal_nothing_but_the_command_is_cut(one: dict[str, Any], wide: int) -> None:
    shown = [line.strip() for line in on_terminal(one | {"command": "", "id": "x"}, wide=wide)]
    assert one["reason"].replace(" ", "") in "".join(shown).replace(" ", "")


def test_a_reason_without_room_goes_beneath_its_row() -> None:
    assert on_terminal(row(command="python train.py " * 10, reason=LONG), row(name="b")) == [
        "ID           COUNT  COMMAND",
        "2mz3s6sn6v1      1  python train.py python train.py python train.py python trai…",
        "             GPU 0 is allocated: held by task 2mz3s6sn6v1 of ann@laptop, and",
        "             nobody knows until when",
        "b                1  sleep 60",
    ]


def test_a_short_reason_stays_beside_its_row_and_a_long_one_of_another_goes_beneath() -> None:
    lines = on_terminal(row(reason="stopping"), row(reason=LONG), wide=60)
    assert lines[:3] == [
        "ID           COUNT  COMMAND   REASON",
        "2mz3s6sn6v1      1  sleep 60  stopping",
        "2mz3s6sn6v1      1  sleep 60",
    ]


def test_with_much_room_a_long_reason_wraps_beside_its_row() -> None:
    assert on_terminal(row(reason=LONG)) == [
        "ID           COUNT  COMMAND   REASON",
        "2mz3s6sn6v1      1  sleep 60  GPU 0 is allocated: held by task 2mz3s6sn6v1 of",
        "                              ann@laptop, and nobody knows until when",
    ]


def test_a_column_that_says_nothing_is_left_out() -> None:
    assert in_pipe(row(count=0), row(count=0)) == ["ID           COMMAND", *["2mz3s6sn6v1  sleep 60"] * 2]


def test_a_pipe_gets_one_whole_line_a_row_and_one_long_command_pushes_no_other_reason() -> None:
    lines = in_pipe(row(command="x" * 500, reason=LONG), row(reason="stopping"))
    assert [re.split(" {2,}", line)[2:] for line in lines[1:]] == [["x" * 500, LONG], ["sleep 60", "stopping"]]
    assert len(lines[2]) < 100


RANKED = [
    Column("NODE", lambda row: row["id"]),
    Column("DISK", lambda _: "32.1/252 GiB", wide=True, rank=1),
    Column("ADDRESS", lambda _: "root@gpu-server-02.example.org", wide=True, rank=2),
    Column("REASON", lambda row: row["reason"], wraps=True),
]


@pytest.mark.parametrize(("wide", "left_out"), [(80, ""), (40, "ADDRESS"), (12, "DISK, ADDRESS")])
def test_a_wide_table_leaves_out_what_matters_least_until_it_fits(
    wide: int, left_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Terminal()
    with mock.patch.dict(os.environ, {"COLUMNS": str(wide), "NO_COLOR": "1"}), contextlib.redirect_stdout(out):
        show(RANKED, [row("node1", reason="cannot be reached, for a reason that is longer than a line")], wide=True)
    lines = out.getvalue().splitlines()
    assert max(map(width, lines)) <= wide
    assert [title for title in ("DISK", "ADDRESS") if title not in lines[0]] == left_out.split(", ") * bool(left_out)
    assert capsys.readouterr().err == (f"Not shown in {wide} columns: {left_out}\n" if left_out else "")


def test_a_wide_table_to_a_pipe_is_whole() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        show(RANKED, [row("node1", reason=LONG)], wide=True)
    assert out.getvalue().splitlines()[1] == f"node1  32.1/252 GiB  root@gpu-server-02.example.org  {LONG}"
