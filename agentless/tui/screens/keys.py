"""All keys, on one page: first those of what is shown, then all others in groups."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
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
    ("█░!", "memory 95% full; GPU held for 10 minutes, hardly used"),
)


_WIDTH = 92
_WIDE = 60
"""Cells from which all keys have space beside what they do."""


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
        self._width = 0

    def on_resize(self) -> None:
        """Lay it out anew where its lines have become longer or shorter."""
        if self._width != self._room:
            self.refresh(recompose=True)

    def compose(self) -> ComposeResult:
        self._width = self._room
        with VerticalScroll():
            pages: tuple[tuple[str, Sequence[tuple[str, str]]], ...] = (
                (f"Here: {printable(self._title)}", self._here),
                ("Views", [row for row in _LOOK if not self._is_here(row[0])]),
                ("Actions", [(act.key, act.help) for act in ACTIONS]),
                ("Details and reports", _OPEN),
                ("Log", _READ),
                ("Form", _FILL),
                ("GPU symbols, when many share a line", _SIGNS),
            )
            for title, rows in pages:
                if rows:
                    yield Static(Content.assemble((title, "bold"), *_columns(rows, self._width), "\n"))

    def _is_here(self, keys: str) -> bool:
        """Whether the keys are among those of what is shown, which are listed first."""
        here = {key for keys, _ in self._here for key in keys.split()}
        return here.issuperset(keys.partition(",")[0].split())

    @property
    def _room(self) -> int:
        """The cells of a line, without frame, scroll bar and a space."""
        return min(_WIDTH, self.app.size.width) - 6


def _columns(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str | tuple[str, str]]:
    """Keys and what they do, side by side; a long key is on a line of its own where there is little space."""
    first = 26 if width > _WIDE else 12
    for key, words in rows:
        yield "\n"
        yield (f"  {key}".ljust(first), "$text-primary")
        if len(key) + 2 >= first:
            yield "\n" + " " * first
        yield ("\n" + " " * first).join(textwrap.wrap(words, width - first))


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
