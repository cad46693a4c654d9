"""Sizes and durations as people type them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.model.units import (
    GPU_MEMORY,
    LOG,
    LOGS,
    MEMORY,
    SHM,
    Sizes,
    format_duration,
    format_indices,
    format_size,
    least_size,
    parse_duration,
    parse_size,
    short_duration,
    short_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("0G", 0),
        ("1B", 1),
        ("1k", 1000),
        ("2KB", 2000),
        ("1.5GB", 1_500_000_000),
        ("1.5gb", 1_500_000_000),
        (" 8 G ", 8_000_000_000),
        ("3T", 3 * 10**12),
        ("1Ki", 1024),
        ("1KiB", 1024),
        ("16GiB", 16 * 2**30),
        ("0.5MiB", 2**19),
        ("2TiB", 2**41),
    ],
)
def test_units_with_an_i_are_powers_of_1024_and_others_of_1000(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", " ", "-1", "+1", "lots", "1.5.5G", "0.1B", "5X", "5iB", "5Bi", "1e9", ".5G", "5.", "1 000", "1,5G"],
)
def test_what_is_no_size_is_refused_and_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)
    assert "like 512M, 1.5GB or 16GiB" in str(caught.value)


@pytest.mark.parametrize("text", ["9" * 400, "9223372036854775808", "8388608TiB", "9" * 18 + "T"])
def test_a_size_that_no_engine_can_hold_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


@pytest.mark.parametrize("text", ["١٢G", "1\u212a", "5\uff27", "²"])
def test_digits_and_units_are_ascii(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


@pytest.mark.parametrize("text", ["3T", "3TiB", "40G", "16GiB", "512M", "768MiB", "1B", "1025B"])
def test_a_size_is_said_again_as_it_was_typed(text: str) -> None:
    assert short_size(parse_size(text)) == text


@given(st.integers(1, 2**62))
def test_a_formatted_size_reads_back_within_its_one_decimal(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.051)


@given(st.integers(1, 2**60), st.sampled_from(["", "B", "K", "kB", "MiB", "Gi", "T"]))
def test_any_number_with_a_unit_is_a_size_or_refused_as_usage(number: int, unit: str) -> None:
    try:
        assert 1 <= parse_size(f"{number}{unit}", MEMORY) < 2**63
    except UsageError:
        assert number * 1000**4 >= 2**63 or not (unit or number in MEMORY.bare)


@pytest.mark.parametrize(
    ("text", "of", "size"),
    [
        ("32768", MEMORY, 32768 * 10**6),
        ("64", SHM, 64 * 10**6),
        ("4096", GPU_MEMORY, 4096 * 10**6),
        ("16", LOG, 16 * 10**6),
    ],
)
def test_a_number_without_a_unit_is_megabytes_for_every_size(text: str, of: Sizes, size: int) -> None:
    assert parse_size(text, of) == parse_size(f"{text}M") == size


@pytest.mark.parametrize(
    ("text", "of", "meant"),
    [
        ("16", MEMORY, "16G"),
        ("17179869184", MEMORY, "16GiB"),
        ("8", SHM, "8G"),
        ("40", GPU_MEMORY, "40G"),
        ("40000000000", GPU_MEMORY, "40G"),
        ("65536", LOG, "65536B"),
        ("16777216", LOG, "16MiB"),
        ("1073741824", LOGS, "1GiB"),
    ],
)
def test_an_implausible_number_is_refused_with_what_was_probably_meant(text: str, of: Sizes, meant: str) -> None:
    with pytest.raises(UsageError, match=f"'{text}' has no unit, .* did you mean {meant}[?] Use {meant}, or {text}M"):
        parse_size(text, of)


@pytest.mark.parametrize(
    ("size", "meant"), [(4096, "4096M"), (5 * 2**20, "5GiB"), (5 * 10**6, "5G"), (512 * 1024, "512MiB")]
)
def test_too_small_a_size_is_refused_with_what_was_probably_meant(size: int, meant: str) -> None:
    assert least_size(size, MEMORY).endswith(f"; did you mean {meant}?")


def test_where_nothing_tells_what_is_plausible_a_unit_is_required() -> None:
    with pytest.raises(UsageError, match="'512' has no unit"):
        parse_size("512")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1048535, "1 MiB"),
        (2**20 - 1, "1 MiB"),
        (512 * 2**20, "512 MiB"),
        (3 * 2**30 // 2, "1.5 GiB"),
        (5000 * 2**40, "5000 TiB"),
    ],
)
def test_a_size_is_shown_with_at_most_one_decimal(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("90 sec", 90),
        ("250ms", 0.25),
        ("10min", 600),
        ("10m", 600),
        ("2h30m", 9000),
        ("2h 30m", 9000),
        ("1D", 86400),
        ("1d2h3m4s", 93784),
        ("1000000000", 10**9),
    ],
)
def test_durations_add_up(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "soon",
        "1.5.5s",
        "5x",
        "2h30",
        "10 5",
        "s",
        "1h,2m",
        "1000000001",
        "9" * 400 + "d",
        "1\u017f",
        "inf",
        "nan",
    ],
)
def test_what_is_no_duration_is_refused_and_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


@given(st.text(max_size=20))
def test_any_text_is_a_finite_duration_or_refused_as_usage(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except UsageError:
        return
    assert 0 <= seconds < math.inf


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (42, "42s"),
        (60, "1m 0s"),
        (192, "3m 12s"),
        (3600, "1h 0m"),
        (7500, "2h 5m"),
        (86400, "1d 0h"),
        (356400, "4d 3h"),
    ],
)
def test_a_duration_is_shown_in_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 10**9))
def test_a_formatted_duration_reads_back_within_its_smaller_unit(seconds: int) -> None:
    shown = parse_duration(format_duration(seconds))
    unit = 1 if seconds < 3600 else 60 if seconds < 86400 else 3600
    assert shown <= seconds < shown + unit


@pytest.mark.parametrize(("seconds", "text"), [(3600, "1h"), (4200, "1h10m"), (720, "12m")])
def test_a_short_duration_is_as_people_type_it(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


@given(st.integers(0, 10**9))
def test_a_short_duration_is_read_as_what_it_is_or_a_little_less(seconds: int) -> None:
    read = parse_duration(short_duration(seconds))
    assert 0 <= seconds - read <= max(59, seconds // 24)
    assert " " not in short_duration(seconds)


@pytest.mark.parametrize(
    ("indices", "words"),
    [([3], "3"), ([0, 1], "0,1"), ([0, 1, 2], "0-2"), ([0, 1, 2, 3, 6, 7], "0-3,6,7"), ([2, 0, 1], "2,0,1"), ([], "")],
)
def test_numbers_that_follow_each_other_are_a_range_from_three_on(indices: list[int], words: str) -> None:
    assert format_indices(indices) == words
