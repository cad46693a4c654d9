"""The base of widgets drawn line by line: only visible lines are made, only changes are painted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from agentless.model.text import printable, printable_lines

Piece = tuple[str, str]
"""A text, and its styles: words of `Lines.COMPONENT_CLASSES`."""


class Lines(ScrollView, can_focus=True):
    """Paints what `draw` gives for each line; `redraw` paints only what has changed."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "good", "warn", "bad", "dim", "odd", "held", "strong", "chosen", "found", "matched", "stderr", "note",
        "util", "mem", "track", "sick", "cool", "warm", "axis", "grid", "cursor",
        "use0", "use1", "use2", "use3", "use4", "heat0", "heat1", "heat2", "heat3", "heat4",
        "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7",
        "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7",
    }  # fmt: skip
    DEFAULT_CSS = """
    Lines {
        scrollbar-size-vertical: 1;
        & > .good { color: $text-success; }
        & > .warn { color: $text-warning; }
        & > .bad { color: $text-error; text-style: bold; }
        & > .odd { color: $text-accent; }
        & > .held { color: $text-primary; }
        & > .dim { color: $text-muted; }
        & > .strong { text-style: bold; }
        & > .chosen { background: $surface-lighten-2; }
        &:focus > .chosen { background: $block-cursor-background; color: $block-cursor-foreground; }
        & > .found { background: $warning; color: $background; }
        & > .matched { background: $warning 35%; }
        & > .stderr { color: $text-warning; }
        & > .note { color: $text-muted; }
        & > .util { color: $utilization; }
        & > .mem { color: $memory; }
        & > .track { color: $track; }
        & > .sick { background: $error; color: auto; text-style: bold; }
        & > .cool { color: $text-muted; }
        & > .warm { color: $text-warning; }
        & > .axis { color: $text-muted; }
        & > .grid { color: $text-disabled; }
        & > .cursor { color: $text-warning; }
        & > .use0 { background: $utilization 10%; }
        & > .use1 { background: $utilization 25%; }
        & > .use2 { background: $utilization 40%; }
        & > .use3 { background: $utilization 55%; color: auto; }
        & > .use4 { background: $utilization; color: auto; }
        & > .heat0 { background: $utilization 12%; }
        & > .heat1 { background: $utilization 30%; }
        & > .heat2 { background: $warning 30%; }
        & > .heat3 { background: $warning; color: auto; }
        & > .heat4 { background: $error; color: auto; }
        & > .s0 { color: $utilization; }
        & > .s1 { color: $memory; }
        & > .s2 { color: $curve-2; }
        & > .s3 { color: $curve-3; }
        & > .s4 { color: $curve-4; }
        & > .s5 { color: $curve-5; }
        & > .s6 { color: $curve-6; }
        & > .s7 { color: $curve-7; }
        & > .f0 { color: $utilization; text-style: dim; }
        & > .f1 { color: $memory; text-style: dim; }
        & > .f2 { color: $curve-2; text-style: dim; }
        & > .f3 { color: $curve-3; text-style: dim; }
        & > .f4 { color: $curve-4; text-style: dim; }
        & > .f5 { color: $curve-5; text-style: dim; }
        & > .f6 { color: $curve-6; text-style: dim; }
        & > .f7 { color: $curve-7; text-style: dim; }
        &:ansi > .use0, &:ansi > .heat0 { text-style: dim; background: ansi_default; }
        &:ansi > .use1, &:ansi > .heat1 { background: ansi_default; }
        &:ansi > .use2 { color: ansi_cyan; background: ansi_default; }
        &:ansi > .use3 { color: ansi_cyan; text-style: bold; background: ansi_default; }
        &:ansi > .use4 { color: ansi_cyan; text-style: bold reverse; background: ansi_default; }
        &:ansi > .heat2 { color: ansi_yellow; background: ansi_default; }
        &:ansi > .heat3 { color: ansi_yellow; text-style: bold; background: ansi_default; }
        &:ansi > .heat4 { color: ansi_red; text-style: bold reverse; background: ansi_default; }
        &:ansi > .sick { color: ansi_red; background: ansi_default; text-style: bold reverse; }
        &:ansi > .axis, &:ansi > .grid, &:ansi > .cool { text-style: dim; }
        &:ansi > .dim, &:ansi > .note { text-style: dim; }
        &:ansi > .chosen { text-style: underline; }
        &:ansi:focus > .chosen { color: ansi_default; background: ansi_default; text-style: reverse; }
        &:ansi > .found { color: ansi_default; background: ansi_default; text-style: reverse; }
        &:ansi > .matched { background: ansi_default; text-style: bold underline; }
        &:nocolor > .stderr { text-style: bold; }
        &:nocolor > .note { text-style: underline; }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self._drawn: dict[int, list[Piece]] = {}

    def draw(self, y: int) -> list[Piece]:
        """The pieces of a line, counted from 0."""
        raise NotImplementedError

    def length(self) -> int:
        """The number of lines."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Paint what has changed since the last time."""
        size = Size(self.scrollable_content_region.width, self.length())
        if size != self.virtual_size:
            self.virtual_size = size
            self._drawn.clear()
            self.refresh()
            return
        top, height = self.scroll_offset.y, self.size.height
        changed = []
        for y in range(top, top + height):
            before, after = self._drawn.get(y, []), self._line(y)
            self._drawn[y] = after
            if before != after:
                changed += [Region(x, y - top, width, 1) for x, width in _differences(before, after, self.size.width)]
        for y in [y for y in self._drawn if not top <= y < top + height]:
            del self._drawn[y]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        line = y + self.scroll_offset.y
        if line not in self._drawn:
            self._drawn[line] = self._line(line)
        segments = [Segment(text, self._style(names)) for text, names in self._drawn[line]]
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)

    def notify_style_update(self) -> None:
        """Forget what was painted in other colours."""
        super().notify_style_update()
        self._drawn.clear()

    def watch_show_vertical_scrollbar(self) -> None:
        """Lay out again: Textual ignores a request for a layout during a layout, and leaves no space for the bar.

        Then draw for the new width, of which Textual sends no event.
        """
        self.call_later(self.refresh, layout=True)
        self.call_later(self.on_resize)

    def on_resize(self) -> None:
        """Draw all lines for the new width."""
        self._drawn.clear()
        self.redraw()

    def _line(self, y: int) -> list[Piece]:
        """A line that is safe to paint: no text of it leaves its line, whatever users wrote."""
        return [(printable(text), names) for text, names in self.draw(y)]

    def _style(self, names: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - rich's Style, whatever Textual makes it
        return self.get_component_rich_style(*names.split()) if names else self.rich_style


class GivenLines(Lines, can_focus=False):
    """Lines that are made all at once."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.lines: list[list[Piece]] = []

    def length(self) -> int:
        return len(self.lines)

    def draw(self, y: int) -> list[Piece]:
        return self.lines[y] if y < len(self.lines) else []


def content(*parts: str | Piece) -> Content:
    """Text for a Textual widget: without markup, and without control characters but line breaks."""
    return Content.assemble(
        *(printable_lines(p) if isinstance(p, str) else (printable_lines(p[0]), p[1]) for p in parts)
    )


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """The text padded or cut to exactly `width` columns."""
    text = printable(text)
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    return " " * (width - length) + text if right else text + " " * (width - length)


def folded(text: str, width: int, most: int) -> list[str]:
    """The words in at most so many lines of this width; an ellipsis stands for what is missing."""
    lines: list[str] = []
    for word in printable(text).split():
        if lines and cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
            continue
        while cell_len(word) > width:
            end = max(1, fitting(word, 0, width))
            lines.append(word[:end])
            word = word[end:]  # noqa: PLW2901 - the rest of it
        lines.append(word)
    if len(lines) > most:
        lines[most - 1 :] = [fitted(f"{lines[most - 1]} …", width).rstrip()]
    return lines


def _differences(before: list[Piece], after: list[Piece], width: int) -> list[tuple[int, int]]:
    """The columns and widths where two lines differ; everything if their pieces do not align."""
    widths = [cell_len(text) for text, _ in before]
    if widths != [cell_len(text) for text, _ in after]:
        return [(0, width)]
    found, x = [], 0
    for old, new, wide in zip(before, after, widths, strict=True):
        if old != new:
            found.append((x, wide))
        x += wide
    return found


def wrapped(pieces: list[Piece], width: int) -> Iterator[list[Piece]]:
    """The pieces in rows of this width."""
    row: list[Piece] = []
    left = width
    for text, style in pieces:
        begin = 0
        while begin < len(text):
            end = begin + left if text.isascii() else fitting(text, begin, left)
            part = text[begin:end] or (text[begin] if left == width else "")
            if part:
                row.append((part, style))
            begin += len(part)
            left -= cell_len(part)
            if begin < len(text):
                yield row
                row, left = [], width
    if row:
        yield row


def fitting(text: str, begin: int, width: int) -> int:
    """Up to where the text fits in so many columns."""
    for end in range(begin, len(text)):
        width -= cell_len(text[end])
        if width < 0:
            return end
    return len(text)
