"""The input widgets of the submit form."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widgets import Input, TextArea

from agentless.model.text import printable


class Field(Input):
    """A line of the form. Enter focuses the next field at once: the next key is that field's."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "app.focus_next", show=False, priority=True)]

    def render_line(self, y: int) -> Strip:
        return _visible(super().render_line(y))


class Variables(TextArea):
    """The environment variables, one per line."""

    def render_line(self, y: int) -> Strip:
        return _visible(super().render_line(y))


class CommandField(Variables):
    """The command. Enter focuses the next field, but pasted text may have several lines."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "app.focus_next", show=False, priority=True)]

    def action_cursor_down(self, select: bool = False) -> None:
        """On the last line, focus the next field."""
        if select or not self.navigator.is_last_wrapped_line(self.cursor_location):
            super().action_cursor_down(select)
        else:
            self.screen.focus_next()


def _visible(strip: Strip) -> Strip:
    """Replace control characters: the fields of a copied task hold what another user chose."""
    if strip.text.isprintable():
        return strip
    segments = [Segment(printable(text), style) for text, style, _ in strip]
    return Strip(segments).adjust_cell_length(strip.cell_length)
