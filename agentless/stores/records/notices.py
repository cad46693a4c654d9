"""Events that are still to be sent as notifications: an SQLite file, without any address or token.

A row is an event for one target. Those that go in one message get its id, and keep it until it is sent, so that it is
the same message if it is tried again. The end of a task stays until its batch has ended, to be counted in the message
about the batch. Losing the file harms no task.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from threading import Lock

import orjson
from pydantic import TypeAdapter, ValidationError

from agentless.errors import StateError
from agentless.model.notify import Digest, Notice
from agentless.stores import private

MOST = 20_000
"""Events that are kept for one target. Of more, the oldest are dropped."""
LISTED = 100
"""Events of a message that are more than counted."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS notices (
  number INTEGER PRIMARY KEY AUTOINCREMENT, target TEXT NOT NULL, at REAL NOT NULL, batch TEXT NOT NULL,
  event TEXT NOT NULL, state TEXT NOT NULL, name TEXT, body BLOB NOT NULL, message TEXT, sent INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS notices_messages ON notices (target, message);
CREATE INDEX IF NOT EXISTS notices_batches ON notices (target, batch);
"""
_ADD = "INSERT INTO notices (target, at, batch, event, state, name, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_BEGIN = (
    """
    UPDATE notices SET message = :id WHERE target = :target AND message IS NULL AND sent = 0 AND (
      event <> 'end' OR batch IN (SELECT value FROM json_each(:over)) OR batch IN (
        SELECT batch FROM notices WHERE target = :target AND sent = 0 AND event = 'end' AND at < :held_since
      )
    )
    """,
    """
    UPDATE notices SET message = :id WHERE target = :target AND message IS NULL AND sent = 1 AND batch IN (
      SELECT batch FROM notices WHERE target = :target AND message = :id AND event = 'end'
    )
    """,
    """
    DELETE FROM notices WHERE target = :target AND message IS NULL AND sent = 1
    AND batch IN (SELECT value FROM json_each(:over))
    """,
)
_SENT = (
    """
    DELETE FROM notices WHERE message = :id
    AND (event NOT IN ('end', 'fail') OR batch IN (SELECT value FROM json_each(:over)))
    """,
    "UPDATE notices SET message = NULL, sent = 1 WHERE message = :id",
)
_BY_STATE = "SELECT state, count(*) FROM notices WHERE message = ? GROUP BY state ORDER BY 2 DESC, 1"
_IN_COMMON = """
SELECT count(*), count(DISTINCT batch), min(batch), count(DISTINCT name), count(name), min(name) FROM notices
WHERE message = ?
"""
_FIRST = """
SELECT body FROM notices WHERE message = ?
ORDER BY CASE WHEN event IN ('fail', 'lost', 'preempt') THEN 0 ELSE 1 END, number LIMIT ?
"""
_DROP_OLDEST = """
DELETE FROM notices WHERE number IN (
  SELECT number FROM notices WHERE target = ? ORDER BY sent DESC, number LIMIT ?
)
"""
_NOTICE = TypeAdapter(Notice)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class NoticeStore:
    """The events by target. Raises StateError. The file is made when the first event is kept.

    `waiting` counts the events that are not sent, by target.
    """

    def __init__(self, path: Path) -> None:
        self.waiting: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._path = path
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        if path.exists():
            with contextlib.suppress(StateError), self._using() as db:
                self._count(db)

    def __contains__(self, target: object) -> bool:
        """Whether any event is kept for this target."""
        return self._kept[str(target)] > 0

    def add(self, targets: Iterable[str], notice: Notice) -> None:
        """Keep an event for these targets."""
        of_event = notice.at, notice.batch, notice.event, notice.state, notice.name, orjson.dumps(asdict(notice))
        rows = [(target, *of_event) for target in targets]
        with self._using() as db:
            db.executemany(_ADD, rows)
        for counts in (self.waiting, self._kept):
            counts.update(target for target, *_ in rows)

    def batches(self, target: str) -> set[str]:
        """The batches of all events of a target."""
        with self._using() as db:
            return {batch for (batch,) in db.execute("SELECT DISTINCT batch FROM notices WHERE target = ?", (target,))}

    def next_message(self, target: str, over: Collection[str], held_since: float) -> str | None:
        """The id of the message that goes to a target next, None if there is none.

        One that was begun is the next. Otherwise all events go in it, but not the end of a task since `held_since` if
        its batch is not `over`.
        """
        message = secrets.token_hex(8)
        values = {"target": target, "over": _list(over), "held_since": held_since, "id": message}
        with self._using() as db, _at_once(db):
            begun = "SELECT message FROM notices WHERE target = ? AND message IS NOT NULL LIMIT 1"
            if row := db.execute(begun, (target,)).fetchone():
                return str(row[0])
            counts = [db.execute(statement, values).rowcount for statement in _BEGIN]
            if counts[-1]:
                self._count(db)
        return message if counts[0] else None

    def digest(self, message: str) -> Digest:
        """What a message is about."""
        with self._using() as db:
            states = dict(db.execute(_BY_STATE, (message,)))
            events, batches, batch, names, named, name = db.execute(_IN_COMMON, (message,)).fetchone()
            notices = tuple(_NOTICE.validate_json(body) for (body,) in db.execute(_FIRST, (message, LISTED)))
        return Digest(
            message,
            notices,
            states,
            batch if batches == 1 and events > 1 else None,
            name if names == 1 and named == events else None,
        )

    def sent(self, message: str, over: Collection[str]) -> None:
        """A message was sent. Ends of batches that are not `over` are kept, to be counted again when they are."""
        with self._using() as db, _at_once(db):
            for statement in _SENT:
                db.execute(statement, {"id": message, "over": _list(over)})
            self._count(db)

    def prune(self, targets: Collection[str], oldest: float) -> int:
        """Drop what could not be sent since `oldest`, what is too much, and what is for other targets.

        Returns how many events for these targets were dropped.
        """
        dropped = 0
        with self._using() as db, _at_once(db):
            for target, kept in self._kept.items():
                if target not in targets:
                    db.execute("DELETE FROM notices WHERE target = ?", (target,))
                    continue
                late = "DELETE FROM notices WHERE target = ? AND sent = 0 AND at < ?"
                dropped += db.execute(late, (target, oldest)).rowcount
                if kept > MOST:
                    dropped += db.execute(_DROP_OLDEST, (target, kept - MOST)).rowcount
            self._count(db)
        return dropped

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    # ------------------------------------------------------------------ inside

    def _count(self, db: sqlite3.Connection) -> None:
        counts = db.execute("SELECT target, count(*), sum(sent = 0) FROM notices GROUP BY target").fetchall()
        self._kept = Counter({target: kept for target, kept, _ in counts})
        self.waiting = Counter({target: waiting for target, _, waiting in counts if waiting})

    @contextlib.contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The open file. A damaged file is set aside, and a new one is made the next time."""
        try:
            with self._lock:
                if self._db is None:
                    self._db = self._opened()
                yield self._db
        except (sqlite3.Error, ValidationError, OSError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED or isinstance(error, ValidationError):
                self.close()
                with contextlib.suppress(OSError):
                    os.replace(self._path, f"{self._path}.damaged")
                    Path(f"{self._path}-wal").unlink(missing_ok=True)
            raise StateError(f"cannot keep notifications in {self._path}: {_why(error)}") from None

    def _opened(self) -> sqlite3.Connection:
        private.make(self._path)
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;" + _SCHEMA)
        except BaseException:
            db.close()
            raise
        return db


@contextlib.contextmanager
def _at_once(db: sqlite3.Connection) -> Iterator[None]:
    """All of it, or nothing."""
    db.execute("BEGIN")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _why(error: Exception) -> str:
    return "its content is damaged" if isinstance(error, ValidationError) else str(error)


def _list(batches: Collection[str]) -> str:
    return orjson.dumps(sorted(batches)).decode()
