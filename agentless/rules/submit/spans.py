r"""Spans: one command becomes many, one for each combination of the values that vary.

Anywhere in a word, and as often as wanted:

    span:{1..10}  span:{01..10}  span:{10..1..3}   whole numbers, as bash counts and pads them
    span:{0.1..0.5..0.1}                           decimal numbers, exact; all with as many decimals as the longest has
    span:{A..Z}  span:{a..i..2}                    letters, as bash counts them
    span:[a,b,c]  span:['x, y',"it's",'']          a list; quotes for items that are empty or hold commas or brackets
    span:[@FILE]                                   the lines of a file that are not blank
    \span:                                         the text `span:`

A quote inside the same quotes is doubled, as in CSV. Spaces around items and lines do not count. A value is text: what
looks like a span in it is none.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentless.errors import UsageError

LIMIT = 10_000
"""The most combinations; more is taken for a mistake."""

_START = re.compile(r"(\\*)span:")
_NUMBER = r"(-?\d{1,18}(?:\.\d{1,18})?)"
_RANGE = re.compile(rf"\{{{_NUMBER}\.\.{_NUMBER}(?:\.\.{_NUMBER})?\}}", re.ASCII)
_LETTERS = re.compile(r"\{([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d{1,18}))?\}", re.ASCII)
_PADDED = re.compile(r"-?0\d")
_ITEM = re.compile(
    r"""\s*+(?P<file>@?)
    (?: '(?P<single>[^']*+(?:''[^']*+)*+)' | "(?P<double>[^"]*+(?:""[^"]*+)*+)" | (?P<bare>(?!['"])[^,\[\]]*+) )
    \s*+(?P<end>[,\]])""",
    re.VERBOSE,
)
_KEY = re.compile(r"([^\W\d][\w.-]*)=[^\s=]*$")
_OPTION = re.compile(r"--?([^\W\d][\w.-]*)")
_LONGEST_NAME = 100
_HOW = r"use span:{1..10}, span:{0.1..0.5..0.1}, span:[a,b,c] or span:[@FILE]; for the literal text, use \span:"


@dataclass(frozen=True, slots=True)
class Combination:
    """One of the commands: its finished words, and the value of each parameter in the order of the spans."""

    argv: tuple[str, ...]
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Span:
    name: str
    values: Sequence[str]


def expand(
    words: Sequence[str], read_lines: Callable[[str], Iterable[str]], *, zipped: bool = False
) -> tuple[Combination, ...]:
    """Every combination of the spans in the words, the last span varying fastest; if `zipped`, their values in step.

    A parameter is called as the option it belongs to (`--lr span:…`, `--lr=span:…`, `lr=span:…`: `lr`), else by the
    position of its word (`arg3`; the program is `arg0`). Without a span there is one combination, with no parameters.
    `read_lines` gives the lines of a file. Raises UsageError for what is no span, for zipped spans of unequal length
    and for more than LIMIT combinations.
    """
    parsed = [_parse(words, number, read_lines) for number in range(len(words))]
    spans = [piece for pieces in parsed for piece in pieces if isinstance(piece, _Span)]
    values = [span.values for span in spans]
    names = _unique([span.name for span in spans])
    if zipped and len(set(map(len, values))) > 1:
        counts = ", ".join(f"{name} has {len(some)}" for name, some in zip(names, values, strict=True))
        raise UsageError(f"--zip needs spans of equal length; {counts}")
    in_step = zipped and values
    _check_count(len(values[0]) if in_step else math.prod(map(len, values)))
    rows = zip(*values, strict=True) if in_step else itertools.product(*values)
    return tuple(Combination(_filled(parsed, row), dict(zip(names, row, strict=True))) for row in rows)


def _filled(parsed: list[list[str | _Span]], row: tuple[str, ...]) -> tuple[str, ...]:
    left = iter(row)
    return tuple("".join(piece if isinstance(piece, str) else next(left) for piece in pieces) for pieces in parsed)


def _check_count(count: int) -> None:
    if count > LIMIT:
        many = f"{count:,}" if count < 10**18 else "countless"
        raise UsageError(f"{many} combinations exceed the limit of {LIMIT:,}; use shorter spans")


def _parse(words: Sequence[str], number: int, read_lines: Callable[[str], Iterable[str]]) -> list[str | _Span]:
    """The word as text and spans in turn."""
    word, at = words[number], 0
    pieces: list[str | _Span] = []
    while found := _START.search(word, at):
        escapes = len(found[1])
        pieces.append(word[at : found.start()] + "\\" * (escapes // 2))
        start, at = found.end(1), found.end()
        if escapes % 2:
            pieces.append("span:")
            continue
        try:
            if word.startswith("{", at):
                values, at = _letters(word, at) or _range(word, at)
            elif word.startswith("[", at):
                values, at = _list(word, at, read_lines)
            else:
                raise UsageError(_unbracketed(words, number, at))
        except UsageError as error:
            rest = word[start:]
            shown = rest if len(rest) <= 40 else rest[:39] + "…"
            raise UsageError(f"argument {number}, {shown!r}: {error}") from None
        pieces.append(_Span(_name(words, number, pieces), values))
    return [*pieces, word[at:]]


def _unbracketed(words: Sequence[str], number: int, at: int) -> str:
    """The error for a `span:` without a readable rest. Unquoted, `span:{1..3}` arrives as three words."""
    if words[number][at : at + 1].isspace():
        return "remove the space after 'span:'; for the literal text, use \\span:"
    following = words[number + 1] if number + 1 < len(words) else ""
    if following.startswith(words[number][:at]) and following[at : at + 1] not in {"{", "["}:
        return "the shell split the span into several words; quote it, like 'span:{1..3}'"
    return f"not a span; {_HOW}"


def _letters(word: str, at: int) -> tuple[Sequence[str], int] | None:
    """The letters of `{first..last..step}` and where it ends; None for another range.

    Between `Z` and `a` are the signs that ASCII has there, as in bash.
    """
    found = _LETTERS.match(word, at)
    return found and (list(map(chr, _counted(ord(found[1]), ord(found[2]), int(found[3] or 1)))), found.end())


def _counted(start: int, stop: int, by: int) -> range:
    """As bash counts: the ends give the direction, whatever the sign of the step."""
    if by == 0:
        raise UsageError("the step must not be 0")
    _check_count(abs(stop - start) // abs(by) + 1)
    return range(start, stop + 1, abs(by)) if start <= stop else range(start, stop - 1, -abs(by))


def _range(word: str, at: int) -> tuple[Sequence[str], int]:
    """The numbers of `{first..last..step}` and where it ends. All are counted in units of the last decimal."""
    found = _RANGE.match(word, at)
    if found is None:
        raise UsageError(f"not a range; {_HOW}")
    first, last, step = found.groups()
    decimals = max(len((text or "").partition(".")[2]) for text in (first, last, step))
    if step is None and decimals:
        raise UsageError(f"a range of decimal numbers needs a step, like span:{{{first}..{last}..0.1}}")
    start, stop, by = (_units(text, decimals) for text in (first, last, step or "1"))
    numbers = _counted(start, stop, by)
    padded = not decimals and (_PADDED.match(first) or _PADDED.match(last))
    width = max(len(first), len(last)) if padded else 0
    return [_written(number, decimals, width) for number in numbers], found.end()


def _units(text: str, decimals: int) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole + fraction.ljust(decimals, "0"))


def _written(units: int, decimals: int, width: int) -> str:
    if not decimals:
        return f"{units:0{width}d}"
    digits = str(abs(units)).zfill(decimals + 1)
    return ("-" if units < 0 else "") + f"{digits[:-decimals]}.{digits[-decimals:]}"


def _list(word: str, at: int, read_lines: Callable[[str], Iterable[str]]) -> tuple[Sequence[str], int]:
    """The items of `[a,b,@FILE]` and where it ends."""
    values: list[str] = []
    end, at = "", at + 1
    while end != "]":
        found = _ITEM.match(word, at)
        if found is None:
            if "]" not in word[at:]:
                raise UsageError("the list has no closing ]; if it contains spaces, quote the whole argument")
            raise UsageError("quote items that contain a comma or a bracket, and close the quotes")
        at, end = found.end(), found["end"]
        values += _item(found, read_lines)
    return values, at


def _item(found: re.Match[str], read_lines: Callable[[str], Iterable[str]]) -> list[str]:
    """The value of an item, or the values of the file that it names."""
    if (bare := found["bare"]) is None:
        single, double = found["single"], found["double"]
        text = double.replace('""', '"') if single is None else single.replace("''", "'")
    else:
        text = bare.strip()
        if "span:" in text:
            raise UsageError("a span cannot contain a span; for the literal text, quote the item")
    if not found["file"]:
        if bare is not None and not text:
            raise UsageError("an item is empty; for an empty value, use ''")
        return [text]
    if not text:
        raise UsageError("no file name after @")
    values = [line for line in map(str.strip, read_lines(text)) if line]
    if not values:
        raise UsageError(f"{text} has only blank lines")
    return values


def _name(words: Sequence[str], number: int, before: list[str | _Span]) -> str:
    """The name of the option that a span belongs to; `before` is what its word has in front of it."""
    text = "".join(piece for piece in before if isinstance(piece, str))[-_LONGEST_NAME:]
    previous = words[number - 1] if number else ""
    if found := _KEY.search(text) or _OPTION.fullmatch(text):
        return found[1]
    if not text.startswith("-") and len(previous) <= _LONGEST_NAME and (found := _OPTION.fullmatch(previous)):
        return found[1]
    return f"arg{number}"


def _unique(names: list[str]) -> list[str]:
    """The names, the second `lr` as `lr_2`."""
    found: list[str] = []
    for name in names:
        tries = (name if turn == 1 else f"{name}_{turn}" for turn in itertools.count(1))
        found.append(next(one for one in tries if one not in found))
    return found
