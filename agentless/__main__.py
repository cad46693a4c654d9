"""The `agentless` command."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

# A fifth of a short command was Python looking for garbage in what it imports, and taking all of it down at the end.
gc.set_threshold(100_000)

from agentless.cli.app import run  # noqa: E402


def main() -> NoReturn:
    """Run the command line and end the process. Every error on purpose is a sentence on stderr."""
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has had enough
        code = 141
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
