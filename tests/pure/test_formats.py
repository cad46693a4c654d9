"""Formats of bytes that both of our sides have in one place: frames, chunks, headers of archives, heads of contents."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.client.http import LAST_CHUNK, chunk, chunked_lines, read_chunk
from agentless.errors import UsageError
from agentless.formats import tar_writing
from agentless.formats.contents import HEAD, content_head, parse_content_head
from agentless.formats.frames import DATA, END, NOTE, frame, read_frames


def test_frames_are_read_up_to_the_end() -> None:
    file = io.BytesIO(frame(DATA, b"out") + frame(NOTE) + frame(END, b"{}") + frame(DATA, b"never"))
    assert list(read_frames(file)) == [(DATA, b"out"), (NOTE, b""), (END, b"{}")]


def test_frames_that_break_off_have_no_end() -> None:
    assert list(read_frames(io.BytesIO(frame(DATA, b"out") + frame(END)[:3]))) == [(DATA, b"out")]


@given(st.lists(st.binary(max_size=50)))
def test_what_goes_in_chunks_comes_in_lines(pieces: list[bytes]) -> None:
    body = io.BytesIO(b"".join(map(chunk, pieces)) + LAST_CHUNK)
    *lines, last = b"".join(pieces).split(b"\n")
    assert list(chunked_lines(body)) == lines + [last] * bool(last)


@pytest.mark.parametrize("body", [b"", b"5\r\nab", b"x\r\n"])
def test_a_body_that_breaks_off_is_none(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"incomplete answer|invalid literal"):
        read_chunk(io.BytesIO(body))


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=200), st.integers(0, 9 << 30)
)
def test_a_header_is_as_tarfile_writes_it(name: str, size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    for form in (tar_writing.PAX, tar_writing.GNU):
        assert info.tobuf(form, "utf-8", "surrogateescape") == tar_writing.header(name, size=size, form=form)
    assert tar_writing.padded(size) == size + len(tar_writing.padding(size))


def test_an_archive_is_read_by_tarfile() -> None:
    parts = tar_writing.header("d", "folder", mode=0o755), tar_writing.file("d/x", b"x" * 600), tar_writing.END
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as archive:
        folder, file = archive.getmembers()
        assert (folder.name, folder.isdir(), folder.mode, file.name, file.size) == ("d", True, 0o755, "d/x", 600)


def test_a_content_has_a_head() -> None:
    head = content_head("ab" * 32, 1 << 40)
    assert (len(head), parse_content_head(head)) == (HEAD, ("ab" * 32, 1 << 40))


@pytest.mark.parametrize("head", [b"x" * HEAD, b"a" * 64 + b"-" + b"0" * 14 + b"1", b"\xff" * HEAD])
def test_what_is_no_head_is_refused(head: bytes) -> None:
    with pytest.raises(UsageError, match="begins with its SHA-256"):
        parse_content_head(head)
