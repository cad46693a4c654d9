"""Output that is longer than the screen goes to a pager, on a terminal only, and whatever the pager does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentless.cli import app
from tests.keyboard import Keyboard

PRINT = """
import sys
from agentless.cli.pager import paged
with paged():
    for number in range(int(sys.argv[1])):
        print("line", number)
    print("note", file=sys.stderr)
print("after")
"""


@pytest.fixture
def printed(tmp_path: Path) -> Iterator[Any]:
    """Print so many lines and a note on a terminal of 24 lines; the pager writes into a file."""
    boards: list[Keyboard] = []

    def show(lines: int, **variables: str) -> tuple[str, str | None]:
        paged = tmp_path / "paged"
        pager = tmp_path / "my pager"
        pager.write_text(f'#!/bin/sh\necho "$LESS" >"{paged}"\ncat >>"{paged}"\n')
        pager.chmod(0o755)
        given = {name: value.replace("MINE", f"'{pager}'") for name, value in variables.items()}
        plain = {key: value for key, value in os.environ.items() if key not in ("PAGER", "AGENTLESS_PAGER", "LESS")}
        boards.append(Keyboard([sys.executable, "-c", PRINT, str(lines)], {**plain, "TERM": "xterm", **given}))
        boards[-1].sees(b"after")
        assert boards[-1].ended() == 0
        return boards[-1].output.decode().replace("\r\n", "\n"), paged.read_text() if paged.exists() else None

    yield show
    for each in boards:
        each.close()


def lines(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(count)) + "note\n"


def test_what_is_longer_than_the_screen_is_shown_by_the_pager_with_its_notes(printed: Any) -> None:
    assert printed(30, PAGER="MINE -x") == ("after\n", "FRX\n" + lines(30))


def test_what_fits_the_screen_needs_no_pager(printed: Any) -> None:
    assert printed(22, PAGER="MINE") == (lines(22) + "after\n", None)


def test_a_long_line_counts_as_the_rows_that_it_takes(printed: Any) -> None:
    from agentless.cli import pager

    size = os.terminal_size((80, 24))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pager.shutil, "get_terminal_size", lambda: size)
        assert pager._is_long("\033[1m" + "x" * 80 * 24 + "\033[0m")
        assert not pager._is_long("\033[1m" + "x" * 80 * 23 + "\033[0m")


@pytest.mark.parametrize(
    "variables",
    [
        {"AGENTLESS_PAGER": "", "PAGER": "MINE"},
        {"AGENTLESS_PAGER": "cat", "PAGER": "MINE"},
        {"PAGER": "/no/such/pager"},
        {"PAGER": "an open 'quote"},
        {"PAGER": "MINE", "TERM": "dumb"},
    ],
)
def test_without_a_pager_it_is_printed(printed: Any, variables: dict[str, str]) -> None:
    assert printed(30, **variables) == (lines(30) + "after\n", None)


def test_agentless_has_a_pager_of_its_own_and_the_users_less_options_count(printed: Any) -> None:
    assert printed(30, AGENTLESS_PAGER="MINE", PAGER="/no/such", LESS="R") == ("after\n", "R\n" + lines(30))


def test_a_pager_that_ends_before_it_has_read_everything_is_no_error(printed: Any) -> None:
    assert printed(50_000, PAGER="true") == ("after\n", None)


def test_a_pipe_gets_everything_without_a_pager() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINT, "100"], env={**os.environ, "TERM": "xterm", "PAGER": "false"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (lines(100).replace("note\n", "after\n"), "note\n")


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--no-pager", "ps"], ["ps"]),
        (["ps", "--all", "--no-pager"], ["ps", "--all"]),
        (["submit", "--", "git", "--no-pager"], ["submit", "--", "git", "--no-pager"]),
    ],
)
def test_no_pager_is_obeyed_before_and_after_the_verb(
    words: list[str], kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTLESS_PAGER", "less")
    assert app._without_pager(words) == kept
    assert os.environ["AGENTLESS_PAGER"] == ("less" if words == kept else "")
