"""Text of which a line that is folded goes on further in than it begins."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from agentless.tui.widgets.lines import Piece, content, fitting

_LABEL = re.compile(r"\S+(?: \S+)* {2,}(?=\S)")
_FURTHER = 2
"""The columns that a line without a label goes on further in."""
_LEAST = 20
"""The least width of what has an indent."""


class Hanging(Static):
    """Such a text, folded anew for each width."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, markup=False)
        self._parts: list[str | Piece] = []
        self._width = 0

    def show(self, parts: list[str | Piece]) -> None:
        """Show these."""
        self._parts = parts
        self._width = self.content_size.width
        self.update(hung(content(*parts), self._width))

    def on_resize(self) -> None:
        """Fold it for this width."""
        if self.content_size.width != self._width:
            self.show(self._parts)


def hung(text: Content, width: int) -> Content:
    """The text with its lines folded to this width, behind their label or their indent."""
    return Content("\n").join([row for line in text.split(allow_blank=True) for row in _folded(line, width)])


def _folded(line: Content, width: int) -> Iterator[Content]:
    plain = line.plain.rstrip()
    label = _LABEL.match(plain)
    indent = label.end() if label else len(plain) - len(plain.lstrip()) + _FURTHER
    if cell_len(plain) <= width or width - indent < _LEAST:
        yield line
        return
    begin, before = 0, 0
    while begin < len(plain):
        end = fitting(plain, begin, width - before)
        space = plain.rfind(" ", begin + (0 if begin else indent), end + 1) if end < len(plain) else -1
        end = space if space > begin else end
        yield Content(" " * before) + line[begin:end]
        begin, before = end + len(plain[end:]) - len(plain[end:].lstrip(" ")), indent
