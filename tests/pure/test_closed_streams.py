"""A command whose input, output or complaints go nowhere ends with the exit code that it would have otherwise."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

AGENTLESS = shlex.join([sys.executable, "-m", "agentless"])


def run(words: str, streams: str) -> tuple[int, str]:
    """The exit code, and all that was printed."""
    done = subprocess.run(
        ["sh", "-c", f"{AGENTLESS} {words} {streams}"], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("words", "code"), [("no-such-verb", 2), ("--version", 0), ("dashboard", 2), ("top", 2)])
def test_the_exit_code_is_the_same_whatever_is_closed(words, code, streams):
    ended, printed = run(words, streams)
    assert (ended, "Traceback" in printed) == (code, False), printed


def test_an_output_that_cannot_be_written_is_a_failure_in_a_sentence():
    assert run("--version", ">/dev/full") == (
        1, "agentless: Cannot write the output: No space left on device\n"
    )  # fmt: skip
