"""What the engine's command warns of at every call is told apart from what a task has printed."""

from __future__ import annotations

import pytest

from agentless.engines.client_warnings import MOST, WithoutWarnings, warnings_before

SUDO = "sudo: unable to resolve host gpu1: Name or service not known"
CONFIG = "WARNING: Error loading config file: /root/.docker/config.json"


def read(said: bytes, size: int, warnings: tuple[str, ...]) -> bytes:
    """What is left of a standard error that comes in pieces of this size."""
    reading = WithoutWarnings(lambda fd, data: ((fd, data),), warnings)
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    return b"".join(data for piece in pieces for fd, data in reading(2, piece) if fd == 2)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("said", "left"),
    [
        (f"{SUDO}\n{CONFIG}\nerr\n", "err\n"),
        (f"{SUDO}\r\n{CONFIG}\r\nerr\r\n", "err\r\n"),
        (f"{CONFIG}\nerr", "err"),
        ("err\n", "err\n"),
        (f"err\n{SUDO}\n", f"err\n{SUDO}\n"),
        (f"{SUDO}\n{SUDO}\n", f"{SUDO}\n"),
        (f"{SUDO} and more\n", f"{SUDO} and more\n"),
        ("sudo: no\n", "sudo: no\n"),
        (f"{SUDO}\n", ""),
        ("\n\n", "\n\n"),
    ],
)
def test_only_what_it_always_says_and_says_first_is_left_out(said: str, left: str, size: int) -> None:
    assert read(said.encode(), size, (SUDO, CONFIG)) == left.encode()
    assert read(said.encode(), size, ()) == said.encode()


def test_standard_output_is_as_it_is() -> None:
    reading = WithoutWarnings(lambda fd, data: ((fd, data),), (SUDO,))
    assert list(reading(1, SUDO.encode() + b"\n")) == [(1, SUDO.encode() + b"\n")]


def test_what_stands_before_an_answer_is_a_warning() -> None:
    assert warnings_before("{}", [SUDO, "", CONFIG, "{}", "x"]) == (SUDO, CONFIG)
    assert warnings_before("{}", ["x" * 10_000, SUDO, "{}"]) == (SUDO,)
    assert len(warnings_before("{}", map(str, range(100)))) == MOST
