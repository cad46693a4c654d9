"""Rows of a table as a file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Protocol

from agentless.tui.data.cluster import Row

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would run as a formula: an apostrophe before it makes it a text, as OWASP advises."""


class Column(Protocol):
    """A column of a table."""

    @property
    def title(self) -> str: ...

    def piece(self, row: Row) -> tuple[str, str]: ...


def as_text(rows: Sequence[Row], columns: Sequence[Column], kind: str) -> str:
    """The rows as `json` with all fields, or else as CSV with these columns."""
    if kind == "json":
        return json.dumps(list(rows), indent=2) + "\n"
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    titled = [column for column in columns if column.title.strip()]
    writer.writerow([_cell(column.title.lower()) for column in titled])
    writer.writerows([_cell(column.piece(row)[0]) for column in titled] for row in rows)
    return file.getvalue()


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "-"
    return True
