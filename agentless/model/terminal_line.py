"""One line of a program's output as a terminal would leave it: text in spans, each with its colours.

The text is untrusted. Of all escape sequences, only colours (SGR) and those that edit this line are followed. All
others are dropped: no text leaves its line, sets a title or asks the terminal anything.
"""

from __future__ import annotations

import re
from itertools import groupby

from agentless.model.text import printable

Span = tuple[str, str]
"""A text, and its look as parameters of SGR in a fixed order, such as `1;31`; empty for none."""

COLUMNS = 10_000
"""The column up to which a sequence may move. Text may be longer."""
EDITS = 1 << 22
"""Cells of a line that sequences may fill with blanks in all. Such sequences are dropped after that."""
PARAMETERS = 100
"""Parameters of a sequence of colours that are followed."""
ESCAPES = 16
"""Escape sequences in a row that a pattern passes over."""
_TAB = 8
_SPECIAL = re.compile(r"[\x1b\r\b\t\a]")
_TOKEN = re.compile(
    r"\x1b\[(?P<arguments>[0-?]*)[ -/]*(?P<final>[@-~]?)"  # colours and cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|\x1b[ -/]*[0-~]?"
    r"|[\r\b\t\a]"
)
_ESCAPE = rb"(?>\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?))"
_ESCAPES = b"%b{0,%d}+" % (_ESCAPE, ESCAPES)
_MORE = re.compile(b"%b{%d}" % (_ESCAPE, ESCAPES + 1))
_ATTRIBUTES = (1, 2, 3, 4, 7, 9)
"""Bold, dim, italic, underlined, reversed, struck out. Blinking and hidden text is shown as it is."""
_ENDS = {22: (1, 2), 23: (3,), 24: (4,), 27: (7,), 29: (9,)}
_GROUNDS = {38: "fg", 48: "bg"}


def spans(text: str) -> list[Span]:
    """The line in spans of one look each; adjacent ones differ."""
    text = text.rstrip("\r")
    if not _SPECIAL.search(text):
        return [(printable(text), "")] if text else []
    line, at = _Line(), 0
    for token in _TOKEN.finditer(text):
        if token.start() > at:
            line.write(printable(text[at : token.start()]))
        at = token.end()
        if token["final"]:
            line.follow(token["arguments"], token["final"])
        elif token[0] in "\r\b\t":
            line.move(token[0])
    if at < len(text):
        line.write(printable(text[at:]))
    return line.spans()


def plain(text: str) -> str:
    """The text of the line alone."""
    return "".join(part for part, _ in spans(text))


def pattern(words: bytes) -> re.Pattern[bytes]:
    """Finds these bytes also where escape sequences are between them, up to `ESCAPES` of them in a row.

    Without this bound, the time would grow with the square of the text.
    """
    return re.compile(_ESCAPES.join(re.escape(words[at : at + 1]) for at in range(len(words))))


def is_crowded(text: bytes) -> bool:
    """Whether it has more escape sequences in a row than a pattern passes over."""
    return _MORE.search(text) is not None


class _Line:
    """The characters of a line and their looks, and the cursor."""

    def __init__(self) -> None:
        self._characters: list[str] = []
        self._looks: list[str] = []
        self._at = 0
        self._look = _Look()
        self._edits = EDITS

    def write(self, text: str) -> None:
        """Write over what is there."""
        self._pad()
        end = self._at + len(text)
        self._characters[self._at : end] = text
        self._looks[self._at : end] = [str(self._look)] * len(text)
        self._at = end

    def move(self, control: str) -> None:
        """Move the cursor as a control character does."""
        match control:
            case "\r":
                self._at = 0
            case "\b":
                self._at = max(0, self._at - 1)
            case _:
                self._at += _TAB - self._at % _TAB

    def follow(self, arguments: str, final: str) -> None:
        """Follow a control sequence, if it is about this line."""
        if final == "m":
            self._look.change(arguments)
            return
        count = _number(arguments.partition(";")[0])
        if count is None:
            return
        match final:
            case "K" | "J" if count == 0:
                del self._characters[self._at :], self._looks[self._at :]
            case "K" | "J" if count == 1:
                blank = self._granted(min(self._at + 1, len(self._characters)))
                self._characters[:blank], self._looks[:blank] = [" "] * blank, [""] * blank
            case "K" | "J" if count == 2:
                self._characters.clear()
                self._looks.clear()
            case "G":
                self._at = min(max(count, 1) - 1, COLUMNS)
            case "C" if self._at < COLUMNS:
                self._at = min(self._at + max(count, 1), COLUMNS)
            case "D":
                self._at = max(0, self._at - max(count, 1))

    def spans(self) -> list[Span]:
        """What is on the line."""
        found, at = [], 0
        for look, group in groupby(self._looks):
            size = sum(1 for _ in group)
            found.append(("".join(self._characters[at : at + size]), look))
            at += size
        return found

    def _pad(self) -> None:
        if (missing := self._at - len(self._characters)) > 0:
            missing = self._granted(missing)
            self._characters += [" "] * missing
            self._looks += [""] * missing
            self._at = len(self._characters)

    def _granted(self, cells: int) -> int:
        """So many cells to blank; none when there were too many before: a line may ask for them thousands of times."""
        cells = cells if cells <= self._edits else 0
        self._edits -= cells
        return cells


class _Look:
    """The look of what is written next."""

    def __init__(self) -> None:
        self._on = dict.fromkeys(_ATTRIBUTES, False)
        self._grounds = {"fg": "", "bg": ""}
        self._words = ""

    def __str__(self) -> str:
        return self._words

    def change(self, arguments: str) -> None:
        """Follow an SGR sequence."""
        if arguments[:1] in ("<", "=", ">", "?"):  # a private sequence
            return
        items = arguments.split(";", PARAMETERS)[:PARAMETERS]
        while items:
            self._follow(items.pop(0), items)
        attributes = (str(code) for code, is_on in self._on.items() if is_on)
        self._words = ";".join(filter(None, (*attributes, *self._grounds.values())))

    def _follow(self, item: str, others: list[str]) -> None:
        """Follow one parameter; that of a colour takes its values from the others."""
        first, *values = item.split(":")
        code = _number(first)
        if code is None:
            return
        if code in _GROUNDS:
            if not values:
                taken = {"5": 2, "2": 4}.get(others[0] if others else "", 0)
                values = others[:taken]
                del others[:taken]
            self._grounds[_GROUNDS[code]] = _colour(code, values)
        elif code == 0:
            self._on = dict.fromkeys(_ATTRIBUTES, False)
            self._grounds = {"fg": "", "bg": ""}
        elif code in self._on:
            self._on[code] = values != ["0"]
        elif code in _ENDS:
            self._on.update(dict.fromkeys(_ENDS[code], False))
        elif code in (39, 49):
            self._grounds["fg" if code == 39 else "bg"] = ""
        elif 30 <= code <= 37 or 90 <= code <= 97:
            self._grounds["fg"] = str(code)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            self._grounds["bg"] = str(code)


def _colour(code: int, values: list[str]) -> str:
    """A colour of 256 or of 16 million; empty if it is none."""
    numbers = [_number(value) for value in (values[1:] if values[:1] == ["5"] else values[-3:])]
    wanted = {"5": 1, "2": 3}.get(values[0] if values else "")
    if len(numbers) != wanted or not all(number is not None and number <= 255 for number in numbers):
        return ""
    return ";".join((str(code), values[0], *map(str, numbers)))


def _number(text: str) -> int | None:
    """A parameter, 0 if it is left out; None if it is no number that makes sense."""
    if not text:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else None
