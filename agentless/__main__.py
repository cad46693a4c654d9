"""The `agentless` command."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; returns the exit code. Every error on purpose is a sentence on stderr."""
    from agentless.cli.app import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
