"""Ended tasks and events: an SQLite file, so that a submit costs the same after 100,000 tasks."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from agentless.errors import StateError
from agentless.model.containers.job_id import job_number
from agentless.model.tasks.task import Task
from agentless.model.usage.run import Run, kind_of
from agentless.model.usage.spent import GpuActivity, spent_of
from agentless.stores import private
from agentless.stores.records.accounts import Accounts
from agentless.stores.state.upgrades import with_needs

EventRow = tuple[float, str, bytes]
"""The time (Unix seconds), the task, and the event as JSON."""

_TASK = TypeAdapter(Task)
_UNSEEN = GpuActivity()
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
  id TEXT PRIMARY KEY, name TEXT, owner TEXT NOT NULL, batch TEXT NOT NULL, document BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tasks_name ON tasks (name) WHERE name IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_batch ON tasks (batch);
CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY, at REAL NOT NULL, task TEXT NOT NULL, document BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS events_task ON events (task);
PRAGMA user_version = 2;
"""
_UPGRADE = """
UPDATE tasks SET document = with_needs(document);
PRAGMA user_version = 2;
"""
_RECORD = "INSERT INTO events (at, task, document) VALUES (?, ?, ?)"
# Each half stops at its limit, in the order of an index: a short prefix or a common name matches thousands of tasks.
_FIND = """
SELECT document FROM tasks WHERE id IN (
  SELECT * FROM (SELECT id FROM tasks WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?) UNION
  SELECT * FROM (SELECT id FROM tasks WHERE name = ? ORDER BY id DESC LIMIT ?)
) ORDER BY id DESC LIMIT ?
"""
_STATES = "SELECT id, json_extract(CAST(document AS TEXT), '$.status.state') FROM tasks"
# An index over the documents: older versions have not filled a column.
_INDEX = """
CREATE INDEX IF NOT EXISTS tasks_ended ON tasks (json_extract(CAST(document AS TEXT), '$.status.ended_at'))
WHERE json_extract(CAST(document AS TEXT), '$.status.started_at') IS NOT NULL
"""
_RUNS = """
SELECT owner, json_extract(CAST(document AS TEXT), '$.status.started_at', '$.status.ended_at', '$.status.state',
  '$.status.placement.gpu_uuids', '$.spec.image', '$.spec.command', '$.spec.terms.preemptible',
  '$.status.container')
FROM tasks WHERE json_extract(CAST(document AS TEXT), '$.status.started_at') IS NOT NULL
  AND json_extract(CAST(document AS TEXT), '$.status.ended_at') > ?
ORDER BY json_extract(CAST(document AS TEXT), '$.status.ended_at') DESC LIMIT ?
"""


class History:
    """Ended tasks and all events, oldest first by id; `accounts` is their GPU usage. For one thread."""

    def __init__(self, path: Path) -> None:
        try:
            private.make(path)  # SQLite gives its other files the same mode
            self._db = sqlite3.connect(path, isolation_level=None)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > 2:
                raise StateError(
                    f"{path} is from a newer agentless; upgrade agentless, or set XDG_STATE_HOME to another folder"
                )
            # Only one controller uses it. Without shared memory, opening it writes nothing, so
            # a controller starts even if the disk is full.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            if version < 2:
                self._db.create_function("with_needs", 1, lambda old: orjson.dumps(with_needs(orjson.loads(old))))
                self._db.executescript("BEGIN;" + (_UPGRADE if version else _SCHEMA) + "COMMIT;")
            self.accounts = Accounts(self._db)
            with contextlib.suppress(sqlite3.OperationalError):  # a full disk: tried again later
                self._db.execute(_INDEX)
                self.accounts.catch_up()
        except sqlite3.Error as error:
            raise StateError(f"cannot use the history {path} ({error}); make it readable or move it away") from None

    def add(self, task: Task, events: Iterable[EventRow] = (), load: GpuActivity = _UNSEEN) -> None:
        """Add an ended task and these events, in one transaction, synced to disk.

        The same task again replaces it. `load` is the activity of its GPUs.
        """
        values = (task.id, task.spec.name, task.owner, task.batch, _TASK.dump_json(task))
        # Only this write is synced: the state file drops the task next, while events may lag behind.
        self._write("PRAGMA synchronous = FULL", ())
        try:
            with self._at_once():
                self._db.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?)", values)
                self._db.executemany(_RECORD, events)
                if spent := spent_of(task, load, 0.0):
                    self.accounts.keep(spent)
        finally:
            self._write("PRAGMA synchronous = NORMAL", ())

    def find(self, reference: str, limit: int = 20) -> list[Task]:
        """The tasks whose id begins with `reference` or whose name it is, newest first."""
        return self._tasks(_FIND, (reference, reference + "\x7f", limit, reference, limit, limit))

    def get(self, task_id: str) -> Task | None:
        """The ended task with exactly this id, or None."""
        return next(iter(self._tasks("SELECT document FROM tasks WHERE id = ?", (task_id,))), None)

    def newest(self, limit: int) -> list[Task]:
        """The newest `limit` tasks by creation, newest first."""
        return self._tasks("SELECT document FROM tasks ORDER BY id DESC LIMIT ?", (limit,))

    def batch(self, batch: str) -> list[Task]:
        """The ended tasks of one batch."""
        return self._tasks("SELECT document FROM tasks WHERE batch = ? ORDER BY id", (batch,))

    def states(self, batch: str) -> list[tuple[str, str]]:
        """The ended tasks of one batch, each with its state."""
        return self._rows(f"{_STATES} WHERE batch = ?", (batch,))

    def tries(self, first: str) -> list[tuple[str, str]]:
        """The ended tries of a task, each with its state."""
        return self._rows(f"{_STATES} WHERE id = ? OR (id > ? AND id < ?)", (first, f"{first}-", f"{first}."))

    def runs(self, since: float, limit: int) -> list[Run]:
        """The last `limit` runs that ended after `since` (Unix seconds), the oldest first."""
        found = []
        for owner, document in reversed(self._rows(_RUNS, (since, limit))):
            began, ended, state, uuids, image, command, lent, container = orjson.loads(document)
            gpus = len(uuids or ())
            kind = kind_of(owner, image, gpus, command)
            away = job_number(container) is not None
            found.append(Run(owner, began, ended, gpus, kind, state == "completed", bool(lent), away))
        return found

    def remove(self, task_ids: Iterable[str], events: Iterable[EventRow] = ()) -> None:
        """Remove ended tasks and add these events, in one transaction. Their earlier events stay."""
        with self._at_once():
            self._db.executemany("DELETE FROM tasks WHERE id = ?", [(task_id,) for task_id in task_ids])
            self._db.executemany(_RECORD, events)

    def revive(self, task_id: str) -> None:
        """Remove an ended task that is live again. The usage of the run that has ended stays."""
        with self._at_once():
            self._db.execute("DELETE FROM tasks WHERE id = ?", (task_id,))
            self.accounts.set_aside(task_id)

    def has(self, task_id: str) -> bool:
        """Whether this task has ended here."""
        return bool(self._documents("SELECT id FROM tasks WHERE id = ?", (task_id,)))

    def container(self, task_id: str) -> tuple[bool, str | None]:
        """Whether this task is in the history, and the id of its container or None."""
        rows = self._rows(
            "SELECT json_extract(CAST(document AS TEXT), '$.status.container') FROM tasks WHERE id = ?", (task_id,)
        )
        return (True, rows[0][0]) if rows else (False, None)

    def record(self, at: float, task: str, document: bytes) -> None:
        """Append one event of a task, or of a node when `task` is empty."""
        self._write(_RECORD, (at, task, document))

    def touch(self) -> None:
        """Write without a change. Raises StateError if the file cannot be written."""
        self._write("PRAGMA user_version = 2", ())

    def events(self, after: int, limit: int, task: str | None = None) -> list[tuple[int, bytes]]:
        """The first `limit` events (of one task) after number `after`, oldest first, each with its number."""
        if task is None:
            return self._rows("SELECT seq, document FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))
        return self._rows(
            "SELECT seq, document FROM events WHERE task = ? AND seq > ? ORDER BY seq LIMIT ?", (task, after, limit)
        )

    def last_events(self, count: int, since: float, task: str | None = None) -> int:
        """The number after which come the last `count` events (of one task) not older than `since` (Unix seconds)."""
        most = max(1, count)  # one is needed to find the end
        if task is None:
            newest = self._rows("SELECT seq, at FROM events ORDER BY seq DESC LIMIT ?", (most,))
        else:
            newest = self._rows("SELECT seq, at FROM events WHERE task = ? ORDER BY seq DESC LIMIT ?", (task, most))
        wanted = [seq for seq, at in newest[:count] if at >= since]
        return min(wanted) - 1 if wanted else max((seq for seq, _ in newest), default=0)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _tasks(self, query: str, values: tuple[object, ...]) -> list[Task]:
        try:
            return [_TASK.validate_json(document) for document in self._documents(query, values)]
        except ValidationError as error:
            raise StateError(
                f"the history contains a damaged task ({error.errors()[0]['msg']}); move the history away"
            ) from None

    def _documents(self, query: str, values: tuple[object, ...]) -> list[Any]:
        return [row[0] for row in self._rows(query, values)]

    def _rows(self, query: str, values: tuple[object, ...]) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StateError(f"cannot read the history ({error}); make it readable or move it away") from None

    @contextlib.contextmanager
    def _at_once(self) -> Iterator[None]:
        """A transaction: all writes within it, or none."""
        try:
            with self._db:
                self._db.execute("BEGIN")
                yield
        except sqlite3.Error as error:
            raise StateError(f"cannot write the history: {error}") from None

    def _write(self, query: str, values: tuple[object, ...]) -> None:
        try:
            self._db.execute(query, values)
        except sqlite3.Error as error:
            raise StateError(f"cannot write the history: {error}") from None
