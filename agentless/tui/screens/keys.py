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
    ("1 … 8, Tab", "change the view"),
    ("↑ ↓ j k, PgUp PgDn, g G", "move"),
    ("Enter, double click", "show details of the GPU, node, task or workflow"),
    ("/", "filter: train state:running owner:alice !debug"),
    ("/ in the overview, :", "search tasks, nodes, GPUs, workflows, commands"),
    ("Space", "mark a task or node; actions apply to all marked"),
    ("X", "write the rows to a CSV or JSON file"),
    ("Z", "undo a drain, resume, pause or move"),
    ("Esc", "clear marks and filter; go back"),
    ("o O, click on a title", "sort by the next or previous column"),
    ("i", "reverse the order"),
    ("[  ]", "overview: scroll the problems and the queue"),
    ("<  >", "details: plots of a shorter or longer time"),
    ("←  →, click", "details: values of the plots at a moment"),
    ("m  b", "heat map: another number; group nodes by a label"),
    ("y", "copy the selected row, or the name of what is open"),
    ("m  a", "tasks: show only your tasks; hide ended tasks"),
    ("t  u  e", "timeline; usage; envs"),
    ("← → 1 … 6", "details of a task: another tab"),
    ("c", "colors: dark, light, high contrast, terminal"),
    ("S", "start the stopped controller"),
    ("q  Ctrl+C", "quit the dashboard; tasks keep running"),
)
_READ = (
    ("f", "follow new output"),
    ("/  n  N", "search; next or previous match"),
    ("t", "go to a line, a percentage or a time"),
    ("w", "wrap or cut long lines"),
    ("← →", "show columns further left or right"),
    ("1  2", "show only stdout or stderr; again: both"),
    ("|", "show another log beside this one"),
    ("S", "save the whole log to a file"),
)
_FILL = (
    ("Tab  Enter", "next field"),
    ("↓", "open the list of a field (▾); typing narrows it"),
    ("Space", "set or unset [ ]; open or close a panel"),
    ("Ctrl+S", "submit"),
    ("Esc", "discard the form"),
)
_SIGNS = (
    (f"{SIGNS['free']}  00 … 99  ▁ … █", "free; allocated (utilization, or what m chose)"),
    (f"{UNMEASURED}", "allocated, utilization unknown"),
    (f"{SIGNS['foreign']}", "foreign: used by a process outside agentless"),
    (f"{SIGNS['unhealthy']}  {SIGNS['unknown']}", "unhealthy; unknown, or node unreachable"),
    (f"{SIGNS['drained']}  {SIGNS['reserved']}  {SIGNS['excluded']}", "drained; reserved; excluded by the inventory"),
    (f"{SIGNS['partitioned']}", "in slices, which follow it"),
)


class Keys(ModalScreen[None]):
    """The help."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Back")]
    CSS = """
    Keys { align: center middle; }
    Keys > VerticalScroll { width: 92; max-width: 100%; height: auto; max-height: 98%; border: round $primary;
        background: $surface; padding: 0 1; scrollbar-size-vertical: 1; }
    """

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            acts = [(act.key, act.help) for act in ACTIONS]
            pages = (
                ("Views", _LOOK),
                ("Actions", acts),
                ("Log", _READ),
                ("Form", _FILL),
                ("GPU symbols, when many share a line", _SIGNS),
            )
            for title, rows in pages:
                lines: list[str | tuple[str, str]] = [(f"{title}\n", "bold")]
                for key, words in rows:
                    lines += [(f"  {key:24}", "$text-primary"), f"{words}\n"]
                yield Static(Content.assemble(*lines))
