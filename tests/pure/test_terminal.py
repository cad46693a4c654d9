"""What goes through a terminal: frames and sizes, and words that every login shell passes on as they are."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.formats.frames import MOST, FrameDecoder, frame
from agentless.model.command import escaped
from agentless.model.terminal import Size
from agentless.remote.transports._sessions import login_words

SHELLS = [["dash"], ["bash"], ["busybox", "sh"]]
NASTY = 'it\'s "$HOME" `id` $(id) \\0101 \\\\ %s !! é\n\ttwo; # lines | & < > * ?'


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40))), st.lists(st.integers(1, 9)))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent, cuts):
    data, found, frames = b"".join(frame(*each) for each in sent), [], FrameDecoder()
    while data:
        size = cuts.pop() if cuts else len(data)
        found += frames.feed(data[:size])
        data = data[size:]
    assert found == sent


@pytest.mark.parametrize("size", [MOST + 1, 1 << 24, (1 << 32) - 1])
def test_a_frame_that_is_too_long_is_refused_before_it_has_arrived(size):
    with pytest.raises(UsageError, match="1,048,576 bytes"):
        list(FrameDecoder().feed(b"\1" + size.to_bytes(4, "big")))


def test_the_longest_frame_that_is_allowed_comes_through():
    assert list(FrameDecoder().feed(frame(1, bytes(MOST)))) == [(1, bytes(MOST))]


@given(st.integers(1, 9999), st.integers(1, 9999))
def test_a_size_is_read_as_it_is_written(columns, rows):
    assert Size.parse(str(Size(columns, rows))) == Size(columns, rows)


@pytest.mark.parametrize("text", ["", "80", "80x", "0x24", "80x24x1", "-1x24", "99999x1", "80×24", "80x24\n"])
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="like 80x24"):
        Size.parse(text)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@given(data=st.binary(max_size=200).map(lambda data: data.replace(b"\0", b"")))
@settings(max_examples=20)
def test_printf_makes_every_byte_again(shell, data):
    done = subprocess.run([*shell, "-c", 'printf %b "$0"', escaped(data)], capture_output=True, check=True)
    assert done.stdout == data


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_login_shell_passes_a_script_on_as_it_is(shell):
    script = f"cat <<'END'\n{NASTY}\nEND\n"
    done = subprocess.run([*shell, "-c", login_words(script)], capture_output=True, check=True)
    assert done.stdout.decode() == f"{NASTY}\n"


def test_nothing_in_the_words_for_a_login_shell_is_for_it_to_understand():
    _, code, _, script, _ = login_words(NASTY).split("'")
    assert code == 'eval "$(printf %b "$0")"'
    assert set(script) <= set("\\0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
