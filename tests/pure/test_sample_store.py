"""The numbers of GPUs on disk: what a crash leaves, how much there is of it, and what a bad disk does."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from agentless.errors import StateError
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.host_load import HostLoad
from agentless.rules.usage.series import LEVELS, NODE, POINTS, Block, Grid, curves
from agentless.stores.records.samples import SampleStore

MINUTE = LEVELS[0].block
BEGIN = 36_000 * 50_000  # where a block of every level begins
GPU = "GPU-1"


def minute(load: int = 50, seconds: range = range(0, POINTS, 2)) -> Block:
    block = Block()
    for second in seconds:
        block.read(second, GpuReading(0, GPU, utilization_pct=load, power_w=100.0))
    return block


def add(store: SampleStore, number: int, block: Block | None = None, gpu: str = GPU) -> None:
    """Minute `number` after the beginning is over."""
    store.add([(gpu, BEGIN // MINUTE + number, block or minute())], BEGIN + (number + 1) * MINUTE)


def means(store: SampleStore, level, minutes: int, gpu: str = GPU) -> list[float | None]:
    """What is known of each of these minutes from the beginning on, at a level."""
    span = minutes * MINUTE
    grid = Grid(BEGIN + span - 1, span, minutes)
    return list(curves(store.pieces({gpu}, level, grid.begin).get(gpu, []), grid, 1)["utilization_pct"])


def rows(path: Path) -> dict[int, int]:
    with sqlite3.connect(path) as db:
        return dict(db.execute("SELECT width, COUNT(*) FROM points GROUP BY width").fetchall())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "samples.sqlite"


@pytest.mark.parametrize("level", LEVELS[:3], ids=str)
@pytest.mark.parametrize("crash", [True, False], ids=["crash", "close"])
def test_every_level_is_whole_after_a_restart(path, level, crash):
    """Only whole blocks are written; until a coarse one is, the finer ones answer for it."""
    store = SampleStore(path)
    for number in range(8):
        add(store, number, minute(10 * number))
    if crash:
        store._db.close()
    else:
        store.close()
    again = SampleStore(path)
    for number in range(8, 10):
        add(again, number, minute(10 * number))
    assert means(again, level, 10) == [10.0 * number for number in range(10)]


def test_the_coarsest_level_is_whole_after_many_restarts(path):
    for number in range(0, 1200, 7):
        store = SampleStore(path)
        for each in range(number, min(number + 7, 1200)):
            add(store, each, minute(each // 600))
        store.close()
    found = SampleStore(path).pieces({GPU}, LEVELS[3], BEGIN)[GPU]
    assert [block.counts[:POINTS].tolist() for _, _, block in found] == [[300] * POINTS] * 2
    assert [block.totals[:POINTS].tolist() for _, _, block in found] == [[0] * POINTS, [300] * POINTS]


def busy(cores: float, seconds: range = range(0, POINTS, 10)) -> Block:
    block = Block(NODE)
    for second in seconds:
        block.read(second, HostLoad(cores_busy=cores, memory_used_mib=1 << 26, network_in_bytes_per_second=12.5e9))
    return block


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "close"])
def test_nodes_are_kept_beside_gpus_at_every_level(path, crash):
    """Their largest readings fit: 64 TiB of memory, 100 Gbit/s."""
    store = SampleStore(path)
    for number in range(8):
        store.add([(GPU, BEGIN // MINUTE + number, minute(10 * number)),
                   ("node n1", BEGIN // MINUTE + number, busy(number / 2))], BEGIN + (number + 1) * MINUTE)  # fmt: skip
    if crash:
        store._db.close()
    else:
        store.close()
    again = SampleStore(path)
    for level in LEVELS[:3]:
        grid = Grid(BEGIN + 8 * MINUTE - 1, 8 * MINUTE, 8)
        found = curves(again.pieces({"node n1"}, level, grid.begin, NODE)["node n1"], grid, 1, NODE)
        assert list(found["cores_busy"]) == [number / 2 for number in range(8)]
        assert found["memory_used_mib_max"] == (1 << 26,) * 8
        assert found["network_in_bytes_per_second_max"] == pytest.approx([12.5e9] * 8, rel=1e-6)
        assert means(again, level, 8) == [10.0 * number for number in range(8)]


def test_an_earlier_version_finds_its_own_rows_only(path):
    """It would take a row of a node for damage, and put the whole file aside."""
    store = SampleStore(path)
    store.add([("node n1", BEGIN // MINUTE, busy(1.0))], BEGIN + MINUTE)
    store.close()
    assert rows(path) == {}


def test_two_controllers_of_one_minute_write_it_together(path):
    first = SampleStore(path)
    add(first, 0, minute(seconds=range(20)))
    first.close()
    second = SampleStore(path)
    add(second, 0, minute(seconds=range(40, 60)))
    for level in LEVELS[:2]:
        ((_, _, block),) = second.pieces({GPU}, level, BEGIN)[GPU]
        assert sum(block.counts[:POINTS]) == 40


def test_of_each_level_there_is_only_so_much(path):
    """40 days of one GPU: a minute in each 10, so that each coarser level has as many blocks as it can have."""
    store = SampleStore(path)
    for number in range(0, 40 * 24 * 60, 10):
        add(store, number, minute(number % 101))
    assert path.with_name("samples.sqlite-wal").stat().st_size < 5_000_000
    store.close()
    most = {level.width: level.kept // level.block + 2 for level in LEVELS}
    found = rows(path)
    assert {width: count for width, count in found.items() if count > most[width]} == {}
    assert found[600] >= most[600] - 2
    assert path.stat().st_size < 300_000


def test_a_block_takes_as_little_as_its_numbers_have(path):
    store = SampleStore(path)
    add(store, 0)
    add(store, 1, Block())
    (busy,), (empty,) = store._db.execute("SELECT LENGTH(data) FROM points WHERE width = 1 ORDER BY number").fetchall()
    assert (busy < 200, empty < 50) == (True, True)


def test_a_gpu_that_has_left_ages_out(path):
    store = SampleStore(path)
    add(store, 0, gpu="GPU-gone")
    for days in (1, 29):
        add(store, days * 24 * 60)
        assert store.pieces({"GPU-gone"}, LEVELS[3], BEGIN)
    add(store, 32 * 24 * 60)
    assert not any(store.pieces({"GPU-gone"}, level, 0.0) for level in LEVELS)


def test_what_could_not_be_written_is_known_and_written_later(path, tmp_path):
    folder = tmp_path / "later"
    store = SampleStore(folder / "samples.sqlite")
    for number in range(3):
        with pytest.raises(StateError, match="cannot store GPU samples"):
            add(store, number, minute(number))
    folder.mkdir()
    add(store, 3, minute(3))
    store.close()
    again = SampleStore(folder / "samples.sqlite")
    assert [means(again, level, 4) for level in LEVELS[:3]] == [[0.0, 1.0, 2.0, 3.0]] * 3


def test_what_waits_for_a_disk_that_takes_nothing_is_bounded(path):
    store = SampleStore(path)
    add(store, 0)
    store._db.execute("PRAGMA query_only = on")
    for number in range(1, 3000, 10):
        with pytest.raises(StateError, match="cannot store GPU samples"):
            add(store, number, minute(number % 100))
    counts = [sum(key.width == level.width for key in store._unwritten) for level in LEVELS]
    assert [count <= level.kept // level.block + 2 for count, level in zip(counts, LEVELS, strict=True)] == [True] * 4
    store._db.execute("PRAGMA query_only = off")
    add(store, 3001)
    assert store._unwritten == {}


@pytest.mark.parametrize("content", [b"this is no database " * 100, b"SQLite format 3\0" + bytes(4000)])
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(path, content):
    path.write_bytes(content)
    store = SampleStore(path)
    add(store, 0, minute(7))
    assert "was damaged; renamed it to" in store.warning
    add(store, 1, minute(8))
    assert means(store, LEVELS[0], 2) == [7.0, 8.0]
    assert path.with_name("samples.sqlite.damaged").read_bytes() == content


def test_a_torn_block_is_set_aside_with_its_file(path):
    store = SampleStore(path)
    add(store, 0)
    store._db.execute("UPDATE points SET data = x'00'")
    with pytest.raises(StateError):
        store.pieces({GPU}, LEVELS[0], BEGIN)
    assert store.pieces({GPU}, LEVELS[0], BEGIN) == {}


def test_a_file_that_is_gone_harms_nothing(path):
    store = SampleStore(path)
    add(store, 0)
    store.close()
    os.unlink(path)
    assert SampleStore(path).pieces({GPU}, LEVELS[1], BEGIN) == {}


def test_only_what_is_asked_for_is_read(path):
    store = SampleStore(path)
    for number in range(12):
        add(store, number)
        add(store, number, gpu="GPU-2")
    late = BEGIN + 11 * MINUTE
    assert {gpu: len(found) for gpu, found in store.pieces({GPU}, LEVELS[0], late).items()} == {GPU: 1}
    assert {gpu: len(found) for gpu, found in store.pieces({GPU, "GPU-2"}, LEVELS[1], late).items()} == {
        GPU: 2,
        "GPU-2": 2,
    }
