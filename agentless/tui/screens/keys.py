"""All keys, on one page."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from agentless.tui.data.actions import ACTIONS
from agentless.tui.widgets.look import SIGNS, UNMEASURED

_LOOK = (
    ("1 … 6, Tab", "change the view"),
    ("↑ ↓ j k, PgUp PgDn, g G", "move"),
    ("Enter, or click twice", "show all about the GPU, node or task"),
    ("/", "filter: only rows with these words; state:running owner:alice !not"),
    ("Esc", "clear the filter; go back"),
    ("o O, or click a title", "sort by the next or the previous column; i reverses"),
    ("[  ]", "in the overview: scroll problems and queue"),
    ("m  a", "only my tasks; hide tasks that have ended"),
    (":  or  Ctrl+P", "find a command by its name"),
    ("c", "colors: dark, light, or the terminal's own"),
    ("S", "start a controller that was stopped"),
    ("q  Ctrl+C", "leave the dashboard; tasks continue"),
)
_READ = (
    ("f", "follow"),
    ("/  n  N", "search, next, previous"),
    ("w", "wrap long lines, or cut them (…)"),
    ("1  2", "only stdout, only stderr; again: all"),
    ("S", "save the whole log to a file"),
)
_FILL = (
    ("Tab  Enter", "next field"),
    ("↓", "at Image: choose one that is in use"),
    ("Ctrl+S", "submit"),
    ("Esc", "discard the form"),
)
_SIGNS = (
    (f"{SIGNS['free']}  ▁ … █", "free; held by a task, as high as its utilization"),
    (f"{UNMEASURED}", "held by a task, utilization unknown"),
    (f"{SIGNS['foreign']}", "foreign: used by a process outside agentless"),
    (f"{SIGNS['unhealthy']}  {SIGNS['unknown']}", "unhealthy; unknown, or its node does not answer"),
    (f"{SIGNS['drained']}  {SIGNS['reserved']}  {SIGNS['excluded']}", "drained, reserved, excluded by the inventory"),
    ("second column  ^", "how full its memory is; hot"),
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
        with VerticalScroll():
            acts = [(act.key, act.help) for act in ACTIONS]
            pages = (
                ("Look", _LOOK),
                ("Actions", acts),
                ("Log", _READ),
                ("Form", _FILL),
                ("GPU symbols, when many share a line", _SIGNS),
            )
            for title, rows in pages:
                lines: list[str | tuple[str, str]] = [(f"{title}\n", "bold")]
                for key, words in rows:
                    lines += [(f"  {key:26}", "$text-primary"), f"{words}\n"]
                yield Static(Content.assemble(*lines))
