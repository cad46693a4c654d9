"""`python -m tests.bench [NAME …]`: measure, and print the table of docs/performance.md. It writes no file."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version

from tests.lab.engine import SBIN

NAMES = ("submit", "overhead", "sweep", "ps", "history", "scale")


def main() -> int:
    """Run the benches that are named, or all; 1 when a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure agentless against its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; default: all")
    parser.add_argument("--runs", type=int, default=21, help="pairs per figure, a third of them for the slow ones")
    given = parser.parse_args()
    if unknown := set(given.names).difference(NAMES):
        parser.error(f"no bench {unknown.pop()!r}; there is {', '.join(NAMES)}")
    rows = []
    for name in given.names or NAMES:
        print(f"measuring: {name} …", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"tests.bench.{name}").bench(given.runs)
    print("| Ours : theirs | Bound | Measured (middle half of the runs; medians of both; pairs) | |")
    print("|---|---|---|---|")
    for row in rows:
        print(row)
    print(f"\n{_machine()}")
    return int(any(row.passed is False for row in rows))


def _machine() -> str:
    """Where and with what, for whoever compares."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("asyncssh", "fastapi", "uvicorn", "typer"))
    programs = [
        _first_line("ssh", "-V"),
        _first_line("docker", "--version"),
        _first_line("parallel-ssh", "--version"),
        _first_line("ansible", "--version"),
    ]
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {libraries}; {'; '.join(filter(None, programs))}; "
        f"load at the end {os.getloadavg()[0]:.1f}."
    )


def _first_line(*argv: str) -> str | None:
    try:
        env = {"PATH": SBIN, "LANG": "C.UTF-8"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return (done.stdout or done.stderr).partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
