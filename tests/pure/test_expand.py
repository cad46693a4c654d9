"""Spans: the grammar, the combinations, and what is said of words that are no span."""

from __future__ import annotations

import math
import re
import subprocess
from decimal import Decimal
from string import ascii_lowercase, ascii_uppercase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.rules.submit.spans import LIMIT, expand

FILES = {
    "f.txt": ["one", "", "  two words ", "# three\r", ""],
    "a, b]": ["odd"],
    "empty": ["", "  "],
}
NUMBERS = st.from_regex(r"\A-?[0-9]{1,3}\Z")
DECIMALS = st.from_regex(r"\A-?[0-9]{1,2}(\.[0-9]{1,2})?\Z")
SPAN_LIKE = st.text(alphabet="\\{}[],.'\"@ 01a") | st.just("span:")


def argvs(*words, zipped=False):
    return [one.argv for one in expand(words, FILES.__getitem__, zipped=zipped)]


def values(word):
    """What a word becomes."""
    return [argv[0] for argv in argvs(word)]


def complaint(*words, zipped=False):
    with pytest.raises(UsageError) as caught:
        expand(words, FILES.__getitem__, zipped=zipped)
    return str(caught.value)


def names(*words):
    return list(expand(words, FILES.__getitem__)[0].parameters)


def quoted(item, quote):
    return quote + item.replace(quote, quote * 2) + quote


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("span:{1..3}", ["1", "2", "3"]),
        ("span:{1..10..4}", ["1", "5", "9"]),
        ("span:{3..1}", ["3", "2", "1"]),
        ("span:{10..1..-4}", ["10", "6", "2"]),
        ("span:{7..7}", ["7"]),
        ("span:{08..10}", ["08", "09", "10"]),
        ("span:{0.1..0.5..0.1}", ["0.1", "0.2", "0.3", "0.4", "0.5"]),
        ("span:{1..0..0.5}", ["1.0", "0.5", "0.0"]),
        ("span:{-0.2..0.1..0.15}", ["-0.20", "-0.05", "0.10"]),
        ("span:{0.10..0.30..0.1}", ["0.10", "0.20", "0.30"]),
        ("span:[a,b]", ["a", "b"]),
        ("span:[ a b ,\tc ]", ["a b", "c"]),
        ("span:[it's,x{1..2}]", ["it's", "x{1..2}"]),
        ("""span:['x, y',"[0]",'', "it's", 'it''s', 'span:{1..2}', '@f.txt']""",
         ["x, y", "[0]", "", "it's", "it's", "span:{1..2}", "@f.txt"]),
        ("span:[@f.txt]", ["one", "two words", "# three"]),
        ("span:[zero,@f.txt, @'a, b]']", ["zero", "one", "two words", "# three", "odd"]),
        ("ckpt_span:{1..2}.pt", ["ckpt_1.pt", "ckpt_2.pt"]),
        ("span:{1..2}xspan:[a,b]", ["1xa", "1xb", "2xa", "2xb"]),
        (r"\span:{1..2}", ["span:{1..2}"]),
        (r"\\span:{1..2}", [r"\1", r"\2"]),
        (r"C:\new\span:x\\", [r"C:\newspan:x\\"]),
    ],
)  # fmt: skip
def test_what_a_word_becomes(word, expected):
    assert values(word) == expected


@settings(max_examples=25)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.none() | NUMBERS.filter(int)), min_size=1, max_size=20))
def test_ranges_of_whole_numbers_are_those_of_bash(ranges):
    texts = ["{" + "..".join(filter(None, numbers)) + "}" for numbers in ranges]
    script = "".join(f"echo {text}\n" for text in texts)
    said = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True).stdout
    assert [" ".join(values(f"span:{text}")) for text in texts] == said.splitlines()


@settings(max_examples=25)
@given(
    st.lists(
        st.sampled_from([ascii_lowercase, ascii_uppercase]).flatmap(
            lambda letters: st.tuples(
                st.sampled_from(letters),
                st.sampled_from(letters),
                st.none() | st.integers(-30, 30).filter(bool).map(str),
            )
        ),
        min_size=1,
        max_size=20,
    )
)
def test_ranges_of_letters_are_those_of_bash(ranges):
    texts = ["{" + "..".join(filter(None, ends)) + "}" for ends in ranges]
    script = "".join(f"echo {text}\n" for text in texts)
    said = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True).stdout
    assert [" ".join(values(f"span:{text}")) for text in texts] == said.splitlines()


@given(DECIMALS, DECIMALS, DECIMALS.filter(lambda text: Decimal(text) != 0))
def test_ranges_of_decimal_numbers_are_exact(first, last, step):
    start, stop, by = Decimal(first), Decimal(last), abs(Decimal(step))
    count = int(abs(stop - start) / by) + 1
    towards = by if stop >= start else -by
    found = values(f"span:{{{first}..{last}..{step}}}")
    assert [Decimal(text) for text in found] == [start + number * towards for number in range(count)]


@given(st.lists(st.tuples(st.text(), st.sampled_from("'\"")), min_size=1))
def test_any_item_can_be_written_in_quotes(items):
    word = "span:[" + ", ".join(quoted(*item) for item in items) + "]"
    assert values(word) == [text for text, _ in items]


@given(st.lists(SPAN_LIKE).map("".join))
def test_any_text_can_be_written_with_escapes(text):
    written = re.sub(r"(\\*)span:", r"\1\1\\span:", text)
    assert argvs(written) == [(text,)]


@given(st.lists(st.text().filter(lambda word: "span:" not in word), min_size=1))
def test_words_without_a_span_come_through_untouched(words):
    assert argvs(*words, "span:[a,b]") == [(*words, "a"), (*words, "b")]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_every_combination_is_made_once_and_the_last_span_varies_fastest(sizes):
    found = [tuple(map(int, argv)) for argv in argvs(*(f"span:{{1..{size}}}" for size in sizes))]
    assert found == sorted(set(found))
    assert len(found) == math.prod(sizes)


@given(st.lists(SPAN_LIKE).map("".join))
def test_any_word_is_expanded_or_refused_as_usage(word):
    try:
        found = expand([word], lambda _: ["line"])
    except UsageError:
        return
    assert {len(one.argv) for one in found} == {1}


def test_zipped_spans_go_in_step():
    assert argvs("span:{1..2}", "span:[a,b]", zipped=True) == [("1", "a"), ("2", "b")]


def test_zipped_spans_of_unequal_length_are_refused_with_their_lengths():
    assert "spans of equal length; lr has 3, seed has 2" in complaint(
        "--lr", "span:{1..3}", "seed=span:{1..2}", zipped=True
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["t", "--lr", "span:[1,2]"], ["lr"]),
        (["t", "-n", "span:[1,2]"], ["n"]),
        (["t", "--lr=span:[1,2]"], ["lr"]),
        (["t", "lr=span:[1,2]"], ["lr"]),
        (["t", "+optim.lr=x_span:[1,2]"], ["optim.lr"]),
        (["t", "-jspan:[1,2]"], ["j"]),
        (["t", "--out", "run_span:[1,2]"], ["out"]),
        (["t", "http://x?a=span:[1,2]&b=span:[1,2]"], ["a", "b"]),
        (["t", "x", "span:[1,2]"], ["arg2"]),
        (["span:[1,2]", "x"], ["arg0"]),
        (["t", "--", "span:[1,2]"], ["arg2"]),
        (["t", "--lr=1", "span:[1,2]"], ["arg2"]),
        (["t", "sh A=1; span:[1,2]"], ["arg1"]),
        (["t", "--size", "span:[1,2]xspan:[1,2]"], ["size", "size_2"]),
        (["t", "a=span:[1,2]", "a_2=span:[1,2]", "a=span:[1,2]"], ["a", "a_2", "a_3"]),
        (["t", "--" + "x" * 98, "span:[1,2]"], ["x" * 98]),
        (["t", "--" + "x" * 99, "span:[1,2]"], ["arg2"]),
        (["t"], []),
    ],
)
def test_a_parameter_is_called_as_the_option_it_belongs_to(words, expected):
    assert names(*words) == expected


def test_a_combination_has_the_values_of_its_parameters():
    found = expand(["t", "--lr", "span:[0.1,0.01]", "seed=span:{7..8}"], FILES.__getitem__)
    assert dict(found[1].parameters) == {"lr": "0.1", "seed": "8"}


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("span:", "use span:{1..10}"),
        ("timespan:5", "for the literal text, use \\span:"),
        ("span:{a..3}", "not a range; use span:{1..10}"),
        ("span:{aa..cc}", "not a range"),
        ("span:{a..e..0}", "the step must not be 0"),
        ("span:{1..3", "not a range"),
        ("span:{1,2}", "not a range"),
        ("span:{1..2..3..4}", "not a range"),
        ("span:{1 .. 3}", "not a range"),
        ("span:{١..٣}", "not a range"),
        ("span:{1..3..0}", "the step must not be 0"),
        ("span:{1..3..0.0}", "the step must not be 0"),
        ("span:{0.1..0.5}", "needs a step, like span:{0.1..0.5..0.1}"),
        ("span:[a,b", "the list has no closing ]"),
        ("span:[]", "for an empty value, use ''"),
        ("span:[a,,b]", "for an empty value, use ''"),
        ("span:[a,]", "for an empty value, use ''"),
        ("span:[[1],2]", "quote items that contain a comma or a bracket"),
        ("span:['a'b]", "quote items that contain a comma or a bracket"),
        ("span:['a]", "quote items that contain a comma or a bracket"),
        ("span:[a,span:{1..2}]", "a span cannot contain a span"),
        ("span: {1..2}", "remove the space after 'span:'"),
        ("span:[@]", "no file name"),
        ("span:[@empty]", "empty has only blank lines"),
    ],
)
def test_what_is_no_span_is_refused_with_its_place_and_the_way_to_write_it(word, part):
    said = complaint("t", word)
    assert re.match("argument 1, ['\"]span:", said)
    assert part in said


def test_as_many_combinations_as_are_allowed_are_made():
    assert len(argvs(f"span:{{1..{LIMIT}}}")) == LIMIT


@pytest.mark.parametrize(("rest", "shown"), [("x" * 40, "x" * 40), ("x" * 41, "x" * 39 + "…")])
def test_a_word_that_is_no_span_is_shown_up_to_forty_characters(rest, shown):
    word = "span:" + rest.removeprefix("xxxxx")
    assert complaint("t", word).startswith(f"argument 1, {'span:' + shown.removeprefix('xxxxx')!r}: ")


def test_a_complaint_shows_only_the_beginning_of_a_long_word():
    assert len(complaint("t", "x" * 1000 + "span:" + "y" * 1000)) < 200


@pytest.mark.parametrize("text", ["span:{1..3}", "--seed=span:{1..2}", "run_span:{a,b}.pt"])
def test_a_span_that_the_shell_took_apart_is_told_to_be_quoted(text):
    words = subprocess.run(["bash", "-c", f"printf '%s\n' {text}"], capture_output=True, text=True, check=True).stdout
    assert "quote it, like 'span:{1..3}'" in complaint("t", *words.splitlines())


def test_a_span_without_a_bracket_before_a_whole_one_was_not_taken_apart():
    assert "not a span" in complaint("t", "span:", "span:{1..2}")


@pytest.mark.parametrize("zipped", [False, True])
def test_the_largest_sweep_is_made(zipped):
    assert len(argvs(f"span:{{1..{LIMIT}}}", zipped=zipped)) == LIMIT


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([f"span:{{1..{LIMIT + 1}}}"], "10,001"),
        ([f"span:{{1..{LIMIT + 1}}}", "span:{1..2}"], "10,001"),
        (["span:{1..200}", "span:{1..200}"], "40,000"),
        (["span:{0..999999999999999999..0.001}"], "countless"),
        (["span:{1..1000}"] * 100, "countless"),
        (["span:{1..1000}"] * 6, "countless"),
        (["span:{1..9}", "span:{1..100}", *["span:{1..1000}"] * 5], "900,000,000,000,000,000"),
    ],
)
def test_too_many_combinations_are_refused_before_they_are_made(words, count):
    assert f"{count} combinations exceed the limit of 10,000" in complaint(*words)
