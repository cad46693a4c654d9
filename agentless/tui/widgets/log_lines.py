"""The lines of a log on the screen: those in view are loaded, of a log of any length."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import ClassVar
from unicodedata import combining

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scrollbar import ScrollTo

from agentless.client.client import BrokenOff
from agentless.errors import AgentlessError
from agentless.formats.log_index import LINE, Part, Span
from agentless.model.terminal_line import spans
from agentless.tui.data.incoming import in_app
from agentless.tui.data.log_source import LogSource
from agentless.tui.widgets.lines import Lines, Piece, wrapped

KEPT = 8 << 20
"""Characters of lines that stay in memory, beside those in view."""
_SGR = "sgr:"
_STREAMS = {2: "stderr", 3: "note"}
FAR = 2000
"""Columns beyond which a line is read wrapped: 60 lines of 1 MB each would have to be in memory."""
MARKS = 8
"""The most characters of no width in a row. Accents need up to 4."""
_SIDEWAYS = 8
"""Columns of a step to the left or right."""


@dataclass(slots=True)
class _Line:
    """A line in memory: its pieces, how many lines there were when it was read, and its rows at some width."""

    pieces: list[Piece]
    of: Span
    size: int
    rows: list[list[Piece]] = field(default_factory=list)
    width: int = 0

    def wrapped(self, width: int) -> list[list[Piece]]:
        """Its rows at this width, at least one."""
        if self.width != width:
            self.rows, self.width = list(wrapped(self.pieces, width)) or [[]], width
        return self.rows


class Log(Lines):
    """A log. `only` is the one stream that is shown, None: both. While it `follows`, the end is in view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "go(-1)", "Up", show=False),
        Binding("down,j", "go(1)", "Down", show=False),
        Binding("pageup,b,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,space,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home,g", "begin", "Begin", show=False),
        Binding("end,G", "end", "End", show=False),
        Binding("left", "sideways(-1)", "Left", show=False),
        Binding("right", "sideways(1)", "Right", show=False),
    ]
    DEFAULT_CSS = """
    Log { overflow-y: scroll; overflow-x: hidden; }
    """

    class Moved(Message):
        """Other lines are in view."""

    class Failed(Message):
        """Lines could not be loaded."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    def __init__(self) -> None:
        super().__init__()
        self.only: int | None = None
        self.wraps = False
        self.follows = True
        self.sought = ""
        self._source: LogSource | None = None
        self._span = Span(0, 0, 0)
        self._top, self._row = 0, 0  # the line on top, and its row there; rows below 0 are in lines above
        self._left = 0
        self._lines = OrderedDict[int, _Line]()
        self._held = 0
        self._cut = 0
        self._loading = self._again = False
        self._version = 0
        self._layout: list[tuple[int, list[Piece]]] = []
        self._match: int | None = None

    # --------------------------------------------------------------------- what

    def show(self, source: LogSource) -> None:
        """Show another log, or the same from elsewhere."""
        self._source = source
        self._match = None
        self.lay_out()

    def show_only(self, stream: int | None) -> None:
        """Show one stream, or both, at its end: its lines have other numbers."""
        self.only, self.follows, self._match = stream, True, None
        self.lay_out()

    def lay_out(self, top: int = 0) -> None:
        """Load all lines again, to show them in another way; unless it follows, from `top` on."""
        self._forget()
        self._layout = []
        self._top, self._row, self._left = top, 0, 0
        self._span = Span(0, 0, 0)
        self.update()

    def update(self) -> None:
        """Show what is there by now, and load what is missing in view."""
        if self._source is None or not self.size.height:
            return
        span = self._source.span(self.only)
        if span != self._span and not self.follows:
            self._place(span)
        if self._loading:
            self._again = True
            return
        self._again = False
        if self.follows and span != self._span and span.end:
            part: Part | None = Part(span.end, self.size.height, self.only, back=True)
        else:
            if not self._layout:
                self._place(span)
            part = self._missing()
        if part:
            self._loading = True
            part = Part(part.first, part.count, part.only, part.back, self._most())
            self.run_worker(partial(self._load, self._source, self._version, span, part), thread=True)

    @property
    def source(self) -> LogSource | None:
        """Where the lines come from."""
        return self._source

    @property
    def span(self) -> Span:
        """The lines that there are."""
        return self._span

    @property
    def in_view(self) -> tuple[int, int]:
        """The numbers of the first and the last line in view."""
        return (self._layout[0][0], self._layout[-1][0]) if self._layout else (self._top, self._top)

    @property
    def match(self) -> int | None:
        """The line that was found last."""
        return self._match

    # ------------------------------------------------------------------- moving

    def go_to(self, line: int, match: int | None = None) -> None:
        """Bring a line into view, with some above it. `match`: it was found, and this is the column of the words."""
        self.follows = False
        column = match or 0
        if self._source:
            self._span = self._source.span(self.only)
        if column > FAR and not self.wraps:
            self.wraps = True
            self._forget()
        if self.wraps:
            self._row = column // self._columns
        else:
            self._row = 0
            if not self._left <= column < self._left + self._columns:
                self._left = 0 if column < self._columns else column - self._columns // 2
        self._match = None if match is None else line
        self._top = max(self._span.first, min(line, self._span.end - 1))
        self._row -= self.size.height // 3
        self._place(self._span)
        self._moved()

    def show_end(self) -> None:
        """Go to the end, and follow."""
        self.follows = True
        self._place(self._source.span(self.only) if self._source else self._span)
        self._moved()

    def action_go(self, by: int) -> None:
        """Scroll by rows; at the end it follows."""
        at_end = self._is_at_end()
        self.follows = by > 0 and at_end
        self._row += by if not self.follows else 0
        self._place(self._span)
        self.follows = by > 0 and self._is_at_end()
        self._moved()

    def action_page(self, by: int) -> None:
        """Scroll by pages."""
        self.action_go(by * max(1, self.size.height - 1))

    def action_begin(self) -> None:
        self.follows = False
        self._top, self._row = self._span.first, 0
        self._place(self._span)
        self._moved()

    def action_end(self) -> None:
        self.show_end()

    def action_sideways(self, by: int) -> None:
        """Show columns further left or right, unless lines are wrapped."""
        if self.wraps:
            return
        self._left = max(0, min(FAR, self._left + by * _SIDEWAYS))
        if self._most() > self._cut:
            self._forget()
        self._place(self._span)
        self._moved()

    def on_resize(self) -> None:
        """Lay out for the new size."""
        self._drawn.clear()
        self._place(self._span)
        self.update()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._by_mouse(event, -3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._by_mouse(event, 3)

    def on_scroll_to(self, event: ScrollTo) -> None:
        """The scrollbar was moved."""
        event.stop()
        event.prevent_default()
        if event.y is not None:
            self.follows = False
            self._top, self._row = self._span.first + round(event.y), 0
            self._place(self._span)
            self.follows = self._is_at_end()
            self._moved()

    def _by_mouse(self, event: events.MouseEvent, by: int) -> None:
        event.stop()
        event.prevent_default()
        self.action_go(by)

    def _moved(self) -> None:
        self.post_message(self.Moved())
        self.update()

    def _is_at_end(self) -> bool:
        height = self.size.height
        if not self.wraps:
            return self._top >= self._span.end - height
        top = self._end()
        return top is not None and (self._top, self._row) >= top

    # ------------------------------------------------------------------ loading

    def _load(self, source: LogSource, version: int, span: Span, part: Part) -> None:
        """In a thread: read lines, and make them ready."""
        try:
            first, found = source.lines(part)
        except BrokenOff:
            return
        except AgentlessError as error:
            self.post_message(self.Failed(str(error)))
            return
        lines = {number: _line(stream, data, span) for number, (stream, data) in enumerate(found, first)}
        in_app(self.app, self._loaded, version, span, lines, part.cut)

    def _loaded(self, version: int, span: Span, lines: dict[int, _Line], cut: int) -> None:
        if version != self._version or not self.is_mounted:
            return
        self._loading = False
        self._cut = cut
        for number, line in lines.items():
            if before := self._lines.pop(number, None):
                self._held -= before.size
            self._lines[number] = line
            self._held += line.size
        self._place(span)
        top, last = self.in_view
        for number in list(self._lines):
            if self._held <= KEPT:
                break
            if not top <= number <= last:
                self._held -= self._lines.pop(number).size
        self.post_message(self.Moved())
        if self._again or (lines and self._missing()):
            self.update()

    def _forget(self) -> None:
        self._version += 1
        self._lines.clear()
        self._held = 0
        self._loading = False

    def _most(self) -> int:
        """Bytes of a line that are enough to show it."""
        if self.wraps:
            return LINE
        enough = 4096
        while enough < 8 * (self._left + self.size.width) and enough < LINE:
            enough *= 2
        return enough

    def _has(self, number: int) -> bool:
        """Whether a line is in memory as it is now: one that had not ended may have changed."""
        line = self._lines.get(number)
        return line is not None and (number < line.of.ended or line.of == self._span)

    def _missing(self) -> Part | None:
        """Lines in view that are not in memory, or such that are needed to know which ones are in view."""
        height, span = self.size.height, self._span
        number, rows = self._top, self._row
        while rows < 0 and number > span.first:
            number -= 1
            if not self._has(number):
                return Part(number + 1, height, self.only, back=True)
            rows += self._rows_of(number)
        number, rows = self._top, -max(0, self._row)
        while rows < height and number < span.end:
            if not self._has(number):
                return Part(number, height, self.only)
            rows += self._rows_of(number)
            number += 1
        number = self._top if number == span.end else span.first
        while rows < height and number > span.first:
            number -= 1
            if not self._has(number):
                return Part(number + 1, height, self.only, back=True)
            rows += self._rows_of(number)
        return None

    # ------------------------------------------------------------------- layout

    def _rows_of(self, number: int) -> int:
        return len(self._lines[number].wrapped(self._columns)) if self.wraps else 1

    @property
    def _columns(self) -> int:
        return max(1, self.scrollable_content_region.width)

    def _place(self, span: Span) -> None:
        """Say what is in view, and draw it."""
        self._span = span
        height = self.size.height
        if not self.wraps:
            last = max(span.first, span.end - height)
            self._top = last if self.follows else max(span.first, min(self._top + self._row, last))
            self._row = 0
        else:
            self._place_wrapped()
        self._layout = list(self._in_view(height))
        if self.size.height:
            self._scroll()

    def _place_wrapped(self) -> None:
        span, end = self._span, self._end()
        if self.follows:
            if end is not None:
                self._top, self._row = end
            return
        self._top = max(span.first, min(self._top, span.end - 1))
        while self._row < 0 and self._top > span.first and self._has(self._top - 1):
            self._top -= 1
            self._row += self._rows_of(self._top)
        if self._row < 0 and self._top <= span.first:
            self._row = 0
        while self._row > 0 and self._has(self._top) and self._row >= self._rows_of(self._top):
            if self._top + 1 >= span.end:
                self._row = self._rows_of(self._top) - 1
                break
            self._row -= self._rows_of(self._top)
            self._top += 1
        if end is not None and (self._top, self._row) > end:
            self._top, self._row = end

    def _end(self) -> tuple[int, int] | None:
        """The line and row on top when the end is in view; None while that is not known."""
        number, rows, height = self._span.end, 0, self.size.height
        while rows < height and number > self._span.first:
            if not self._has(number - 1):
                return None
            number -= 1
            rows += self._rows_of(number)
        return number, max(0, rows - height)

    def _in_view(self, height: int) -> Iterator[tuple[int, list[Piece]]]:
        number, row = self._top, max(0, self._row)
        for _ in range(height):
            if number >= self._span.end:
                return
            line = self._lines.get(number)
            if line is None:
                yield number, []
            elif not self.wraps:
                yield number, line.pieces
            else:
                rows = line.wrapped(self._columns)
                yield number, rows[row] if row < len(rows) else []
                row += 1
                if row < len(rows):
                    continue
            number, row = number + 1, 0

    def _scroll(self) -> None:
        """Let the scrollbar show it."""
        size = Size(self.scrollable_content_region.width, self.length())
        if size != self.virtual_size:
            self.virtual_size = size
        y = self._top - self._span.first
        if self.scroll_offset.y != y:
            self.scroll_target_y = y
            self.scroll_y = y
        self.redraw()

    def length(self) -> int:
        lines = self._span.end - self._span.first
        return lines + self.size.height - 1 if self.wraps and lines > 1 else lines

    def draw(self, y: int) -> list[Piece]:
        row = y - self.scroll_offset.y
        if not 0 <= row < len(self._layout):
            return []
        number, pieces = self._layout[row]
        if not self.wraps:
            pieces = _window(pieces, self._left, self.scrollable_content_region.width)
        if not self.sought:
            return pieces
        return _marked(pieces, self.sought, "found" if number == self._match else "matched")

    def _style(self, names: str) -> Style:
        words = names.split()
        style: Style = super()._style(" ".join(word for word in words if not word.startswith(_SGR)))
        for word in words:
            if word.startswith(_SGR):
                style += _look(word.removeprefix(_SGR))
        return style


def _line(stream: int, data: bytes, span: Span) -> _Line:
    base, text = _STREAMS.get(stream, ""), _with_few_marks(data.decode(errors="replace"))
    pieces = [(part, f"{base} {_SGR}{look}".strip() if look else base) for part, look in spans(text)]
    return _Line(pieces, span, len(text) + 200)


def _with_few_marks(text: str) -> str:
    """The text without characters of no width but the first ones of each run: a terminal draws all of them."""
    if text.isascii() or not any(map(combining, text)):
        return text
    found, run = [], 0
    for character in text:
        run = 0 if cell_len(character) or character < " " else run + 1
        if run <= MARKS:
            found.append(character)
    return "".join(found)


@lru_cache(4096)
def _look(words: str) -> Style:
    """The style of a look: the terminal's own colours stay what they are in the theme."""
    codes = words.split(";")
    on: dict[str, bool] = {}
    grounds: dict[str, Color] = {}
    while codes:
        code = int(codes.pop(0))
        if code in (38, 48):
            mode = codes.pop(0)
            values = [int(codes.pop(0)) for _ in range(1 if mode == "5" else 3)]
            colour = Color.from_ansi(values[0]) if mode == "5" else Color.from_rgb(*values)
            grounds["color" if code == 38 else "bgcolor"] = colour
        elif code in _ATTRIBUTES:
            on[_ATTRIBUTES[code]] = True
        else:
            bright = 8 if code >= 90 else 0
            is_ground = code // 10 in (4, 10)
            grounds["bgcolor" if is_ground else "color"] = Color.from_ansi(code % 10 + bright)
    return Style(**on, **grounds)  # type: ignore[arg-type]


_ATTRIBUTES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}


def _window(pieces: list[Piece], left: int, width: int) -> list[Piece]:
    """The columns from `left` on; with … where more follows."""
    found: list[Piece] = []
    at = 0
    for text, style in pieces:
        if at > left + width:
            break
        if text.isascii():
            begin = max(0, left - at)
            part, size = text[begin : max(0, left + width + 1 - at)], len(text)
        else:
            size = cell_len(text)
            part = _cells(text, left - at, left + width + 1 - at)
        if part:
            found.append((part, style))
        at += size
    if sum(cell_len(text) for text, _ in found) <= width:
        return found
    kept, room = [], width - 1
    for text, style in found:
        part = text if cell_len(text) <= room else _cells(text, 0, room)
        kept.append((part, style))
        room -= cell_len(part)
        if part != text:
            break
    return [*kept, (" " * room + "…", kept[-1][1] if kept else "")]


def _cells(text: str, begin: int, end: int) -> str:
    """The characters that lie within these columns as a whole."""
    found, at = [], 0
    for character in text:
        size = cell_len(character)
        if at >= begin and at + size <= end:
            found.append(character)
        at += size
        if at >= end:
            break
    return "".join(found)


def _marked(pieces: list[Piece], words: str, style: str) -> list[Piece]:
    """The pieces with the words marked, also where they lie in several pieces."""
    text = "".join(part for part, _ in pieces)
    places = [found.span() for found in re.finditer(re.escape(words), text, re.IGNORECASE)]
    if not places:
        return pieces
    marked: list[Piece] = []
    at = next_place = 0
    for part, look in pieces:
        end = at + len(part)
        while at < end:
            while next_place < len(places) and places[next_place][1] <= at:
                next_place += 1
            start, stop = places[next_place] if next_place < len(places) else (end, end)
            is_found = start <= at
            until = min(end, stop if is_found else start)
            marked.append((text[at:until], style if is_found else look))
            at = until
    return marked
