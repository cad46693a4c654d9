"""All keys, on one page: first those of what is shown, then all others in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from agentless.model.text import printable
from agentless.tui.data.actions import ACTIONS
from agentless.tui.widgets.look import SIGNS, UNMEASURED

_LOOK = (
    ("1 … 8, Tab", "change the view"),
    ("t  u  e", "timeline; usage; envs"),
    ("↑ ↓ j k, PgUp PgDn, g G", "move"),
    ("Enter, double click", "show details of the GPU, node, task or workflow"),
    ("/", "filter: train state:running owner:alice !debug"),
    ("/ in the overview, :", "search tasks, nodes, GPUs, workflows, commands"),
    ("Space", "mark a task or node; actions apply to all marked"),
    ("X", "write the rows, or a log, to a file"),
    ("Z", "undo a drain, resume, pause or move"),
    ("Esc", "clear marks and filter; go back"),
    ("o O, click on a title", "sort by the next or previous column"),
    ("i", "reverse the order"),
    ("[  ]", "overview: scroll the problems and the queue"),
    ("M  L", "heat map: another number; group nodes by a label"),
    ("m  a", "tasks: show only your tasks; hide ended tasks"),
    ("y", "copy the selected row, or the name of the screen"),
    ("c", "colors: dark, light, high contrast, terminal"),
    ("S", "start the stopped controller"),
    ("q  Ctrl+C", "quit the dashboard; tasks keep running"),
)
_OPEN = (
    ("1 … 7, Tab", "details of a task: another tab"),
    ("<  >", "plots, timeline, usage: a shorter or longer time"),
    ("←  →, click", "plots: values at a moment"),
    ("L", "usage: group by owner, node or batch"),
    ("s  C", "envs: a shell in one; copy one to nodes"),
)
_READ = (
    ("f", "follow new output"),
    ("/  n  N  Esc", "search; next, previous match; end the search"),
    ("J", "jump to a line, a percentage or a time"),
    ("w", "wrap or cut long lines"),
    ("← →", "show columns further left or right"),
    ("1  2", "show only stdout or stderr; again: both"),
    ("|", "show another log beside this one"),
)
_FILL = (
    ("Tab  Enter", "next field"),
    ("↓", "open the list of a field (▾); typing narrows it"),
    ("Space", "set or unset [ ]; open or close a panel"),
    ("Ctrl+S", "submit"),
    ("Esc", "discard the form"),
)
_SIGNS = (
    (f"{SIGNS['free']}  00 … 99  ▁ … █", "free; allocated (utilization, or what M chose)"),
    (f"{UNMEASURED}", "allocated, utilization unknown"),
    (f"{SIGNS['foreign']}", "foreign: used by a process outside agentless"),
    (f"{SIGNS['unhealthy']}  {SIGNS['unknown']}", "unhealthy; unknown, or node unreachable"),
    (f"{SIGNS['drained']}  {SIGNS['reserved']}  {SIGNS['excluded']}", "drained; reserved; excluded by the inventory"),
    (f"{SIGNS['partitioned']}", "in slices, which follow it"),
)


class Keys(ModalScreen[None]):
    """The help: `here` are the keys of what is shown, `title` says what that is."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Back")]
    CSS = """
    Keys { align: center middle; }
    Keys > VerticalScroll { width: 92; max-width: 100%; height: auto; max-height: 98%; border: round $primary;
        background: $surface; padding: 0 1; scrollbar-size-vertical: 1; }
    """

    def __init__(self, here: Sequence[tuple[str, str]], title: str) -> None:
        super().__init__()
        self._here, self._title = here, title

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            pages: tuple[tuple[str, Sequence[tuple[str, str]]], ...] = (
                (f"Here: {printable(self._title)}", self._here),
                ("Views", _LOOK),
                ("Actions", [(act.key, act.help) for act in ACTIONS]),
                ("Details and reports", _OPEN),
                ("Log", _READ),
                ("Form", _FILL),
                ("GPU symbols, when many share a line", _SIGNS),
            )
            for title, rows in pages:
                lines: list[str | tuple[str, str]] = [(f"{title}\n", "bold")]
                for key, words in rows:
                    lines += [(f"  {key:24}", "$text-primary"), f"{words}\n"]
                if rows:
                    yield Static(Content.assemble(*lines))


def keys_of(screen: Screen[Any]) -> list[tuple[str, str]]:
    """The keys of a screen, and those of the actions that apply to what it shows, each with what it does."""
    app = screen.app
    keys: dict[str, list[str]] = {}
    words: dict[str, str] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        is_own = active.node is not app or binding.action.startswith("act(")
        if active.enabled and binding.tooltip and is_own:
            keys.setdefault(binding.action, []).append(app.get_key_display(binding))
            words[binding.action] = binding.tooltip
    return [("  ".join(keys[action]), words[action]) for action in words]
