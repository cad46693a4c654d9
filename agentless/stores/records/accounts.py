"""GPU usage of tasks: two tables of the history. They stay when a task is removed.

A row of `spent` has what `agentless usage` needs of an ended task, so that 100,000 are read without their documents.
A task that runs again has a row for each run. `loads` has the activity of the GPUs of live tasks so far, as of the last
minute.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import astuple

from agentless.errors import StateError
from agentless.model.usage.spent import GpuActivity, Spent

Page = tuple[list[Spent], tuple[float, str]]
"""A page of rows, and the position after it."""

_TABLES = (
    """
CREATE TABLE IF NOT EXISTS spent (
  task TEXT PRIMARY KEY, owner TEXT NOT NULL, node TEXT NOT NULL, batch TEXT NOT NULL, gpus INTEGER NOT NULL,
  began REAL NOT NULL, ended REAL NOT NULL, seen REAL NOT NULL, busy REAL NOT NULL
) WITHOUT ROWID
""",
    "CREATE INDEX IF NOT EXISTS spent_ended ON spent (ended, task)",
    # Apart from the table above, whose columns earlier versions count.
    "CREATE TABLE IF NOT EXISTS lent (task TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS loads (task TEXT PRIMARY KEY, seen REAL NOT NULL, busy REAL NOT NULL) WITHOUT ROWID",
)
_MISSED = """
INSERT OR IGNORE INTO spent
SELECT id, owner, IFNULL(json_extract(document, '$.status.placement.node'), ''), batch,
  IFNULL(json_array_length(document, '$.status.placement.gpu_uuids'), 0),
  json_extract(document, '$.status.started_at'),
  MAX(json_extract(document, '$.status.started_at'), json_extract(document, '$.status.ended_at')), 0, 0
FROM (SELECT id, owner, batch, CAST(document AS TEXT) AS document FROM tasks
  WHERE json_extract(CAST(document AS TEXT), '$.status.started_at') IS NOT NULL
  AND json_extract(CAST(document AS TEXT), '$.status.ended_at') > (SELECT IFNULL(MAX(ended), 0) FROM spent))
"""
"""Ended tasks that early versions, which lack this table, have added since."""
_PAGE = """
SELECT task, owner, node, batch, gpus, began, ended, seen, busy, task IN (SELECT task FROM lent) FROM spent
WHERE (ended, task) > (?, ?) ORDER BY ended, task LIMIT ?
"""


class Accounts:
    """The tables of an open history, whose thread uses it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def catch_up(self) -> None:
        """Add tasks that older versions have written. Raises sqlite3.Error, as on a full disk."""
        self._prepare()
        self._db.execute(_MISSED)

    def keep(self, spent: Spent) -> None:
        """Add the usage of an ended task, in the open transaction. Raises sqlite3.Error."""
        self._prepare()
        self._db.execute("INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(spent)[:9])
        if spent.lent:
            self._db.execute("INSERT OR IGNORE INTO lent VALUES (?)", (spent.task,))
        self._db.execute("DELETE FROM loads WHERE task = ?", (spent.task,))

    def set_aside(self, task_id: str) -> None:
        """Keep the usage of a run that is over apart from that of the next, in the open transaction."""
        self._prepare()
        self._db.execute("UPDATE OR REPLACE spent SET task = task || '@' || began WHERE task = ?", (task_id,))

    def page(self, after: tuple[float, str], limit: int) -> Page:
        """The first `limit` rows after this position: a time (Unix seconds) and the id of a task that ended then."""
        try:
            self._prepare()
            rows = self._db.execute(_PAGE, (*after, limit)).fetchall()
        except sqlite3.Error as error:
            raise StateError(f"cannot read the history ({error}); make it readable or move it away") from None
        found = [Spent(*row) for row in rows]
        return found, (found[-1].end, found[-1].task) if found else after

    def loads(self) -> dict[str, GpuActivity]:
        """The activity of the GPUs of live tasks so far."""
        try:
            self._prepare()
            rows = self._db.execute("SELECT task, seen, busy FROM loads")
            return {task: GpuActivity(seen, busy) for task, seen, busy in rows}
        except sqlite3.Error as error:
            raise StateError(f"cannot read the history ({error}); make it readable or move it away") from None

    def keep_loads(self, loads: Mapping[str, GpuActivity]) -> None:
        """Replace all of them."""
        try:
            with self._db:
                self._db.execute("BEGIN")
                self._prepare()
                self._db.execute("DELETE FROM loads")
                values = ((task, load.seen, load.busy) for task, load in loads.items())
                self._db.executemany("INSERT INTO loads VALUES (?, ?, ?)", values)
        except sqlite3.Error as error:
            raise StateError(f"cannot write the history: {error}") from None

    def _prepare(self) -> None:
        """Create the tables if a full disk prevented that. A rollback removes them, so this checks every time."""
        for statement in _TABLES:
            self._db.execute(statement)
