"""A view: a table of rows of the cluster that can be sorted and filtered."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Input, Static

from agentless.model.text import printable
from agentless.model.units import counted
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.export import as_text
from agentless.tui.data.local_files import NoAnswer, in_time
from agentless.tui.screens.ask import Ask
from agentless.tui.widgets.table import Table, TableColumn


class FilterLine(Input):
    """The input for a filter. Enter returns to the rows at once: the next key is theirs."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "leave", show=False, priority=True)]

    def __init__(self, rows: Widget) -> None:
        super().__init__(placeholder="Filter, for example: train state:running owner:alice !debug", compact=True)
        self._rows = rows

    def action_leave(self) -> None:
        self.screen.set_focus(self._rows)


class View(Vertical):
    """The base of the views that are tables. `KINDS` are the kinds of rows that it shows.

    `SEEN_BY` says how the hidden columns are seen, and `EMPTY` what there would be, and how to make the first one.
    """

    KINDS: ClassVar[frozenset[str]]
    SEEN_BY: ClassVar[str] = " (press Enter for details)"
    EMPTY: ClassVar[tuple[str, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/", tooltip="show only matching rows"),
        Binding("o", "sort(1)", "Sort", show=False, tooltip="sort by the next column"),
        Binding("O", "sort(-1)", "Sort", show=False, tooltip="sort by the previous column"),
        Binding("i", "reverse", "Reverse", show=False, tooltip="reverse the order"),
        Binding("escape", "clear", "All rows", show=False, tooltip="clear the marks, then the filter"),
        Binding("X", "export", "Export", show=False, tooltip="write the rows to a CSV or JSON file"),
    ]
    DEFAULT_CSS = """
    View > Input { dock: bottom; display: none; height: 1; border: none; padding: 0; background: $panel; }
    View > Input.-open { display: block; }
    View > .notes { display: none; height: auto; max-height: 3; color: $text-muted; }
    View > .notes.-open { display: block; }
    """

    def __init__(self, cluster: ClusterState, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.cluster = cluster
        self.table = Table(self.columns(), self.name_of)
        self._words: list[str] = []
        self._notes = Static(markup=False, classes="notes")
        self._sorted_by: TableColumn | None = None
        self._reverse = False
        self._matches = ""

    def compose(self) -> ComposeResult:
        yield self.table
        yield self._notes
        yield FilterLine(self.table.body)

    # ------------------------------------------------------------ of each view

    def columns(self) -> Sequence[TableColumn]:
        """The columns."""
        raise NotImplementedError

    def all_rows(self) -> list[Row]:
        """The rows in their default order."""
        raise NotImplementedError

    def name_of(self, row: Row) -> object:
        """What identifies a row."""
        raise NotImplementedError

    def task_of(self, row: Row) -> Row | None:
        """The task that a row is about."""
        raise NotImplementedError

    def node_of(self, row: Row) -> str | None:
        """The node that a row is about."""
        raise NotImplementedError

    # ---------------------------------------------------------------- for all

    @property
    def starting_focus(self) -> Widget:
        """The widget that gets the keys at first."""
        return self.table.body

    @property
    def chosen(self) -> Row | None:
        """The row with the cursor."""
        return self.table.chosen

    @property
    def about_task(self) -> Row | None:
        """The task of the chosen row."""
        return self.task_of(self.chosen) if self.chosen else None

    @property
    def about_node(self) -> str | None:
        """The node of the chosen row."""
        return self.node_of(self.chosen) if self.chosen else None

    def update(self) -> None:
        every = self.all_rows()
        rows = [row for row in every if all(self._has(row, word) for word in self._words)]
        self._matches = f"{len(rows):,} of {len(every):,} rows match (press Esc for all)" if self._words else ""
        if self._sorted_by is not None:
            rows = _sorted(rows, self._sorted_by, reverse=self._reverse)
        self.table.hint = self.EMPTY if self.cluster.now and not every else ()
        self.table.show(rows)
        self._describe()

    def notes(self) -> list[str]:
        """Which rows are left out, and how to see them."""
        return []

    def on_table_laid_out(self) -> None:
        self._describe()

    def _describe(self) -> None:
        """Show which rows and columns are left out."""
        hidden = self.table.hidden
        marked = len(self.table.body.marked)
        marks = f"{counted(marked, 'row')} marked: actions apply to all (press Esc to unmark)" if marked else ""
        columns = f"hidden columns: {', '.join(hidden)}{self.SEEN_BY}" if hidden else ""
        words = " · ".join(filter(None, (marks, self._matches, *self.notes(), columns)))
        self._notes.update(words)
        self._notes.set_class(bool(words), "-open")

    def show_anew(self) -> None:
        """Show other rows, as a person wants it; the first of them is chosen if what was chosen is not among them."""
        self.update()
        self.table.choose_any()
        self.post_message(Table.Chosen())

    @property
    def is_filtered(self) -> bool:
        """Whether a filter leaves out rows."""
        return bool(self._words)

    def set_filter(self, text: str) -> None:
        """Show only rows that contain all these words."""
        self._words = text.lower().split()
        self.show_anew()

    def action_filter(self) -> None:
        line = self.query_one(Input)
        line.add_class("-open")
        self.screen.set_focus(line)

    def fill_filter(self, text: str) -> None:
        """Show only rows that match, as if a person had typed it."""
        line = self.query_one(Input)
        line.add_class("-open")
        line.value = text

    def action_clear(self) -> None:
        """Unmark all rows; without marks, clear the filter."""
        if self.table.body.marks:
            self.table.body.clear_marks()
            self._describe()
            return
        line = self.query_one(Input)
        line.value = ""
        line.remove_class("-open")
        self.set_filter("")
        self.screen.set_focus(self.table.body)

    def action_export(self) -> None:
        """Ask for a path, and write the rows that are shown, or the marked ones; a browser asks for it itself."""
        rows = self.table.body.marked or list(self.table.rows)
        if self.app.is_web:
            text = io.StringIO(as_text(rows, self.table.columns, "csv"))
            self.app.deliver_text(text, save_filename=f"{self.id}.csv")
            return
        question = Ask(
            f"Export {counted(len(rows), 'row')}?",
            effect="A name that ends with .json has all fields of each row, any other the columns as CSV.",
            verb="Write",
            text="FILE.csv or FILE.json",
            given=f"{self.id}.csv",
        )
        self.app.push_screen(question, partial(self._write, rows))

    def _write(self, rows: Sequence[Row], name: str | None) -> None:
        if not name:
            return
        try:
            path = Path(name).expanduser().absolute()
            text = as_text(rows, self.table.columns, path.suffix[1:])
            in_time(name, partial(_write_new, path, text))
        except FileExistsError:
            self.notify(printable(f"{name} already exists; choose another name"), severity="error", markup=False)
        except NoAnswer as error:
            self.notify(printable(str(error)), severity="error", markup=False)
        except (OSError, RuntimeError, ValueError) as error:
            self.notify(printable(f"{name} cannot be written: {error}"), severity="error", markup=False)
        else:
            self.notify(printable(f"Written to {path}: {counted(len(rows), 'row')}"), markup=False)

    def action_sort(self, by: int) -> None:
        """Sort by the next column that is shown; after the last one, in the default order."""
        columns: list[TableColumn | None] = [None, *(column for column, _ in self.table.heading() if column.title)]
        place = columns.index(self._sorted_by) if self._sorted_by in columns else 0
        self._sort(columns[(place + by) % len(columns)])

    def action_reverse(self) -> None:
        if self._sorted_by is not None:
            self._reverse = not self._reverse
            self._sort(self._sorted_by)

    def on_table_sorted_by(self, message: Table.SortedBy) -> None:
        """Sort by the title that was clicked; at the second click in reverse."""
        column = next(column for column in self.table.columns if column.title == message.title)
        self._reverse = not self._reverse if column is self._sorted_by else False
        self._sort(column)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter at each key."""
        event.stop()
        self.set_filter(event.value)

    def on_descendant_blur(self) -> None:
        """Close the input of the filter if it is empty."""
        line = self.query_one(Input)
        if not (line.value.strip() or line is self.screen.focused):
            line.remove_class("-open")

    def _sort(self, column: TableColumn | None) -> None:
        self._sorted_by = column
        self.table.sorted_by = ("▼" if self._reverse else "▲") + column.title if column else ""
        self.table.titles.refresh()
        self.update()

    def _has(self, row: Row, word: str) -> bool:
        if len(word) > 1 and word[0] == "!":
            return not self._has(row, word[1:])
        field, colon, value = word.partition(":")
        if colon and field in row:
            return any(each in str(row[field]).lower() for each in value.split(","))
        return any(word in column.piece(row)[0].lower() for column in self.table.columns)


def _sorted(rows: list[Row], column: TableColumn, *, reverse: bool) -> list[Row]:
    key: Callable[[Row], Any] = column.key or (lambda row: column.piece(row)[0])
    known = [row for row in rows if key(row) is not None]
    return sorted(known, key=key, reverse=reverse) + [row for row in rows if key(row) is None]


class TaskListView(View):
    """A view whose rows are tasks."""

    def name_of(self, row: Row) -> object:
        """Its id."""
        return row["id"]

    def task_of(self, row: Row) -> Row | None:
        """The task."""
        return row

    def node_of(self, _: Row) -> str | None:
        """None: no row is about a node."""
        return None

    def named(self, task: Row, words: str) -> str:
        """Words about a task, after its owner and its name where these have no column."""
        hidden = self.table.hidden
        owner = self.cluster.who(task["owner"]) if "OWNER" in hidden else ""
        name = (task["name"] or "") if "NAME" in hidden else ""
        return ": ".join(filter(None, (f"{owner} {name}".strip(), words)))


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
