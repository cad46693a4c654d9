"""Samples of GPUs and nodes over time: an SQLite file of its own, whose loss harms no task.

A row is a compressed block of points of one GPU or node; both have a table of their own. The finest level is written
every minute. A block of a coarser level is collected in memory and written when its time is over. After a crash it is
rebuilt from the finer levels, so only the last minute is lost.
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
        self._growing: dict[BlockKey, Block] = {}  # incomplete blocks of coarser levels
        self._unwritten: dict[BlockKey, Block] = {}

    def add(self, minutes: Iterable[tuple[str, int, Block]], now: float) -> None:
        """Add blocks of the finest level, each with its GPU or node and number, and remove old ones.

        Raises StateError. The blocks then stay in memory, and are written the next time.
        """
        with contextlib.suppress(StateError), self._using():
            pass  # blocks of an earlier controller are read before anything is written
        for gpu, number, block in _slowly(minutes):
            _take(self._unwritten, BlockKey(LEVELS[0].width, number, gpu), block)
            _grow(self._growing, gpu, number, LEVELS[0], LEVELS[1:], block)
        for level in LEVELS[1:]:
            for key in [key for key in self._growing if key.width == level.width]:
                if (key.number + 1) * level.block <= now:
                    _take(self._unwritten, key, self._growing.pop(key))
        for level in LEVELS:
            for key in [key for key in self._unwritten if key.width == level.width]:
                if key.number < _oldest(level, now):
                    del self._unwritten[key]
        with self._using() as db, db:
            db.execute("BEGIN")
            for key, block in _slowly(self._unwritten.items()):
                _write(db, key, block)
            for level, kind in product(LEVELS, _TABLES):
                db.execute(
                    _about(kind, "DELETE FROM points WHERE width = ? AND number < ?"),
                    (level.width, _oldest(level, now)),
                )
        self._unwritten.clear()

    def pieces(self, gpus: Collection[str], level: Level, begin: float, kind: Kind = GPU) -> dict[str, list[Piece]]:
        """The blocks of these GPUs or nodes at this level since `begin` (Unix seconds). Raises StateError."""
        first, found = int(begin // level.block), defaultdict[str, list[Piece]](list)
        query = _about(kind, "SELECT number, gpu, data FROM points WHERE width = ? AND number >= ?")
        values: list[object] = [level.width, first]
        if len(gpus) == 1:
            query, values = f"{query} AND gpu = ?", [*values, *gpus]
        with self._using() as db:
            for number, gpu, data in db.execute(query, values):
                if gpu in gpus:
                    found[gpu].append((number * level.block, level.width, _unpacked(data, kind)))
        for blocks in (self._unwritten, self._growing):
            for key, block in blocks.items():
                if key.width == level.width and key.number >= first and key.gpu in gpus:
                    found[key.gpu].append((key.number * level.block, level.width, block))
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
                for key, block in _left(db, kind).items():
                    _take(self._growing, key, block)
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


def _left(db: sqlite3.Connection, kind: Kind) -> dict[BlockKey, Block]:
    """The incomplete blocks of coarser levels, rebuilt from finer ones."""
    found: dict[BlockKey, Block] = {}
    newest = _about(kind, "SELECT gpu, MAX(number) FROM points WHERE width = ? GROUP BY gpu")
    for finer, coarser in pairwise(LEVELS):
        written = dict(db.execute(newest, (coarser.width,)))
        rows = db.execute(_about(kind, "SELECT number, gpu, data FROM points WHERE width = ?"), (finer.width,))
        unfinished = [(key.number, key.gpu, block) for key, block in found.items() if key.width == finer.width]
        for number, gpu, data in (*rows, *unfinished):
            if number * finer.block >= (written.get(gpu, -1) + 1) * coarser.block:
                block = data if isinstance(data, Block) else _unpacked(data, kind)
                _grow(found, gpu, number, finer, (coarser,), block)
    return found


def _grow(
    growing: dict[BlockKey, Block], gpu: str, number: int, finer: Level, levels: Iterable[Level], block: Block
) -> None:
    """Add a block to the blocks of coarser levels that include it."""
    start = number * finer.block
    for level in levels:
        into = growing.setdefault(BlockKey(level.width, start // level.block, gpu), Block(block.kind))
        fold(block, start, finer.width, into, level.width)


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
