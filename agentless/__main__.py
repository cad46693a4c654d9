"""The `agentless` command."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import Any, NoReturn

# A fifth of a short command was Python looking for garbage in what it imports, and taking all of it down at the end.
gc.set_threshold(100_000)

from agentless.cli.app import complain, run  # noqa: E402


def main() -> NoReturn:
    """Run the command line and end the process. Every error on purpose is a sentence on stderr."""
    _open_streams()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has had enough
        code = 141
    except OSError as error:
        complain(f"Cannot write the output: {error.strerror}")
        code = code or 1
    sys.stderr.flush()
    os._exit(code)


class _Complaints(io.FileIO):
    """What cannot be complained of, for want of room or of a reader, changes no exit code."""

    def write(self, data: Any) -> int:
        """Write it, or forget it."""
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


def _open_streams() -> None:
    """Whatever the caller has closed takes what is written and forgets it; no character is too strange for the rest."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r"))  # noqa: SIM115 - for all of our life
    if sys.__stderr__ is not None:
        raw = io.BufferedWriter(_Complaints(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding=sys.__stderr__.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
