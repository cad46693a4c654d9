"""Outputs that tasks are to bring back, and their results: an SQLite file.

Only this file decides which local files are written. Labels of containers have the outputs, too, but are untrusted:
nothing is fetched because of them. `placed` has the digests of written files, to recognize files that the user has
changed or created.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

import orjson

from agentless.errors import StateError
from agentless.model.files.file_spec import Output, Upload
from agentless.model.tasks.task_id import first_try
from agentless.stores import private

REMEMBERED = 200_000
"""The most recorded files. Older ones are forgotten, and count as the user's."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS wanted (task TEXT PRIMARY KEY, document BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS brought (task TEXT PRIMARY KEY, document BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS placed (path TEXT PRIMARY KEY, digest TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS placed_at ON placed (at);
"""


@dataclass(frozen=True, slots=True)
class ExpectedFiles:
    """The outputs of a task, and its uploads."""

    outputs: tuple[Output, ...]
    uploads: tuple[Upload, ...]


@dataclass(frozen=True, slots=True)
class Brought:
    """The result of one output: whether it is `here`, in words, and how much was written."""

    here: bool
    words: str
    files: int = 0
    bytes: int = 0


class OutputStore:
    """Expected outputs by the id of a task's first try, results by the id of each try. Raises StateError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        with self._explained():
            private.make(path)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;" + _SCHEMA)
            self._wanted = {str(task) for (task,) in self._db.execute("SELECT task FROM wanted")}
            self._brought = {str(task) for (task,) in self._db.execute("SELECT task FROM brought")}

    def __contains__(self, task: object) -> bool:
        """Whether outputs of this try are expected and not settled."""
        return first_try(str(task)) in self._wanted and task not in self._brought

    def want(self, task: str, wanted: ExpectedFiles) -> None:
        """Record the outputs of a new task."""
        if not wanted.outputs:
            return
        with self._explained():
            row = (task, orjson.dumps(asdict(wanted)))
            self._db.execute("INSERT OR REPLACE INTO wanted VALUES (?, ?)", row)
        self._wanted.add(task)

    def wanted(self, task: str) -> ExpectedFiles | None:
        """The expected outputs of this task, if any."""
        if first_try(task) not in self._wanted:
            return None
        with self._explained():
            rows = self._db.execute("SELECT document FROM wanted WHERE task = ?", (first_try(task),)).fetchall()
        if not rows:
            return None
        found = orjson.loads(rows[0][0])
        return ExpectedFiles(
            tuple(Output(**each) for each in found["outputs"]), tuple(Upload(**each) for each in found["uploads"])
        )

    def settle(self, task: str, brought: Iterable[Brought]) -> None:
        """Record the results of the outputs of a try, in order."""
        with self._explained():
            row = (task, orjson.dumps([asdict(each) for each in brought]))
            self._db.execute("INSERT OR REPLACE INTO brought VALUES (?, ?)", row)
        self._brought.add(task)

    def brought(self, task: str) -> tuple[Brought, ...] | None:
        """The results of a try, None while they are open."""
        if task not in self._brought:
            return None
        with self._explained():
            rows = self._db.execute("SELECT document FROM brought WHERE task = ?", (task,)).fetchall()
        return tuple(Brought(**each) for each in orjson.loads(rows[0][0])) if rows else None

    def pending(self) -> list[str]:
        """The first tries of the tasks without any result."""
        return sorted(self._wanted - {first_try(task) for task in self._brought})

    def remove(self, task: str) -> None:
        """Remove the records of a try. Written files stay."""
        if first_try(task) not in self._wanted:
            return
        with self._explained():
            self._db.execute("DELETE FROM brought WHERE task = ?", (task,))
            if task == first_try(task):
                self._db.execute("DELETE FROM wanted WHERE task = ?", (task,))
        self._brought.discard(task)
        if task == first_try(task):
            self._wanted.discard(task)

    def placed(self, path: str) -> str | None:
        """The digest of the file that an output wrote at this path last, or None. May run in a thread."""
        with self._explained():
            row = self._db.execute("SELECT digest FROM placed WHERE path = ?", (_plain(path),)).fetchone()
        return str(row[0]) if row else None

    def place(self, digests: Mapping[str, str]) -> None:
        """Record the files written at these paths. May run in a thread."""
        rows = [(_plain(path), _plain(digest), time.time()) for path, digest in digests.items()]
        with self._explained():
            self._db.execute("BEGIN")
            try:
                self._db.executemany("INSERT OR REPLACE INTO placed VALUES (?, ?, ?)", rows)
                (count,) = self._db.execute("SELECT count(*) FROM placed").fetchone()
                if count > REMEMBERED:
                    oldest = "SELECT path FROM placed ORDER BY at LIMIT ?"
                    self._db.execute(f"DELETE FROM placed WHERE path IN ({oldest})", (count - REMEMBERED,))  # noqa: S608
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except (sqlite3.Error, OSError) as error:
            raise StateError(f"cannot record task outputs in {self._path}: {error}") from None


def _plain(name: str) -> str:
    """A path as UTF-8 for SQLite."""
    return name.encode("utf-8", "backslashreplace").decode()
