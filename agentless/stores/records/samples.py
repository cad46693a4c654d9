"""Samples of GPUs and nodes over time: an SQLite file of its own, whose loss harms no task.

A row is a compressed block of points of one GPU or node; both have a table of their own. The finest level is written
every minute. A block of a coarser level is made of the rows of the finer one when its time is over. Until then, the
finer rows answer for it, so nothing is kept in memory and a crash loses only the last minute.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple, TypeVar

from agentless.errors import StateError
from agentless.rules.usage.series import GPU, LEVELS, NODE, POINTS, Block, Kind, Level, Piece, fold
from agentless.stores import private

AT_ONCE = 10
"""Blocks between two pauses, some 1.5 ms of work."""
PAUSE = 0.002
"""Seconds of a pause."""

T = TypeVar("T")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS points (
  width INTEGER NOT NULL, number INTEGER NOT NULL, gpu TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (width, number, gpu)
)
"""
_TABLES = {GPU: "points", NODE: "node_points"}
"""An earlier version that is started again reads only its own table."""
_PACKED = {kind: struct.Struct("<{0}I{0}Q{0}I".format(POINTS * len(kind.metrics))) for kind in _TABLES}
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class BlockKey(NamedTuple):
    """The key of a block: seconds per point, the number of the block since 1970, and the GPU's UUID or the node."""

    width: int
    number: int
    gpu: str


class SampleStore:
    """All levels of all GPUs and nodes. The file is opened at first use. For one thread.

    `warning` is what was wrong with the file, or None.
    """

    def __init__(self, path: Path) -> None:
        self.warning: str | None = None
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._unwritten: dict[BlockKey, Block] = {}
        self._folded: dict[Level, int] = {}  # to which block of its own each level is complete

    def add(self, minutes: Iterable[tuple[str, int, Block]], now: float) -> None:
        """Add blocks of the finest level, each with its GPU or node and number, and remove old ones.

        Raises StateError. The blocks then stay in memory, and are written the next time, unless they are too old.
        """
        finest = LEVELS[0]
        for gpu, number, block in minutes:
            _take(self._unwritten, BlockKey(finest.width, number, gpu), block)
        for key in [key for key in self._unwritten if key.number < _oldest(finest, now)]:
            del self._unwritten[key]
        with contextlib.suppress(StateError), self._using():
            pass  # a damaged file is set aside before anything is written
        with self._using() as db, db:
            db.execute("BEGIN")
            for key, block in _slowly(self._unwritten.items()):
                _write(db, key, block)
            folded = {level: int(now // level.block) for level in LEVELS[1:]}
            for finer, coarser in pairwise(LEVELS):
                if folded[coarser] != self._folded.get(coarser):
                    for kind in _TABLES:
                        _fold(db, kind, finer, coarser, folded[coarser])
            for level, kind in product(LEVELS, _TABLES):
                db.execute(
                    _about(kind, "DELETE FROM points WHERE width = ? AND number < ?"),
                    (level.width, _oldest(level, now)),
                )
        self._unwritten.clear()
        self._folded = folded

    def pieces(self, gpus: Collection[str], level: Level, begin: float, kind: Kind = GPU) -> dict[str, list[Piece]]:
        """The blocks of these GPUs or nodes since `begin` (Unix seconds): of this level, and finer ones after those.

        Raises StateError.
        """
        found = defaultdict[str, list[Piece]](list)
        first = begin // level.block * level.block
        ends = dict.fromkeys(gpus, int(first))
        with self._using() as db:
            for each in reversed(LEVELS[: LEVELS.index(level) + 1]):
                known = dict(ends)
                for key, data in _rows(db, kind, each, min(known.values(), default=0), gpus):
                    start = key.number * each.block
                    if start >= known[key.gpu]:
                        found[key.gpu].append((start, each.width, _unpacked(data, kind)))
                        ends[key.gpu] = max(ends[key.gpu], start + each.block)
        for key, block in self._unwritten.items():
            if key.gpu in gpus and block.kind == kind and key.number * LEVELS[0].block >= first:
                found[key.gpu].append((key.number * LEVELS[0].block, key.width, block))
        return found

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    # ------------------------------------------------------------------ inside

    @contextlib.contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The open file. Raises StateError. A damaged file is set aside, and a new one is made the next time."""
        try:
            if self._db is None:
                self._db = self._opened()
            yield self._db
        except (sqlite3.Error, zlib.error, struct.error) as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _DAMAGED:
                self.close()
                self._set_aside()
            raise StateError(f"cannot store GPU samples in {self._path}: {error}") from None

    def _opened(self) -> sqlite3.Connection:
        private.make(self._path)
        db = sqlite3.connect(self._path, isolation_level=None)
        try:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            for kind in _TABLES:
                db.execute(_about(kind, _SCHEMA))
        except BaseException:
            db.close()
            raise
        return db

    def _set_aside(self) -> None:
        with contextlib.suppress(OSError):
            os.replace(self._path, f"{self._path}.damaged")
            Path(f"{self._path}-wal").unlink(missing_ok=True)
            self.warning = (
                f"{self._path} was damaged; renamed it to {self._path}.damaged and started a new history of GPU samples"
            )


def _slowly(things: Iterable[T]) -> Iterator[T]:
    """Iterate with pauses, in which the event loop gets the processor."""
    for number, thing in enumerate(things, 1):
        if number % AT_ONCE == 0:
            time.sleep(PAUSE)
        yield thing


def _about(kind: Kind, statement: str) -> str:
    """A statement about `points`, for the table of this kind."""
    return statement.replace("points", _TABLES[kind])


def _rows(
    db: sqlite3.Connection, kind: Kind, level: Level, begin: int, gpus: Collection[str]
) -> Iterator[tuple[BlockKey, bytes]]:
    """The rows of these GPUs or nodes at this level since `begin`."""
    query = _about(kind, "SELECT width, number, gpu, data FROM points WHERE width = ? AND number >= ?")
    values: list[object] = [level.width, begin // level.block]
    if len(gpus) == 1:
        query, values = f"{query} AND gpu = ?", [*values, *gpus]
    for *key, data in db.execute(query, values):
        if key[2] in gpus:
            yield BlockKey(*key), data


def _fold(db: sqlite3.Connection, kind: Kind, finer: Level, coarser: Level, end: int) -> None:
    """Write the blocks of a level before `end` that are not there yet, each made of the rows of the finer level."""
    ratio = coarser.block // finer.block
    missing = """
        SELECT DISTINCT number / ?1 AS block, gpu FROM points WHERE width = ?2 AND number < ?3 * ?1
        EXCEPT SELECT number, gpu FROM points WHERE width = ?4
    """
    rows = db.execute(_about(kind, missing), (ratio, finer.width, end, coarser.width)).fetchall()
    parts = _about(kind, "SELECT number, data FROM points WHERE width = ? AND number BETWEEN ? AND ? AND gpu = ?")
    for number, gpu in rows:
        whole = Block(kind)
        for part, data in _slowly(db.execute(parts, (finer.width, number * ratio, (number + 1) * ratio - 1, gpu))):
            fold(_unpacked(data, kind), part * finer.block, finer.width, whole, coarser.width)
        _write(db, BlockKey(coarser.width, number, gpu), whole)


def _take(blocks: dict[BlockKey, Block], key: BlockKey, block: Block) -> None:
    if key in blocks:
        blocks[key].take(block)
    else:
        blocks[key] = block


def _oldest(level: Level, now: float) -> int:
    """The number of the oldest block of a level that is kept."""
    return int((now - level.kept) // level.block)


def _write(db: sqlite3.Connection, key: BlockKey, block: Block) -> None:
    """Write a block. An earlier controller may have written one for the same minute: both are merged."""
    stored = _about(block.kind, "SELECT data FROM points WHERE width = ? AND number = ? AND gpu = ?")
    there = db.execute(stored, key).fetchone()
    if there:
        block = block.copy()
        block.take(_unpacked(there[0], block.kind))
    db.execute(_about(block.kind, "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)"), (*key, _packed(block)))


def _packed(block: Block) -> bytes:
    return zlib.compress(_PACKED[block.kind].pack(*block.counts, *block.totals, *block.peaks), 1)


def _unpacked(data: bytes, kind: Kind) -> Block:
    numbers = _PACKED[kind].unpack(zlib.decompress(data))
    size = len(numbers) // 3
    return Block(kind, numbers[:size], numbers[size : 2 * size], numbers[2 * size :])
