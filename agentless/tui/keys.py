"""All keys, on one page."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from agentless.tui.acts import ACTS

_LOOK = (
    ("1 … 6, Tab", "another view"),
    ("↑ ↓ j k, PgUp PgDn, g G", "move"),
    ("Enter, or click twice", "details of the GPU, node or task"),
    ("/", "only rows with these words; state:running owner:alice !not"),
    ("Esc", "all rows again; back"),
    ("o O, or click a title", "sort by the next column, the one before; i reverses"),
    ("[  ]", "in the overview: scroll what waits and what is wrong"),
    ("m  a", "only my tasks; without those that have ended"),
    (":  or  Ctrl+P", "find any command by its name"),
    ("c", "dark, light, or the terminal's own colours"),
    ("S", "start a controller that was stopped"),
    ("q  Ctrl+C", "leave: everything on the nodes goes on"),
)
_READ = (
    ("f", "follow"),
    ("/  n  N", "search, next, the one before"),
    ("w", "wrap long lines"),
    ("1  2", "only stdout, only stderr"),
    ("S", "save to a file"),
)


_FILL = (
    ("Tab  Enter", "the next field"),
    ("↓", "at Image: those in use"),
    ("Ctrl+S", "submit"),
    ("Esc", "leave it"),
)


class Keys(ModalScreen[None]):
    """The help."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Back")]
    CSS = """
    Keys { align: center middle; }
    Keys > VerticalScroll { width: 92; max-width: 100%; height: auto; max-height: 98%; border: round $primary;
        background: $surface; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        """The lists."""
        with VerticalScroll():
            acts = [(act.key, act.help) for act in ACTS]
            for title, rows in (("Look", _LOOK), ("Act", acts), ("In a log", _READ), ("In the form", _FILL)):
                lines: list[str | tuple[str, str]] = [(f"{title}\n", "bold")]
                for key, words in rows:
                    lines += [(f"  {key:26}", "$text-primary"), f"{words}\n"]
                yield Static(Content.assemble(*lines))
