"""A table: a line of titles, and rows, one of which has the cursor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from agentless.model.text import printable
from agentless.tui.data.cluster import Row
from agentless.tui.widgets.lines import Lines, Piece, fitted

TINY = 10
"""The width of the flexible column on a phone, for which columns of a `rank` below 0 are hidden."""
GAP = 2
MARK = "● "
"""Before a marked row."""
FAR = 1_000_000_000
"""More rows than any table has."""
LEAST = 26
"""The least width of the flexible column, if it has as much to show; other columns are hidden before it gets less."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its title, and the piece of its cell for a row; `key` is the sort key, None: the text.

    The `flexible` one takes the rest of the width, or as much of it as it needs if others are right of it. If the
    columns do not fit, the one with the highest `rank` is hidden first; one below 0 only where the flexible one would
    have less than `TINY`.
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
    """Shows rows; `name_of` gives what identifies a row when it changes."""

    DEFAULT_CSS = "Table > Titles { height: 1; }"

    class Chosen(Message):
        """Another row has the cursor."""

    class LaidOut(Message):
        """The hidden columns may have changed."""

    class Opened(Message):
        """A row was opened, by Enter or a double click."""

    class SortedBy(Message):
        """The title of a column was clicked."""

        def __init__(self, title: str) -> None:
            self.title = title
            super().__init__()

    def __init__(self, columns: Sequence[TableColumn], name_of: Callable[[Row], object]) -> None:
        super().__init__()
        self.columns = columns
        self.name_of = name_of
        self.hint: Sequence[str] = ()
        """What is shown instead of rows while there are none."""
        self.sorted_by = ""
        self._widths = [0 for _ in columns]  # 0: there is nothing in it so far, and it is not shown
        self.is_wider = False
        """A column became wider; what was drawn before is to be painted anew."""
        self._hidden: tuple[tuple[int, ...], list[str]] = (), []  # in which room they are
        self.titles = Titles(self)
        self.body = Body(self)

    def compose(self) -> ComposeResult:
        yield self.titles
        yield self.body

    @property
    def rows(self) -> Sequence[Row]:
        """All rows, also those beyond the screen."""
        return self.body.rows

    @property
    def chosen(self) -> Row | None:
        """The row with the cursor; None if it has gone, until another one is chosen."""
        return self.body.chosen

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; the cursor follows its row."""
        if not (rows and self.rows):
            self.titles.refresh()  # they are hidden beside a hint
        self.body.show(rows)

    def choose_any(self) -> None:
        """Put the cursor on the first row if its own is not there: the person has left it out."""
        if self.chosen is None:
            self.body.held = False
            self.body.show(self.rows)

    def choose(self, name: object) -> None:
        """Put the cursor on the row of this name, once there is one."""
        self.body.choose(name)

    def hold(self) -> None:
        """Keep the cursor: an action is under way for the chosen row, and no other must take its place."""
        self.body.held = True

    def pieces(self, row: Row, style: str = "") -> list[Piece]:
        """The cells of a row, padded to their columns."""
        cells = [column.piece(row) for column in self.columns]
        before = list(self._widths)
        self._widths = [
            max(width, cell_len(text), cell_len(column.title) if text else 0)
            for column, width, (text, _) in zip(self.columns, before, cells, strict=True)
        ]
        last = self.columns[-1]
        if any(
            new > old
            for column, new, old in zip(self.columns, self._widths, before, strict=True)
            if not (column.flexible and column is last and old >= LEAST)
        ):
            self.is_wider = True
        found: list[Piece] = []
        for at, width in self._layout():
            text, own = cells[at]
            found.append((fitted(text, width, right=self.columns[at].right), f"{own} {style}".strip()))
            found.append((" " * GAP, style))
        return [*found, (" " * self.size.width, style)]

    def heading(self) -> list[tuple[TableColumn, int]]:
        """The shown columns and their widths."""
        return [(self.columns[at], width) for at, width in self._layout()]

    @property
    def hidden(self) -> list[str]:
        """The titles of the columns that do not fit. Cells ask for it, also those of rows that a filter looks at."""
        room = (*self._widths, self.size.width, bool(self.body.marks))
        if self._hidden[0] != room:
            shown = {at for at, _ in self._layout()}
            titles = [column.title for at, column in enumerate(self.columns) if self._widths[at] and at not in shown]
            self._hidden = room, titles
        return self._hidden[1]

    def repaint(self) -> None:
        self.is_wider = False
        self.titles.refresh()
        self.body.repaint()
        self.post_message(self.LaidOut())

    def on_resize(self) -> None:
        self.post_message(self.LaidOut())

    def _layout(self) -> list[tuple[int, int]]:
        """Choose the columns that are shown, and their widths."""
        shown = [at for at, column in enumerate(self.columns) if self._widths[at] or column.flexible]
        limit = self.size.width - 1 - len(MARK) * bool(self.body.marks)

        def least(at: int) -> int:
            column, width = self.columns[at], self._widths[at]
            return min(LEAST, max(width, cell_len(column.title))) if column.flexible else width

        def needed() -> int:
            return sum(map(least, shown)) + GAP * len(shown)

        while needed() > limit and len(shown) > 1:
            last = max(shown, key=lambda at: (self.columns[at].rank, at))
            if self.columns[last].rank <= 0:
                break
            shown.remove(last)
        last_resort = [at for at in shown if self.columns[at].rank < 0]
        while last_resort and needed() - LEAST + TINY > limit:
            shown.remove(last_resort.pop())
        free = limit - needed()
        return [
            (at, self._flexible(at, max(1, least(at) + free), shown) if self.columns[at].flexible else self._widths[at])
            for at in shown
        ]

    def _flexible(self, at: int, rest: int, shown: Sequence[int]) -> int:
        return rest if at == shown[-1] else min(rest, max(LEAST, self._widths[at]))


class Titles(Widget):
    """The titles; a click on one sorts by it."""

    DEFAULT_CSS = "Titles { color: $text-muted; text-style: bold; }"

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table

    def render(self) -> Content:
        if self._table.hint and not self._table.rows:
            return Content("")
        self._table.body.complete()
        marked = self._table.sorted_by
        before = " " * len(MARK) if self._table.body.marks else ""
        titles = (
            fitted(f"{column.title[: width - 1]}{marked[0]}", width, right=column.right)
            if marked and marked[1:] == column.title
            else fitted(column.title, width, right=column.right)
            for column, width in self._table.heading()
        )
        return Content(before + (" " * GAP).join(titles))

    def on_click(self, event: events.Click) -> None:
        x = len(MARK) * bool(self._table.body.marks)
        for column, width in self._table.heading():
            x += width + GAP
            if event.x < x:
                self.post_message(Table.SortedBy(column.title))
                return


class Body(Lines):
    """The rows, with the keys of less, vi and common lists."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("space", "mark", "Mark", show=False, tooltip="mark the row; actions apply to all marked ones"),
        Binding("home,g", f"move(-{FAR})", "First", show=False),
        Binding("end,G", f"move({FAR})", "Last", show=False),
        Binding("enter", "open", "Details", tooltip="show details of the selected row"),
    ]

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table
        self.rows: Sequence[Row] = ()
        self.cursor = 0
        self.held = False
        self.marks: dict[object, None] = {}  # names of rows
        self._chosen: object = None  # the name of the chosen row; None: none is chosen
        self._awaited: object = None
        self._ends = False  # the last row is to be chosen once there are rows

    @property
    def chosen(self) -> Row | None:
        """The row with the cursor."""
        return self.rows[self.cursor] if self._chosen is not None else None

    def length(self) -> int:
        return len(self.rows or self._table.hint)

    def draw(self, y: int) -> list[Piece]:
        if y >= len(self.rows):
            return [(self._table.hint[y], "dim")] if not self.rows and y < len(self._table.hint) else []
        style = "chosen" if y == self.cursor and self._chosen is not None else ""
        pieces = self._table.pieces(self.rows[y], style)
        if not self.marks:
            return pieces
        is_marked = self._table.name_of(self.rows[y]) in self.marks
        return [(MARK if is_marked else " " * len(MARK), f"warn {style}".strip()), *pieces]

    @property
    def marked(self) -> list[Row]:
        """The marked rows that are shown."""
        return [row for row in self.rows if self._table.name_of(row) in self.marks] if self.marks else []

    def clear_marks(self) -> None:
        self.marks.clear()
        self._table.repaint()

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows. The cursor follows its row, and moves to no other one when that is gone.

        It returns to the first row only as long as nobody has chosen one.
        """
        self.rows = rows
        if (at := self._find(self._awaited)) is not None:
            self._choose(at)
        elif rows and self._ends:
            self._choose(len(rows) - 1)
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
        """Put the cursor on this row, once there is one."""
        self._awaited = name
        self.show(self.rows)

    def _begin(self) -> None:
        self.cursor, self._chosen = 0, self._table.name_of(self.rows[0]) if self.rows else None

    def _find(self, name: object) -> int | None:
        """The index of the row of this name."""
        if name is None:
            return None
        name_of = self._table.name_of
        if self.cursor < len(self.rows) and name_of(self.rows[self.cursor]) == name:
            return self.cursor
        return next((at for at, row in enumerate(self.rows) if name_of(row) == name), None)

    def _is_seen(self, at: int) -> bool:
        return self.scroll_offset.y <= at < self.scroll_offset.y + self.size.height

    def repaint(self) -> None:
        self._drawn.clear()
        self.refresh()

    def complete(self) -> None:
        """Draw all lines in view, so that no line and no title is painted before the columns have their widths."""
        top = self.scroll_offset.y
        for _ in range(2):
            for y in range(top, top + self.size.height):
                if y not in self._drawn:
                    self._drawn[y] = self._line(y)
            if not self._table.is_wider:
                return
            self._table.is_wider = False
            self._drawn.clear()
            self.call_later(self._table.repaint)  # this may be painting only a part

    def redraw(self) -> None:
        """Paint what has changed, or everything if a column became wider."""
        super().redraw()
        if self._table.is_wider:
            self._table.repaint()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Paint lines of one layout."""
        self.complete()
        return super().render_lines(crop)

    def action_move(self, by: int) -> None:
        """Move the cursor by rows; if its row has gone, choose the one in that place."""
        if not self.rows:
            self._ends = by == FAR
            return
        self._choose(self.cursor + by * (self._chosen is not None))

    def action_page(self, by: int) -> None:
        """Move the cursor by pages."""
        self._choose(self.cursor + by * max(1, self.size.height - 1))

    def action_mark(self) -> None:
        """Mark the chosen row, or no longer, and go to the next one."""
        if self.chosen is None:
            return
        name = self._table.name_of(self.chosen)
        if name in self.marks:
            del self.marks[name]
        else:
            self.marks[name] = None
        self._table.repaint()
        self.action_move(1)

    def action_open(self) -> None:
        if self.rows:
            self.post_message(Table.Opened())

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked row; a double click opens it."""
        y = event.y + self.scroll_offset.y
        if y < len(self.rows):
            self._choose(y)
            if event.chain == 2:
                self.action_open()

    def _choose(self, wanted: int) -> None:
        self.cursor, self.held, self._awaited = max(0, min(wanted, len(self.rows) - 1)), True, None
        self._ends = False
        self._chosen = self._table.name_of(self.rows[self.cursor]) if self.rows else None
        self._follow()
        self.redraw()
        self.post_message(Table.Chosen())

    def on_resize(self) -> None:
        """Draw again, with the cursor on the screen."""
        super().on_resize()
        if self.held:
            self._follow()

    def _follow(self) -> None:
        """Scroll to the cursor; before there is a size, `on_resize` does it."""
        top, height = self.scroll_offset.y, self.size.height
        if not height:
            return
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, force=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, force=True)
