"""Where a compressed piece ends in a stream, whatever chunks it comes in, and whatever comes after it."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.rules import packed

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
def test_what_is_not_packed_is_refused(packer: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        packed.piece(packer, 0).feed(b"docker: no such image")


def test_what_is_not_packed_at_all_ends_after_its_bytes() -> None:
    piece = packed.piece(None, 5)
    assert (piece.feed(b"abc"), piece.over) == (3, False)
    assert (piece.feed(b"defg"), piece.over) == (2, True)


@pytest.mark.parametrize("dictionary", [0, 200, 40_000, 1 << 20])
@pytest.mark.parametrize("size", [0, 100, 300, 70_000])
@pytest.mark.parametrize("told", [True, False])
def test_the_end_is_found_behind_every_header_of_zstd(dictionary: int, size: int, told: bool) -> None:
    """The id of a dictionary and the length of the content have fields of several sizes, which may be missing."""
    samples = [random.Random(number).randbytes(200) + b"some words" for number in range(50)]
    trained = zstandard.train_dictionary(4096, samples, dict_id=dictionary) if dictionary else None
    packer = zstandard.ZstdCompressor(dict_data=trained, write_content_size=told, write_checksum=told)
    packing = packer.compressobj(size=size if told else -1)
    frame = packing.compress(b"x" * size) + packing.flush()
    assert zstandard.get_frame_parameters(frame).dict_id == dictionary
    piece = packed.piece("zstd", 0)
    assert (piece.feed(frame + b"more"), piece.over) == (len(frame), True)
