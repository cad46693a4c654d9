"""A table: a line of titles, and below it the rows, of which one is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget

from agentless.model.text import printable
from agentless.tui.data.cluster import Row
from agentless.tui.widgets.lines import Lines, Piece, fitted

GAP = 2
LEAST = 26
"""Columns that the flexible column keeps; others are left out before it gets less."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its title, and the pieces of its cell for a row; `key` is what rows are sorted by, None: as it looks.

    The flexible one takes the room that is left. Of columns that do not fit the one with the highest `rank` goes first.
    """

    title: str
    cell: Callable[[Row], str | Piece]
    key: Callable[[Row], Any] | None = None
    right: bool = False
    flexible: bool = False
    rank: int = 0

    def piece(self, row: Row) -> Piece:
        """The cell as text and style."""
        found = self.cell(row)
        return (printable(found), "") if isinstance(found, str) else (printable(found[0]), found[1])


class Table(Vertical):
    """Shows rows, `name_of` each of which is a name that it keeps when it changes."""

    DEFAULT_CSS = "Table > Titles { height: 1; }"

    class Chosen(Message):
        """Another row has the cursor."""

    class LaidOut(Message):
        """Other columns may be shown."""

    class Opened(Message):
        """Enter was pressed on a row, or it was clicked twice."""

    class SortedBy(Message):
        """The title of a column was clicked."""

        def __init__(self, title: str) -> None:
            self.title = title
            super().__init__()

    def __init__(self, columns: Sequence[TableColumn], name_of: Callable[[Row], object]) -> None:
        super().__init__()
        self.columns = columns
        self.name_of = name_of
        self.sorted_by = ""
        self._widths = [0 for _ in columns]  # 0: there is nothing in it so far, and it is not shown
        self.titles = Titles(self)
        self.body = Body(self)

    def compose(self) -> ComposeResult:
        """Both parts."""
        yield self.titles
        yield self.body

    @property
    def rows(self) -> Sequence[Row]:
        """All rows, those on the screen and those beyond."""
        return self.body.rows

    @property
    def chosen(self) -> Row | None:
        """The row that has the cursor; None after that row has gone, until another one is chosen."""
        return self.body.chosen

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; the cursor stays on its row, wherever that is now."""
        self.body.show(rows)

    def choose(self, name: object) -> None:
        """Put the cursor on the row of this name, as soon as it is there."""
        self.body.choose(name)

    def hold(self) -> None:
        """Something is done to the chosen row: from now on the cursor is on no other one by itself."""
        self.body.held = True

    def pieces(self, row: Row, style: str = "") -> list[Piece]:
        """The line of a row, every cell in its place."""
        cells = [column.piece(row) for column in self.columns]
        before = list(self._widths)
        self._widths = [
            max(width, cell_len(text), cell_len(column.title) if text else 0)
            for column, width, (text, _) in zip(self.columns, before, cells, strict=True)
        ]
        if any(
            new > old
            for column, new, old in zip(self.columns, self._widths, before, strict=True)
            if not column.flexible
        ):
            self.call_later(self.repaint)
        found: list[Piece] = []
        for at, width in self._layout():
            text, own = cells[at]
            found.append((fitted(text, width, right=self.columns[at].right), f"{own} {style}".strip()))
            found.append((" " * GAP, style))
        return [*found, (" " * self.size.width, style)]

    def heading(self) -> list[tuple[str, int]]:
        """The titles and their widths, as they are shown."""
        return [(self.columns[at].title, width) for at, width in self._layout()]

    @property
    def hidden(self) -> list[str]:
        """The titles of columns that there is no room for."""
        shown = {at for at, _ in self._layout()}
        return [column.title for at, column in enumerate(self.columns) if self._widths[at] and at not in shown]

    def repaint(self) -> None:
        """Paint all of it anew."""
        self.titles.refresh()
        self.body.repaint()
        self.post_message(self.LaidOut())

    def on_resize(self) -> None:
        """Other columns have room."""
        self.post_message(self.LaidOut())

    def _layout(self) -> list[tuple[int, int]]:
        """Which columns are shown, and how wide they are."""
        shown = [at for at, column in enumerate(self.columns) if self._widths[at] or column.flexible]
        room = self.size.width - 1

        def needed() -> int:
            fixed = (LEAST if self.columns[at].flexible else self._widths[at] for at in shown)
            return sum(fixed) + GAP * len(shown)

        while needed() > room and len(shown) > 1:
            last = max(shown, key=lambda at: (self.columns[at].rank, at))
            if not self.columns[last].rank:
                break
            shown.remove(last)
        rest = max(1, LEAST + room - needed())
        return [(at, rest if self.columns[at].flexible else self._widths[at]) for at in shown]


class Titles(Widget):
    """The titles; a click on one sorts by it."""

    DEFAULT_CSS = "Titles { color: $text-muted; text-style: bold; }"

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table

    def render(self) -> str:
        """The line."""
        marked = self._table.sorted_by
        return (" " * GAP).join(
            fitted(f"{title}{marked[0]}" if marked[1:] == title else title, width, right=column.right)
            for (title, width), column in zip(self._table.heading(), self._shown(), strict=True)
        )

    def _shown(self) -> list[TableColumn]:
        titles = [title for title, _ in self._table.heading()]
        return [column for column in self._table.columns if column.title in titles]

    def on_click(self, event: events.Click) -> None:
        """Sort by what was clicked."""
        x = 0
        for title, width in self._table.heading():
            x += width + GAP
            if event.x < x:
                self.post_message(Table.SortedBy(title))
                return


class Body(Lines):
    """The rows. The keys are those of less, vi and any list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,space,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home,g", "move(-1000000000)", "First", show=False),
        Binding("end,G", "move(1000000000)", "Last", show=False),
        Binding("enter", "open", "Details", tooltip="show all about the chosen row"),
    ]

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table
        self.rows: Sequence[Row] = ()
        self.cursor = 0
        self.held = False
        self._chosen: object = None  # of the chosen row; None: none is chosen
        self._awaited: object = None

    @property
    def chosen(self) -> Row | None:
        """The row that has the cursor."""
        return self.rows[self.cursor] if self._chosen is not None else None

    def length(self) -> int:
        """One line a row."""
        return len(self.rows)

    def draw(self, y: int) -> list[Piece]:
        """The line of a row."""
        if y >= len(self.rows):
            return []
        return self._table.pieces(self.rows[y], "chosen" if y == self.cursor and self._chosen is not None else "")

    def show(self, rows: Sequence[Row]) -> None:
        """Take these rows. The cursor stays on its row wherever that is, and goes to no other one when that is gone.

        Only as long as nobody has chosen a row it comes back to the first one.
        """
        self.rows = rows
        if (at := self._find(self._awaited)) is not None:
            self._choose(at)
        elif (at := self._find(self._chosen)) is not None:
            moved, self.cursor = at != self.cursor, at
            if moved and (self.held or self._is_seen(at)):
                self._follow()
            elif moved:
                self._begin()
        elif self.held:
            self._chosen, self.cursor = None, max(0, min(self.cursor, len(rows) - 1))
        else:
            self._begin()
        self.redraw()

    def choose(self, name: object) -> None:
        """Put the cursor on this row, as soon as it is there."""
        self._awaited = name
        self.show(self.rows)

    def _begin(self) -> None:
        self.cursor, self._chosen = 0, self._table.name_of(self.rows[0]) if self.rows else None

    def _find(self, name: object) -> int | None:
        """Where the row of this name is."""
        if name is None:
            return None
        name_of = self._table.name_of
        if self.cursor < len(self.rows) and name_of(self.rows[self.cursor]) == name:
            return self.cursor
        return next((at for at, row in enumerate(self.rows) if name_of(row) == name), None)

    def _is_seen(self, at: int) -> bool:
        return self.scroll_offset.y <= at < self.scroll_offset.y + self.size.height

    def repaint(self) -> None:
        """Paint all lines anew."""
        self._drawn.clear()
        self.refresh()

    def action_move(self, by: int) -> None:
        """Move the cursor by so many rows; to where it is, when the row there is not chosen."""
        self._choose(self.cursor + by * (self._chosen is not None))

    def action_page(self, by: int) -> None:
        """Move the cursor by so many screens."""
        self._choose(self.cursor + by * max(1, self.size.height - 1))

    def action_open(self) -> None:
        """Show more of the chosen row."""
        if self.rows:
            self.post_message(Table.Opened())

    def on_click(self, event: events.Click) -> None:
        """Choose what was clicked; twice: open it."""
        y = event.y + self.scroll_offset.y
        if y < len(self.rows):
            self._choose(y)
            if event.chain == 2:
                self.action_open()

    def _choose(self, wanted: int) -> None:
        self.cursor, self.held, self._awaited = max(0, min(wanted, len(self.rows) - 1)), True, None
        self._chosen = self._table.name_of(self.rows[self.cursor]) if self.rows else None
        self._follow()
        self.redraw()
        self.post_message(Table.Chosen())

    def on_resize(self) -> None:
        """Draw anew, with the cursor still on the screen."""
        super().on_resize()
        if self.held:
            self._follow()

    def _follow(self) -> None:
        """Keep the cursor on the screen; before there is one `on_resize` is waited for."""
        top, height = self.scroll_offset.y, self.size.height
        if not height:
            return
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, force=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, force=True)
