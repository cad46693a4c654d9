"""The fields of the submit form: how they take keys, and paint what is in them."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widgets import Input, TextArea

from agentless.model.text import printable


class Field(Input):
    """A line of the form. Enter goes on at once: the next key is the next field's."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "app.focus_next", show=False, priority=True)]

    def render_line(self, y: int) -> Strip:
        """What is in it, as it may be painted."""
        return _visible(super().render_line(y))


class Variables(TextArea):
    """The variables, one a line."""

    def render_line(self, y: int) -> Strip:
        """What is in it, as it may be painted."""
        return _visible(super().render_line(y))


class CommandField(Variables):
    """The command, on as many lines as it has. Enter goes on, as in a line; what is pasted may have several."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "app.focus_next", show=False, priority=True)]

    def action_cursor_down(self, select: bool = False) -> None:
        """Down goes on from the last line."""
        if select or not self.navigator.is_last_wrapped_line(self.cursor_location):
            super().action_cursor_down(select)
        else:
            self.screen.focus_next()


def _visible(strip: Strip) -> Strip:
    """Without control characters: a field holds what another user chose, where it begins like a task of that one."""
    if strip.text.isprintable():
        return strip
    segments = [Segment(printable(text), style) for text, style, _ in strip]
    return Strip(segments).adjust_cell_length(strip.cell_length)
