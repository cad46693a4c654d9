"""The fields of the forms: each is one widget that draws its label itself, so that a form opens at once."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, OptionList, TextArea
from textual.widgets.option_list import Option

from agentless.model.text import cut, printable
from agentless.tui.data.form import FormField, is_name
from agentless.tui.data.picks import Pick, has_picks, typed_last
from agentless.tui.widgets.lines import content, fitted

LABEL = 18
"""The columns of a label."""
_LIST = "▾"
"""Marks a field that has a list."""
_MOST_PICKS = 200
"""Lines of a list."""


class Field(Input):
    """A line. Enter focuses the next field at once: the next key is that field's."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "next", show=False, priority=True)]

    def render_line(self, y: int) -> Strip:
        return _visible(super().render_line(y))

    def action_next(self) -> None:
        self.screen.focus_next()

    def on_paste(self, event: events.Paste) -> None:
        """Join several lines. Textual keeps the first of them."""
        lines = event.text.splitlines()
        if len(lines) > 1:
            event.prevent_default().stop()
            self._on_paste(events.Paste(" ".join(line.strip() for line in lines if line.strip())))


class Labelled:
    """Draws the label of a field in its padding on the left, and its mark on the right; `about` is the field."""

    about: FormField
    mark = ""

    def render_lines(self, crop: Region) -> list[Strip]:
        widget: Any = self
        full: Style = widget.get_component_rich_style("field--label")
        style = Style(color=full.color, bold=full.bold, dim=full.dim, reverse=full.reverse)
        blank = widget.parent.rich_style
        strips: list[Strip] = []
        for y, strip in enumerate(super().render_lines(crop), crop.y):  # type: ignore[misc]
            label = Segment(fitted("" if y else self.about.label, LABEL), blank if y else blank + style)
            line = Strip.join([Strip([label]).crop(crop.x, min(crop.right, LABEL)), strip.crop(max(0, LABEL - crop.x))])
            if self.mark and not y and crop.right >= widget.outer_size.width:
                mark = Segment(f" {self.mark}", widget.rich_style + style)
                line = Strip.join([line.crop(0, line.cell_length - 2), Strip([mark])])
            strips.append(line)
        return strips


class LineField(Labelled, Field):
    """A field of one line."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"field--label"}

    def __init__(self, about: FormField, text: str) -> None:
        listed = has_picks(about.name)
        super().__init__(text, id=about.name, classes="field -listed" if listed else "field")
        self.about = about
        self.mark = _LIST if listed else ""

    @property
    def text(self) -> str:
        return self.value

    def render_line(self, y: int) -> Strip:
        self.set_reactive(Input.placeholder, cut(self.about.hint, self.scrollable_content_region.width))
        return super().render_line(y)

    def action_next(self) -> None:
        """Take what is chosen in the list of this field, or go on."""
        if not self.screen.take_pick():  # type: ignore[attr-defined]
            super().action_next()


class Area(Labelled, TextArea):
    """A field of several lines; at its ends, the arrows lead to other fields."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"field--label"}

    def __init__(self, about: FormField, text: str) -> None:
        super().__init__(text, tab_behavior="focus", placeholder=about.hint, id=about.name, classes="field")
        self.about = about

    def render_line(self, y: int) -> Strip:
        if not self.text:
            self.set_reactive(TextArea.placeholder, cut(self.about.hint, self.scrollable_content_region.width))
        return _visible(super().render_line(y))

    def action_cursor_down(self, select: bool = False) -> None:
        """On the last line, focus the next field."""
        if select or not self.navigator.is_last_wrapped_line(self.cursor_location):
            super().action_cursor_down(select)
        else:
            self.screen.focus_next()

    def action_cursor_up(self, select: bool = False) -> None:
        """On the first line, focus the field before."""
        if select or not self.navigator.is_first_wrapped_line(self.cursor_location):
            super().action_cursor_up(select)
        else:
            self.screen.focus_previous()


class CommandField(Area):
    """The command. Enter focuses the next field, but pasted text may have several lines."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "app.focus_next", show=False, priority=True)]


class Secrets(Area):
    """Variables whose values are not shown, and cannot be copied out.

    A line below a value may belong to it. Only NAME=VALUE is surely another variable, where VALUE is more than the `=`
    at the end of Base64, and so are the names that the field began with.
    """

    def __init__(self, about: FormField, text: str) -> None:
        super().__init__(about, text)
        self._known = set(text.split("\n"))

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index).plain
        name, sign, value = line.partition("=")
        is_variable = name in self._known or bool(value.strip("=")) or self._has_names_above(line_index)
        clear = name + sign if is_variable and is_name(name) else ""
        return Text(clear + "•" * (len(line) - len(clear)), end="", no_wrap=True)

    def _has_names_above(self, line_index: int) -> bool:
        """Whether all lines above are names without values."""
        lines = (self.document.get_line(at) for at in range(line_index))
        return all(is_name(line) or not line for line in lines)

    def action_copy(self) -> None:
        """Nothing: it would put values into the clipboard."""

    def action_cut(self) -> None:
        """Nothing, likewise."""


class Flag(Labelled, Widget, can_focus=True):
    """A yes or no; `text` is "yes", or empty for no."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"field--label"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "turn", show=False),
        Binding("enter", "app.focus_next", show=False, priority=True),
    ]
    text = reactive("")

    class Changed(Message):
        """It was set or unset."""

    def __init__(self, about: FormField, text: str) -> None:
        super().__init__(id=about.name, classes="field")
        self.about = about
        self.set_reactive(Flag.text, text)

    def render(self) -> Content:
        sign = "[x]" if self.text else "[ ]"
        return content(sign, (f" {cut(self.about.hint, max(1, self.content_size.width - 4))}", "dim"))

    def action_turn(self) -> None:
        self.text = "" if self.text else "yes"
        self.post_message(self.Changed())

    def on_click(self) -> None:
        self.action_turn()


class Fold(Widget, can_focus=True):
    """The line of a panel: its heading, and which of its fields are filled in, or else which it has.

    Enter or a click opens and closes it; the next key finds its fields there.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "turn", show=False, priority=True)]
    filled: reactive[tuple[str, ...]] = reactive(())
    is_open = reactive(False)

    def __init__(self, heading: str, labels: tuple[str, ...], filled: tuple[str, ...]) -> None:
        super().__init__()
        self.heading, self._labels = heading, labels
        self.set_reactive(Fold.filled, filled)

    def render(self) -> Content:
        head = f"{'▾' if self.is_open else '▸'} {self.heading}"
        width = max(1, self.content_size.width - len(head) - 2)
        if self.is_open:
            return content((head, "bold"))
        if self.filled:
            return content((f"{head}: ", "bold"), cut(", ".join(self.filled), width))
        return content((head, "bold"), (f"  {cut(', '.join(self._labels), width)}", "dim"))

    async def action_turn(self) -> None:
        await self.screen.turn(self)  # type: ignore[attr-defined]

    async def on_click(self) -> None:
        await self.action_turn()


class Picks(OptionList, can_focus=False):
    """The list of a field, below it; the field keeps the focus. Typing narrows it."""

    def __init__(self, field: LineField) -> None:
        super().__init__(compact=True)
        self.field = field
        self.is_narrowed = False
        self._found: list[Pick] = []

    @property
    def _chosen(self) -> Pick | None:
        return None if self.highlighted is None else self._found[self.highlighted]

    @property
    def taken(self) -> str:
        """The text of the field with what is chosen."""
        before, _ = typed_last(self.field.about.name, self.field.value)
        return self.field.value if self._chosen is None else before + self._chosen.value

    def show(self, found: list[Pick]) -> None:
        """Show those that have the text in them, and keep the choice; what is known of each stands in a column."""
        chosen = self._chosen and self._chosen.value
        _, typed = typed_last(self.field.about.name, self.field.value)
        words = typed.lower() if self.is_narrowed else ""
        matching = [each for each in found if words in f"{each.value} {each.about}".lower()]
        self._found = matching[:_MOST_PICKS]
        width = self.field.content_size.width
        wide = min(40, width * 2 // 3, max((len(each.value) for each in self._found), default=0))
        self.clear_options()
        self.add_options(
            Option(content(fitted(each.value, wide), (f"  {cut(each.about, max(1, width - wide - 2))}", "dim")))
            for each in self._found
        )
        if more := len(matching) - len(self._found):
            self.add_option(Option(content((f"{more:,} more; type to narrow", "dim")), disabled=True))
        if not self._found:
            self.add_option(Option(content(("Nothing known", "dim")), disabled=True))
        values = [each.value for each in self._found]
        self.highlighted = (values.index(chosen) if chosen in values else 0) if values else None


def made(about: FormField, text: str) -> LineField | Area | Flag:
    """The widget of a field."""
    shapes: dict[str, type[LineField | Area | Flag]] = {
        "line": LineField,
        "lines": Area,
        "command": CommandField,
        "secrets": Secrets,
        "flag": Flag,
    }
    field: LineField | Area | Flag = shapes[about.shape](about, text)
    return field


def _visible(strip: Strip) -> Strip:
    """Replace control characters: the fields of a copied task hold what another user chose."""
    if strip.text.isprintable():
        return strip
    segments = [Segment(printable(text), style) for text, style, _ in strip]
    return Strip(segments).adjust_cell_length(strip.cell_length)
