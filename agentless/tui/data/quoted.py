"""Texts as the fields of the forms have them: commands as in a shell, and what no line can hold in `$'…'`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable

from agentless.errors import UsageError

_ANSI = r"\$'(?:\\.|[^'\\])*'"
_QUOTED = re.compile(rf"""{_ANSI}|'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_CONTINUED = re.compile(r"(\\[^\n])|\\\n")
_PAIR = re.compile(rf"([^=]*=)?({_ANSI})", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r"}


def words_of(text: str) -> tuple[str, ...]:
    """The words as a shell reads them; a line that ends with a backslash continues."""
    try:
        return tuple(shlex.split(_QUOTED.sub(lambda found: _continued(found[0]), text)))
    except ValueError as error:
        raise UsageError(str(error).lower()) from None


def in_words(words: Iterable[str]) -> str:
    """The text that `words_of` reads."""
    return " ".join(
        shlex.quote(word) if word.replace("\n", "").isprintable() else f"$'{_escaped(word)}'" for word in words
    )


def as_written(line: str) -> str:
    r"""The value in a line: `A=$'x\ny'` has two lines."""
    found = _PAIR.fullmatch(line)
    return (found[1] or "") + _plain(found[2]) if found else line


def in_line(head: str, value: str) -> str:
    """The line for a value, which `as_written` reads."""
    line = head + value
    if value.isprintable() and line == line.strip() and not _PAIR.fullmatch(line):
        return line
    return f"{head}$'{_escaped(value)}'"


def _continued(quoted: str) -> str:
    if quoted.startswith("$"):
        return shlex.quote(_plain(quoted))
    return quoted if quoted.startswith("'") else _CONTINUED.sub(r"\1", quoted)


def _plain(quoted: str) -> str:
    return _ESCAPED.sub(_meant, quoted[2:-1])


def _meant(found: re.Match[str]) -> str:
    if not (code := found[1] or found[2] or found[3]):
        return _LETTERS.get(found[4], found[4])
    number = int(code, 16)
    if number > sys.maxunicode or 0xD800 <= number < 0xE000:
        raise UsageError(r"\u or \U without the code of a character; those are up to \U0010ffff, without d800 to dfff")
    return chr(number)


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\'" else c if c.isprintable() else _code(c) for c in text)


def _code(letter: str) -> str:
    number = ord(letter)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
