"""What others chose, as text for a screen; and what a shell may be offered of it."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.api.lines import lines
from agentless.cli import common, complete
from agentless.cli.app import complain
from agentless.client.wire import failure
from agentless.controller.log import Lines
from agentless.model.text import both_ends, cut, lines_of, printable, printable_lines

CONTROLS = "".join(map(chr, (*range(32), *range(127, 160)))) + "\u2028\u2029\u202e\u2066\u200f\ufeff\ud800\U000e0041"
"""C0, DEL, C1, separators of lines, marks of direction, half a character, an invisible one."""


@given(st.text() | st.text(CONTROLS))
def test_printable_text_is_one_line_of_visible_characters(text):
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)
    assert all(
        before in (after, *CONTROLS) or not before.isprintable()
        for before, after in zip(text, printable(text), strict=True)
    )


def test_words_stay_apart_where_a_line_was_broken():
    assert printable("one\ntwo\tthree\r\nfour\x1b[2J") == "one two three  four�[2J"


def test_what_is_plain_stays_as_it_is():
    assert printable("Grüße, 名前 🚀 (½)") == "Grüße, 名前 🚀 (½)"


@given(st.text() | st.text(CONTROLS + "ab"))
def test_only_our_own_lines_remain_of_a_text_with_lines(text):
    assert printable_lines(text).split("\n") == [printable(line) for line in text.split("\n")]


@given(st.text(CONTROLS + "agentless: "))
def test_no_line_of_a_message_but_its_first_begins_at_the_margin(text):
    first, *others = lines_of(text)
    assert first.isprintable()
    assert all(line.startswith("  ") and line.isprintable() for line in others)
    assert lines_of("\n".join((first, *others))) == [first, *others] or not first


def test_a_name_is_cut_where_it_is_too_long():
    assert [cut("n" * count, 64) for count in (64, 65)] == ["n" * 64, "n" * 63 + "…"]


EVIL = "\x1b[2J\x9b\u202e\nagentless: all is well\x07"


def test_words_for_people_are_one_line_each(capsys):
    common.say(EVIL, "second")
    common.print_line(EVIL)
    found = capsys.readouterr()
    assert found.err.split("\n") == ["�[2J�� agentless: all is well�", "second", ""]
    assert found.out.split("\n") == ["�[2J�� agentless: all is well�", ""]


def test_an_error_begins_one_line_only(capsys):
    complain(f"no: {EVIL}")
    assert capsys.readouterr().err.split("\n") == ["agentless: no: �[2J��", "  agentless: all is well�", ""]


def test_an_error_of_the_controller_is_printable_for_who_catches_it():
    error = failure(json.dumps({"message": f"no: {EVIL}", "exit_code": 3, "error": "Refused"}).encode())
    assert str(error) == "no: �[2J��\n  agentless: all is well�"


def test_json_shows_no_invisible_character_and_keeps_each(capsys):
    common.print_json({"name": EVIL + CONTROLS})
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert json.loads(out) == {"name": EVIL + CONTROLS}


def test_a_note_between_lines_is_one_line_of_pythons_log(caplog):
    with caplog.at_level(logging.WARNING):
        assert list(lines([(3, EVIL.encode()), (1, b"\x1b[1mbold\n")], {1})) == ["\x1b[1mbold"]
    assert [record.getMessage() for record in caplog.records] == [printable(EVIL)]


def test_a_message_of_the_log_is_one_line_and_a_traceback_follows_it():
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "node %s", (EVIL,), sys.exc_info())
    first, *others = Lines("%(levelname)s %(message)s").format(record).split("\n")
    assert first == f"ERROR node {printable(EVIL)}"
    assert others[0] == "Traceback (most recent call last):"
    assert all(line.isprintable() for line in others)


# -------------------------------------------------------------------------------------------- what Tab offers

COMMAND = r"a\$(touch /tmp/pwned)`id`'\"[/red]" + EVIL


@pytest.fixture
def tasks(monkeypatch):
    def published(task, name):
        return {"id": task, "name": name, "state": "running", "target": "n1", "command": [COMMAND]}

    found = [published("2abc", "train-1"), published("2x;reboot", "$(reboot)"), published("-rf", "a b\n2abd")]
    monkeypatch.setattr(complete, "_ask", lambda *_, **__: found)


def test_only_words_that_a_shell_takes_as_they_are_are_offered(tasks):
    assert [word for word, _ in complete.tasks("")] == ["2abc", "train-1"]
    assert [word for word, _ in complete.tasks("tr")] == ["train-1"]


def test_what_is_said_of_them_is_nothing_that_a_shell_evaluates(tasks):
    """zsh gives it to `eval`, in double quotes within single ones."""
    for _, words in complete.tasks(""):
        assert words.startswith("running on n1: a (touch /tmp/pwned) id ")
        assert not set(words) & set("\\$`'\"[]\n\x1b")


def test_of_a_long_complaint_both_ends_are_kept_however_it_comes():
    said = b""
    for piece in (b"the cause", *[b"thread" * 50] * 200, b"the end"):
        said = both_ends(said, piece)
    assert (said[:9], said[-7:], len(said)) == (b"the cause", b"the end", 4000)
    assert both_ends(b"all ", b"of it") == b"all of it"
