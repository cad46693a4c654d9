"""The table of the page `docs/reference/engines.md`, between two marks that a reader does not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "engines.md"
BEGIN, END = "<!-- written by make engines -->\n", "<!-- end -->\n"


@dataclass(frozen=True)
class Cell:
    """What became of a command. `words` say why it was refused or failed, empty if it worked."""

    words: str = ""
    bad: bool = False


@dataclass(frozen=True)
class Column:
    """An engine, its version as the node gave it, and its cells by row."""

    engine: str
    short: str
    version: str
    cells: Mapping[str, Cell]


def write(columns: Sequence[Column]) -> None:
    """Write the table of these runs into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(columns)}\n{END}{after}")


def table(columns: Sequence[Column]) -> str:
    """The engines that were run, a row for each command, and the sentences of those that are refused."""
    reasons = list(dict.fromkeys(c.words for each in columns for c in each.cells.values() if c.words and not c.bad))
    numbers = {words: str(number) for number, words in enumerate(reasons, 1)}
    engines = [["Engine", "in the table", "version"]]
    engines += [[each.engine, each.short, each.version.partition("+")[0]] for each in columns]
    rows = [["Command", *(each.short for each in columns)]]
    rows += [[row, *(_mark(each.cells[row], numbers) for each in columns)] for row in columns[0].cells]
    notes = [["no", "sentence"], *([f"({number})", words] for words, number in numbers.items())]
    return "\n".join([*_drawn(engines), "", *_drawn(rows), "", *_drawn(notes), ""])


def _mark(cell: Cell, numbers: Mapping[str, str]) -> str:
    if cell.bad:
        return "**fails**"
    return f"no ({numbers[cell.words]})" if cell.words else "yes"


def _drawn(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return [head, f"|{'---|' * len(rows[0])}", *body]
