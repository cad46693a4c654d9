"""The lines of a log on the screen: one stream or both, cut or wrapped, searched."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, deque
from operator import itemgetter
from sys import getsizeof
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from textual.binding import Binding, BindingType
from textual.message import Message

from agentless.tui.data.log_text import Line
from agentless.tui.widgets.lines import Lines, Piece, fitted

KEPT = 100_000
"""The number of lines that are kept, the last ones."""
KEPT_BYTES = 32 * 2**20
"""The most bytes of their texts."""

_Numbered = tuple[int, int, str]
"""The number of a line, its stream, and its text or a part of that."""
_number = itemgetter(0)


class Log(Lines):
    """The lines of both streams. `only` is the one stream that is shown, None: both."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "go(-1)", "Up", show=False),
        Binding("down,j", "go(1)", "Down", show=False),
        Binding("pageup,b,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,space,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home,g", "go(-1000000000)", "Begin", show=False),
        Binding("end,G", "go(1000000000)", "End", show=False),
    ]
    DEFAULT_CSS = """
    Log { overflow-y: scroll; }
    """

    class Moved(Message):
        """It began to follow, or stopped following."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: deque[_Numbered] = deque()
        self._bytes = 0
        self._count = 0
        self._totals, self._dropped = Counter[int](), Counter[int]()  # lines of each stream
        self._begun: list[Line] = []
        self._rows: list[_Numbered] = []
        self._width = 0
        self.only: int | None = None
        self.wraps = False
        self.follows = True
        self.sought = ""

    def add(self, lines: list[Line], begun: list[Line]) -> None:
        """Add lines that have ended, and replace the unfinished ones."""
        del self._rows[bisect_left(self._rows, self._count, key=_number) :]
        new = [(self._count + at, stream, text) for at, (stream, text) in enumerate(lines)]
        self._count += len(new)
        self._totals.update(stream for stream, _ in lines)
        self._kept += new
        self._bytes += sum(getsizeof(text) for _, text in lines)
        while len(self._kept) > KEPT or self._bytes > KEPT_BYTES:
            _, stream, text = self._kept.popleft()
            self._bytes -= getsizeof(text)
            self._dropped[stream] += 1
        gone = bisect_left(self._rows, self._kept[0][0] if self._kept else self._count, key=_number)
        del self._rows[:gone]
        self._begun = begun
        self._rows += self._laid_out(new[-len(self._kept) :])
        self._rows += self._laid_out(self._numbered_begun())
        self._show(self.scroll_offset.y - gone)

    def lay_out(self) -> None:
        """Make all rows again, for another stream or width. Unless it follows, the same line stays in view."""
        y = self.scroll_offset.y
        top = self._rows[y][0] if y < len(self._rows) else self._count
        self._rows = self._laid_out([*self._kept, *self._numbered_begun()])
        self._show(bisect_left(self._rows, top, key=_number))

    def on_resize(self) -> None:
        """Wrap for the new width."""
        if self.wraps and self._width != self.scrollable_content_region.width:
            self.lay_out()

    def show_end(self) -> None:
        """Go to the end, and follow."""
        self.follows = True
        self._show(0)

    def length(self) -> int:
        return len(self._rows)

    def counts(self) -> tuple[int, int]:
        """How many of the shown lines are kept, and how many there were."""
        begun = sum(self.only in (None, stream) for stream, _ in self._begun)
        total, dropped = (
            count.total() if self.only is None else count[self.only] for count in (self._totals, self._dropped)
        )
        return total - dropped + begun, total + begun

    def draw(self, y: int) -> list[Piece]:
        if y >= len(self._rows):
            return []
        _, stream, text = self._rows[y]
        width = self.scrollable_content_region.width
        if cell_len(text) > width:
            text = fitted(text, width)
        style = {2: "stderr", 3: "note"}.get(stream, "")
        if not self.sought:
            return [(text, style)]
        pieces, at = [], 0
        for found in re.finditer(re.escape(self.sought), text, re.IGNORECASE):
            pieces += [(text[at : found.start()], style), (found.group(), "found")]
            at = found.end()
        return [*pieces, (text[at:], style)]

    def seek(self, by: int) -> bool:
        """Go to the next (1) or previous (-1) match; whether there is one."""
        words, here = self.sought.lower(), self.scroll_offset.y
        order = range(here + 1, len(self._rows)) if by > 0 else range(here - 1, -1, -1)
        for y in [*order, *(range(len(self._rows)) if by > 0 else range(len(self._rows) - 1, -1, -1))]:
            if words in self._rows[y][2].lower():
                self.follows = False
                self.scroll_to(y=y, animate=False, force=True)
                return True
        return False

    def action_go(self, by: int) -> None:
        """Scroll by lines; at the end it follows."""
        end = max(0, self.length() - self.size.height)
        y = max(0, min(self.scroll_offset.y + by, end))
        self.follows = y >= end and by > 0
        self.scroll_to(y=y, animate=False, force=True)
        self.post_message(self.Moved())

    def action_page(self, by: int) -> None:
        """Scroll by pages."""
        self.action_go(by * max(1, self.size.height - 1))

    def _numbered_begun(self) -> list[_Numbered]:
        return [(self._count + at, stream, text) for at, (stream, text) in enumerate(self._begun)]

    def _laid_out(self, lines: list[_Numbered]) -> list[_Numbered]:
        """The rows of these lines."""
        if self.only is not None:
            lines = [line for line in lines if line[1] == self.only]
        if not self.wraps:
            return lines
        self._width = width = max(1, self.scrollable_content_region.width)
        rows: list[_Numbered] = []
        for line in lines:
            number, stream, text = line
            if len(text) <= width and (text.isascii() or 2 * len(text) <= width):
                rows.append(line)
            elif text.isascii():
                rows += [(number, stream, text[at : at + width]) for at in range(0, len(text), width)]
            else:
                rows += [(number, stream, part) for part in chop_cells(text, width) or [""]]
        return rows

    def _show(self, y: int) -> None:
        """Scroll to the end, or to this row if it does not follow."""
        self.redraw()
        self.scroll_to(y=self.length() if self.follows else max(0, y), animate=False, force=True)
