"""No sentence of the program has a word of `tests/sentences/banned.txt`, and the list of sentences is complete."""

from __future__ import annotations

import re

import pytest

from tests.sentences.collect import BANNED, LIST, of_html, of_javascript, of_python, of_script, sentences

WORDS = BANNED.read_text("utf-8").splitlines()
SHOWN = LIST.read_text("utf-8")


def found_in(text: str, word: str) -> list[str]:
    """The lines with this word or phrase, outside of holes."""
    pattern = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    lines = [line for line in text.splitlines() if not line.startswith("## ")]
    return [line for line in lines if pattern.search(re.sub(r"\{[^{}]*\}", "{}", line))]


def test_the_list_of_sentences_is_up_to_date():
    assert sentences() == SHOWN, "sentences have changed; run make sentences"


@pytest.mark.parametrize("word", WORDS)
def test_no_sentence_has_a_banned_word(word):
    assert found_in(SHOWN, word) == []


def test_a_banned_word_is_found_as_a_word_and_not_in_a_hole():
    assert found_in("No room left.\n{room} left\nroomy", "room") == ["No room left."]


def test_the_words_are_in_order_and_each_is_there_once():
    assert sorted(set(WORDS)) == WORDS


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('raise UsageError(f"no env {name!r}; try again")', ["no env {name}; try again"]),
        ('"""Of the module."""\ndef f():\n    """Of a function."""\n    return f"{a} {b.c} is"', ["{a} {c} is"]),
        ('app.command()(stop)\ndef stop():\n    """Stop a task."""', ["Stop a task."]),
        ('@app.get("/v1")\ndef stop():\n    """Stop a task."""', ["Stop a task."]),
        ('class Body(BaseModel):\n    """What it takes."""', ["What it takes."]),
        ('re.compile("a pattern")\nx: Literal["busy again"]\n_SCRIPT = "echo a word"', []),
        ("f\"{'is free' if a else 'are free'} now\"", ["{a} now", "is free", "are free"]),
    ],
)
def test_sentences_of_python_are_found(source, expected):
    assert list(of_python(source)) == expected


def test_a_label_of_one_word_counts_on_a_screen():
    assert list(of_python('Column("Node"); x["node"]', labels=True)) == ["Node"]


def test_sentences_of_scripts_and_pages_are_found():
    assert list(of_script("echo 'what came broke off' >&2\nprintf '%s\\n' \"$said\"\necho done")) == [
        "what came broke off"
    ]
    assert list(of_html("<p>Opening the dashboard …</p>\n<b>x</b>")) == ["Opening the dashboard …"]
    assert list(of_javascript("// it's a comment\nshow('It has ended')")) == ["It has ended"]
