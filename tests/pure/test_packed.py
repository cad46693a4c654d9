"""Where a compressed piece ends in a stream, whatever chunks it comes in, and whatever comes after it."""

from __future__ import annotations

import random
import subprocess
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.rules.images import compressed as packed

PACKERS = ("zstd", "gzip")
CONTENT: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "zeros": lambda: bytes(3_000_000),
    "noise": lambda: random.Random(1).randbytes(700_000),
    "words": lambda: b"some words " * 50_000,
}
packers = pytest.mark.parametrize("packer", PACKERS)


def through(argv: list[str], data: bytes) -> bytes:
    return subprocess.run(argv, input=data, capture_output=True, check=True).stdout


@packers
@pytest.mark.parametrize("content", CONTENT)
def test_the_end_is_found(packer: str, content: str) -> None:
    data = CONTENT[content]()
    compressed = through(packed.PACKERS[packer][0], data)
    for chunk in (1, 7, 4096, 1 << 30) if len(compressed) < 10_000 else (997, 1 << 30):
        piece, at = packed.piece(packer, 0), 0
        stream = compressed + compressed[:50]
        while not piece.over:
            at += piece.feed(stream[at : at + chunk])
        assert at == len(compressed)
        assert piece.unpacked >= len(data)


@packers
@given(st.lists(st.binary(max_size=400_000), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_what_we_pack_is_unpacked_by_the_program(packer: str, pieces: list[bytes]) -> None:
    stream = b"".join(packed.pack(packer, piece) for piece in pieces)
    assert through(packed.PACKERS[packer][1], stream) == b"".join(pieces)


@packers
def test_what_we_pack_goes_between_what_the_program_packs(packer: str) -> None:
    pack, unpack = packed.PACKERS[packer]
    assert through(unpack, packed.pack(packer, b"<") + through(pack, b"x" * 99) + packed.pack(packer, b">")) == (
        b"<" + b"x" * 99 + b">"
    )


@packers
@pytest.mark.parametrize("size", [0, 1, 1 << 17, (1 << 17) + 1, 1 << 18, (1 << 18) + 1])
def test_we_pack_any_number_of_bytes(packer: str, size: int) -> None:
    """A block of zstd has 128 KiB at most."""
    data = random.Random(1).randbytes(size)
    assert through(packed.PACKERS[packer][1], packed.pack(packer, data)) == data


def test_what_is_not_to_be_packed_is_left_as_it_is() -> None:
    assert packed.pack(None, b"abc") == b"abc"


def test_we_pack_with_gzip_in_its_quickest_way_and_tell_no_time() -> None:
    """So the same bytes give the same piece: RFC 1952 has the time in the bytes 4 to 7 and the way in the next one."""
    assert packed.pack("gzip", b"abc")[4:9] == b"\0\0\0\0\4"


@packers
@pytest.mark.parametrize("data", [b"docker: no such image", zlib.compress(b"abc")])
def test_what_is_not_packed_is_refused(packer: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        packed.piece(packer, 0).feed(data)


def test_what_is_not_packed_at_all_ends_after_its_bytes() -> None:
    piece = packed.piece(None, 5)
    assert (piece.feed(b"abc"), piece.over, piece.unpacked) == (3, False, 3)
    assert (piece.feed(b"defg"), piece.over, piece.unpacked) == (2, True, 5)


@pytest.mark.parametrize(("size", "over"), [(0, True), (1, False)])
def test_nothing_is_over_before_it_begins(size: int, over: bool) -> None:
    assert packed.piece(None, size).over is over


def test_gzip_tells_how_much_is_in_it() -> None:
    piece = packed.piece("gzip", 0)
    assert (piece.over, piece.unpacked) == (False, 0)
    piece.feed(packed.pack("gzip", b"abc"))
    assert (piece.over, piece.unpacked) == (True, 3)


RAW, RUN, COMPRESSED, RESERVED = range(4)
"""The kinds of the blocks of zstd: bytes as they are, one byte many times, ..."""


def block(kind: int, size: int, content: bytes, *, last: bool = False) -> bytes:
    """A block of RFC 8878."""
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + content


LAST = block(RAW, 3, b"abc", last=True)
PLAIN = b"\x28\xb5\x2f\xfd\x20\xff"
"""A frame up to its blocks."""


@pytest.mark.parametrize(
    ("flags", "fields", "checksum"),
    [
        (0x20, 1, 0),
        (0x24, 1, 4),
        (0x21, 2, 0),
        (0x22, 3, 0),
        (0x23, 5, 0),
        (0x60, 2, 0),
        (0xA0, 4, 0),
        (0xE0, 8, 0),
        (0x00, 1, 0),
        (0x40, 3, 0),
        (0x80, 5, 0),
        (0xC0, 9, 0),
        (0xC7, 13, 4),
    ],
)
@pytest.mark.parametrize("chunk", [1, 100])
def test_a_frame_of_zstd_is_as_long_as_its_flags_say(flags: int, fields: int, checksum: int, chunk: int) -> None:
    """The window, the dictionary, and the length of the content, which may have eight bytes."""
    frame = PLAIN[:4] + bytes([flags]) + b"\xff" * fields + LAST + b"\xff" * checksum
    piece, at = packed.piece("zstd", 0), 0
    while not piece.over:
        at += piece.feed((frame + b"more")[at : at + chunk])
    assert (at, piece.unpacked) == (len(frame), 3)


def test_zstd_tells_how_much_is_in_it_at_most() -> None:
    """What is in a compressed block is known only to who unpacks it."""
    piece = packed.piece("zstd", 0)
    for content, size in [
        (PLAIN, 0),
        (block(RAW, 5, b"abcde"), 5),
        (block(RUN, 1000, b"x"), 1000),
        (block(COMPRESSED, 2, b"??"), 128 * 1024),
    ]:
        before = piece.unpacked
        assert (piece.feed(content), piece.over) == (len(content), False)
        assert piece.unpacked - before == size
    assert (piece.feed(block(RUN, 9, b"x", last=True)), piece.over) == (4, True)


def test_a_block_that_zstd_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="a broken zstd frame"):
        packed.piece("zstd", 0).feed(PLAIN + block(RESERVED, 1, b"x"))


@pytest.mark.parametrize("dictionary", [0, 200, 40_000, 1 << 20])
@pytest.mark.parametrize("size", [0, 100, 300, 70_000])
@pytest.mark.parametrize("has_size", [True, False])
def test_the_end_is_found_behind_every_header_of_zstd(dictionary: int, size: int, has_size: bool) -> None:
    """The id of a dictionary and the length of the content have fields of several sizes, which may be missing."""
    samples = [random.Random(number).randbytes(200) + b"some words" for number in range(50)]
    trained = zstandard.train_dictionary(4096, samples, dict_id=dictionary) if dictionary else None
    packer = zstandard.ZstdCompressor(dict_data=trained, write_content_size=has_size, write_checksum=has_size)
    packing = packer.compressobj(size=size if has_size else -1)
    frame = packing.compress(b"x" * size) + packing.flush()
    assert zstandard.get_frame_parameters(frame).dict_id == dictionary
    piece = packed.piece("zstd", 0)
    assert (piece.feed(frame + b"more"), piece.over) == (len(frame), True)
