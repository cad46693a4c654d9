"""The fields of the form: what they are called, how they take keys, how a command is read."""

from __future__ import annotations

import re
import shlex
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widgets import Input, TextArea

from agentless.model.text import printable

FIELDS = (
    ("target", "Where", "node1::0, 2xA100:40G or 1x; several: one task each"),
    ("command", "Command", "python train.py --lr 0.1; span:[0.1,0.01] makes a sweep"),
    ("image", "Image", "default: the inventory's; ↓ lists those in use"),
    ("name", "Name", "to refer to the task by"),
    ("node", "Node", "only this node; several: any of them"),
    ("cores", "Cores", "like 4"),
    ("memory", "Memory", "like 16GiB"),
    ("time_limit", "Time limit", "like 8h; short tasks can fill gaps in the queue"),
    ("priority", "Priority", "-1000 to 1000"),
    ("retries", "Retries", "retry up to so many times on failure"),
)
_LABELS = {name.replace("_", "-"): label.lower() for name, label, _ in FIELDS} | {"env": "variables"}
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_CONTINUED = re.compile(r"(\\[^\n])|\\\n")


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


class Command(Variables):
    """The command, on as many lines as it has. Enter goes on, as in a line; what is pasted may have several."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "app.focus_next", show=False, priority=True)]

    def action_cursor_down(self, select: bool = False) -> None:
        """Down goes on from the last line."""
        if select or not self.navigator.is_last_wrapped_line(self.cursor_location):
            super().action_cursor_down(select)
        else:
            self.screen.focus_next()

    @property
    def words(self) -> tuple[str, ...]:
        """Its words as a shell reads them: a line that ends with a backslash goes on in the next one."""
        joined = _QUOTED.sub(
            lambda found: found[0] if found[0].startswith("'") else _CONTINUED.sub(r"\1", found[0]), self.text
        )
        return tuple(shlex.split(joined))


def _visible(strip: Strip) -> Strip:
    """Without control characters: a field holds what another user chose, where it begins like a task of that one."""
    if strip.text.isprintable():
        return strip
    segments = [Segment(printable(text), style) for text, style, _ in strip]
    return Strip(segments).adjust_cell_length(strip.cell_length)


def in_fields(text: str) -> str:
    """What speaks of options, as `--time-limit`, so that it speaks of these fields."""
    return re.sub(r"(?<!\S)--([a-z-]+)", lambda found: _LABELS.get(found[1], found[0]), text)
