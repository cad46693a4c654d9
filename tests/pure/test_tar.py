"""Archives as a hostile or broken node may send them, through both that unpack them: a copy, and what a task brings."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless.errors import CopyFailed, RuntimeFailed
from agentless.formats.archive import Unpacker
from agentless.formats.tar import pulled
from agentless.stores.files.arrivals import arrive
from agentless.stores.files.output_archive import Arrival, Unpacking, Unusable, ZerosAhead
from agentless.stores.files.outputs import OutputStore

END = bytes(1024)


def header(
    name: bytes = b"r/x", kind: bytes = b"0", size: int | bytes = 0, link: bytes = b"", **fields: bytes
) -> bytes:
    """A header block with whatever is to be in it, and a right checksum."""
    block = bytearray(512)
    block[0 : len(name)] = name
    block[100:108] = fields.get("mode", b"0000644\0")
    block[124:136] = size if isinstance(size, bytes) else b"%011o\0" % size
    block[136:148] = fields.get("mtime", b"00000000007\0")
    block[156:157] = kind
    block[157 : 157 + len(link)] = link
    block[257:265] = b"ustar\x0000" if kind not in b"SLK" else b"ustar  \0"
    tail = fields.get("tail", b"")
    block[386 : 386 + len(tail)] = tail
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def whole(data: bytes = b"text", **fields: object) -> bytes:
    return header(size=len(data), **fields) + padded(data)  # type: ignore[arg-type]


def pax(kind: bytes = b"x", **records: str) -> bytes:
    data = b""
    for key, value in records.items():
        record = f" {key.replace('__', '.')}={value}\n".encode()
        size = len(record) + len(str(len(record) + 3))
        data += str(size).encode() + record
    return header(b"p", kind, len(data)) + padded(data)


def long_name(name: bytes, kind: bytes = b"L") -> bytes:
    return header(b"././@LongLink", kind, len(name)) + padded(name)


def gnu_sparse(pieces: list[tuple[int, int]], size: int, data: bytes, more: bytes = b"\0") -> bytes:
    tail = b"".join(b"%011o\0%011o\0" % piece for piece in pieces[:4]).ljust(96, b"\0") + more + b"%011o\0" % size
    return header(kind=b"S", size=len(data), tail=tail)


def pax_sparse(pieces: str, size: int, data: bytes) -> bytes:
    records = {"GNU__sparse__major": "1", "GNU__sparse__minor": "0", "GNU__sparse__realsize": str(size)}
    return pax(**records) + whole(padded(pieces.encode()) + data)


LINKS = [(name, to) for name in ("r", "r/l", "r/s/l") for to in ("/", "/etc", "..", "../..", "../../..", "s/../../..")]
HARD = ["/etc/passwd", "../secret", "r/../../secret", "r", "r/none", "", "/", "r/l"]
BAD: dict[str, bytes] = {
    **{f"name {name!r}": whole(name=name) for name in (
        b"../evil", b"r/../../evil",
        b"/evil", b"//evil", b"r/..", b"..", b"r//../../evil", b"./../evil", b"r/./../../evil",
    )},
    **{f"through {name} to {to}": header(name.encode(), b"2", 0, to.encode()) + whole(name=name.encode() + b"/evil")
       for name, to in LINKS},
    **{f"hard link to {to}": header(b"r/h", b"1", 0, to.encode()) + whole(name=b"r/h") for to in HARD},
    **{f"device {kind!r}": header(b"r/dev", kind) for kind in (b"3", b"4", b"6", b"9")},
    "long name": long_name(b"r/../../" + b"x" * 200) + whole(),
    "long link": long_name(b"../" * 90 + b"etc", b"K") + header(b"r/l", b"2") + whole(name=b"r/l/evil"),
    "pax path": pax(path="../evil") + whole(),
    "pax link": pax(linkpath="/etc") + header(b"r/l", b"2") + whole(name=b"r/l/evil"),
    "pax link with a zero byte": pax(linkpath="y\0z") + header(b"r/l", b"2") + whole(),
    "pax for all": pax(b"g", path="../evil") + whole() + whole(),
    "sparse name": pax(GNU__sparse__name="../evil", GNU__sparse__map="0,4", GNU__sparse__size="4") + whole(),
    "file as folder": whole(name=b"r/x") + whole(name=b"r/x/evil"),
    "folder as file": whole(name=b"r/x/y") + whole(name=b"r/x"),
    "odd modes": whole(mode=b"0007777\0"),
}  # fmt: skip
BROKEN: dict[str, bytes] = {
    "negative size": header(size=b"\xff" * 12) + END,
    "huge size": header(size=b"\x80" + b"\xff" * 11) + END,
    "size that is none": header(size=b"nonsense\0\0\0\0") + END,
    "pax negative size": pax(size="-1") + whole() + END,
    "pax size that is none": pax(size="many") + whole() + END,
    "pax time that is none": pax(mtime="soon") + whole() + END,
    "chained long names": long_name(b"r/x") * 5000 + whole() + END,
    "chained pax headers": pax(path="r/x") * 5000 + whole() + END,
    "chained pax headers for all": pax(b"g", comment="x") * 5000 + whole() + END,
    "pax without end": header(b"p", b"x", 20) + padded(b"99 path=r/x\n") + whole() + END,
    "pax record of no length": header(b"p", b"x", 20) + padded(b"0 path=r/x\n") + whole() + END,
    "pax header of a gigabyte": header(b"p", b"x", 1 << 30) + END,
    "extended header of nobody": long_name(b"r/x") + END,
    "garbage first": os.urandom(2048),
    "garbage header": whole() + b"\1" * 512 + whole(name=b"r/y") + END,
    "wrong checksum": whole() + bytes(whole(name=b"r/y")).replace(b"r/y", b"r/z", 1) + END,
    "something after its end": whole() + END + whole(name=b"r/y") + END,
    "map beyond its file": gnu_sparse([(0, 4096)], 512, b"x" * 512) + b"x" * 512 + END,
    "map backwards": gnu_sparse([(4096, 256), (0, 256)], 8192, b"x" * 512) + b"x" * 512 + END,
    "map of more than there is": gnu_sparse([(0, 4096)], 8192, b"x" * 512) + b"x" * 512 + END,
    "map without end": gnu_sparse([(0, 512)], 8192, b"x" * 512, b"\1")
    + (b"%011o\0" % 7 * 42 + b"\1").ljust(512) * 10_000,
    "map that is none": pax_sparse("many\n0\n4\n", 4, b"text") + END,
    "map of too many": pax_sparse("999999999\n", 4, b"text") + END,
    "map that never ends": pax_sparse("5\n0\n", 4, b"text") + END,
    "map with a negative": pax_sparse("1\n-5\n4\n", 4, b"text") + END,
    "map of half a piece": pax(GNU__sparse__map="0,4,8", GNU__sparse__size="40") + whole() + END,
    "map of no numbers": pax(GNU__sparse__map="a,b", GNU__sparse__size="4") + whole() + END,
    "map without a size": pax(GNU__sparse__map="0,4") + whole() + END,
}  # fmt: skip
SHORT = {
    "no end": whole(),
    "half a header": whole() + header()[:300],
    "half a file": header(size=5000) + bytes(1000),
    "half an extended header": header(b"p", b"x", 600) + bytes(512),
}


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Path]:
    """A folder to fill; whatever happens, all around it stays as it is."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "room" / "inside").mkdir(parents=True)
    yield tmp_path / "room" / "inside"
    assert [path.name for path in tmp_path.iterdir() if "sqlite" not in path.name] in (
        ["secret", "room"], ["room", "secret"],
    )  # fmt: skip
    assert [path.name for path in (tmp_path / "room").iterdir()] == ["inside"]
    assert (tmp_path / "secret").read_text() == "secret"
    assert (tmp_path / "secret").stat().st_nlink == 1
    for path in tmp_path.glob("room/inside/**/*"):
        assert path.is_symlink() or path.is_dir() or path.is_file()
        assert not path.lstat().st_mode & 0o7000
    assert [path.name for path in tmp_path.rglob(".agentless*")] == []


def copy(data: bytes, folder: Path, strip: int = 1) -> list[str]:
    unpacker = Unpacker(str(folder), "new", strip, lambda _: None)
    unpacker.unpack(io.BytesIO(data))
    return unpacker.notes


def unpack(data: bytes, top: Path, **options: bool) -> Arrival:
    unpacking = Unpacking(top, "", **options)
    pulled(unpacking.reading(), io.BytesIO(data).read)
    return unpacking.arrival


def bring(data: bytes, folder: Path) -> str:
    """As an output: what is said of it."""
    store = OutputStore(folder.parent.parent / "o.sqlite")
    try:
        arrival = unpack(data, folder / "room")
        words = arrive(folder / "room", folder / "local", "t1", store, {}, [arrival]).words
    finally:
        store.close()
    for path in (folder / "local").rglob("*"):
        assert path.resolve().is_relative_to(folder / "local")
    return words


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_nothing_of_a_hostile_archive_is_written_outside(inside: Path, data: bytes) -> None:
    for strip in (0, 1):
        with contextlib.suppress(CopyFailed):
            copy(data + END, inside, strip)
    bring(data + END, inside)


@pytest.mark.parametrize("below", ["..", "../..", "../evil", "d/../../evil"])
def test_nothing_is_unpacked_outside_wherever_it_is_said_to_belong(inside: Path, below: str) -> None:
    """A node says what a task has changed, and so where each archive of it belongs."""
    data = header(b"r", b"5") + whole() + whole(name=b"r/d/y") + header(b"r/h", b"1", 0, b"r/x") + END
    unpacking = Unpacking(inside / "room", below)
    pulled(unpacking.reading(), io.BytesIO(data).read)
    assert (unpacking.arrival.digests, unpacking.arrival.left_out_count) == ({}, 4)


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_unpacked_is_a_sentence_and_final(inside: Path, data: bytes) -> None:
    with pytest.raises(CopyFailed, match="received an invalid or damaged tar stream: "):
        copy(data, inside)
    with pytest.raises(Unusable, match="invalid archive: "):
        bring(data, inside)
    assert not (inside / "local").exists()


@pytest.mark.parametrize("data", SHORT.values(), ids=SHORT)
def test_what_is_not_whole_may_be_whole_the_next_time(inside: Path, data: bytes) -> None:
    with pytest.raises(CopyFailed, match="received incomplete data: unexpected end; retry"):
        copy(data, inside)
    with pytest.raises(RuntimeFailed, match="incomplete data: unexpected end") as raised:
        bring(data, inside)
    assert not isinstance(raised.value, Unusable)


def test_what_has_no_place_here_is_left_out_and_the_rest_comes(inside: Path) -> None:
    deep = header(b"r", b"5")
    for depth in range(1, 3000, 37):
        deep += long_name(b"r" + b"/d" * depth) + header(b"d", b"5")
    data = deep + long_name(b"r/" + b"n" * 256) + whole() + whole(name=b"r/y") + END
    assert bring(data, inside).startswith("1 file, 4 B; skipped: d/d/d")
    assert (inside / "local" / "y").read_text() == "text"
    (note, *_) = copy(deep + whole(name=b"r/y") + END, inside)
    assert note.endswith("more than 256 folders deep")
    assert (inside / "new" / "y").read_text() == "text"


def test_a_file_that_the_disk_takes_none_of_that_size_is_left_out(inside: Path) -> None:
    """FAT has no file of more than 4 GiB; here it is a limit of the process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        said = bring(whole(b"x" * (2 << 20)) + whole(name=b"r/y") + END, inside)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said == "1 file, 4 B; skipped: x (too large for the disk)"


def test_what_is_in_a_folder_comes_without_its_name(inside: Path) -> None:
    """So Docker and podman send `folder/.`."""
    copy(
        header(b"./", b"5") + whole(name=b"./x") + whole(name=b"./d/y") + header(b"./h", b"1", 0, b"./x") + END, inside
    )
    assert sorted(path.name for path in (inside / "new").rglob("*")) == ["d", "h", "x", "y"]


def test_a_name_that_the_locale_does_not_have_is_left_out(inside: Path) -> None:
    """In a process of its own, whose file names are ASCII."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom tests.pure.test_tar import END, bring, copy, whole\n"
        "data = whole(name=b'r/\\xc3\\xa9') + whole(name=b'r/y') + END\n"
        "print(bring(data, Path(sys.argv[1])).encode())\ncopy(data, Path(sys.argv[1]))\n"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(inside)],
        env=os.environ | ascii_only, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "b'1 file, 4 B; skipped: \\xc3\\xa9 (invalid name here)'\n", done.stderr
    assert done.stderr.endswith("invalid name in this locale; retry with LC_ALL=C.UTF-8\n")


def test_a_line_break_in_a_name_begins_no_line(inside: Path) -> None:
    name = b"r/x\nagentless: all is well"
    (note,) = copy(header(name, b"3") + END, inside)
    words = bring(header(name, b"3") + whole() + END, inside)
    for said in (note, words):
        assert r"x\nagentless: all is well" in said
        assert "\n" not in said


def test_bits_to_write_that_the_umask_forbids_do_not_come(inside: Path) -> None:
    mask = os.umask(0o022)
    try:
        copy(header(b"r", b"5", mode=b"0000777\0") + whole(mode=b"0000666\0") + END, inside)
        os.umask(0o002)
        copy(header(b"r/d", b"5", mode=b"0000777\0") + whole(name=b"r/y", mode=b"0000666\0") + END, inside)
    finally:
        os.umask(mask)
    found = {name: oct((inside / "new" / name).stat().st_mode & 0o777) for name in (".", "x", "d", "y")}
    assert found == {".": "0o755", "x": "0o644", "d": "0o775", "y": "0o664"}


# ------------------------------------------------------------------ sparse files


SPARSE = [
    *itertools.product(["--format=gnu", *(f"--sparse-version={each}" for each in ("0.0", "0.1", "1.0"))], [0, 1, 5, 70])
]
QUICK = {SPARSE[at] for at in (0, 3, 5, 10, 15)}
"""Each format and each number of pieces once, and many of GNU's, which go on in further headers."""


@pytest.mark.parametrize(
    ("version", "pieces"), [pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow) for each in SPARSE]
)
def test_a_sparse_file_comes_as_it_was_and_stays_sparse(tmp_path: Path, version: str, pieces: int) -> None:
    source = tmp_path / "r"
    source.mkdir()
    with (source / "x").open("wb") as file:
        for number in range(pieces):
            file.seek(number * 300_000 + 70_000)
            file.write(os.urandom(5000))
        file.truncate(50_000_000)
    more = [] if version == "--format=gnu" else ["--format=posix"]
    made = subprocess.run(
        ["tar", "-S", *more, version, "-C", str(tmp_path), "-cf", "-", "r"], capture_output=True, check=True
    ).stdout
    assert len(made) < 2_000_000
    copy(made, tmp_path)
    arrival = unpack(made, tmp_path / "top", packed=True)
    for path in (tmp_path / "new" / "x", tmp_path / "top" / "x"):
        assert path.read_bytes() == (source / "x").read_bytes()
        assert path.stat().st_blocks * 512 < pieces * 150_000 + 10_000
    assert list(arrival.digests) == ["x"]


def test_zeros_that_come_one_by_one_are_holes(tmp_path: Path) -> None:
    """So they come from Docker, which is soon asked for them compressed."""
    data = header(size=48 << 20) + bytes(40 << 20) + b"x" * (8 << 20) + END
    with pytest.raises(ZerosAhead):
        unpack(data, tmp_path / "top")
    unpack(data, tmp_path / "top", packed=True)
    copy(data, tmp_path)
    for path in (tmp_path / "top" / "x", tmp_path / "new" / "x"):
        assert path.read_bytes() == data[512:-1024]
        assert path.stat().st_blocks * 512 < 9 << 20


def test_a_file_that_there_is_no_room_for_is_refused_before_it_comes(tmp_path: Path) -> None:
    data = pax(size=str(1 << 50)) + header()
    with pytest.raises(Unusable, match=r"not enough disk space: a file has 1024 TiB, .* are free here"):
        unpack(data, tmp_path / "top")
    assert not (tmp_path / "top" / "x").exists()


# ------------------------------------------------------------------ a great many


def test_a_great_many_files_take_neither_memory_nor_an_open_file_each(tmp_path: Path) -> None:
    """Each is a name and a digest; `tarfile` keeps 1 KB of each."""
    count = 5_000
    stream = b"".join(header(b"r/d%d/%d" % (number % 7, number), size=0) for number in range(count)) + END
    tracemalloc.start()
    arrival = unpack(stream, tmp_path / "top")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(arrival.digests) == count
    assert peak - len(stream) < 400 * count + (3 << 20)


def test_what_is_deep_is_not_reached_from_the_top_each_time(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda *words, **named: opened.append(words[0]) or real(*words, **named))
    depth, files = 50, 1000
    path = b"r" + b"/d" * depth
    data = b"".join(long_name(path + b"/%d" % number) + whole() for number in range(files))
    copy(data + END, inside)
    unpack(data + END, inside / "top")
    assert len(opened) < 2 * (files + depth * depth)
