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

from tests.bench.peers import PEERS
from tests.lab.engine import SBIN

NAMES = (
    "submit",
    "overhead",
    "sweep",
    "ps",
    "history",
    "scale",
    "reconcile",
    "restart",
    "writes",
    "plan",
    "starts",
    "bursts",
    "workflows",
    "gangs",
    "figures",
    "dashboard",
    "logs",
    "envs",
    "ssh",
    "clusters",
)


def main() -> int:
    """Run the benches that are named, or all; 1 when a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure agentless against its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; default: all")
    parser.add_argument("--runs", type=int, default=21, help="pairs per figure, a third of them for the slow ones")
    given = parser.parse_args()
    if unknown := set(given.names).difference(NAMES):
        parser.error(f"no bench {unknown.pop()!r}; there is {', '.join(NAMES)}")
    loads = os.getloadavg()
    print("| Ours : theirs | Bound | Measured: median of the pairs (middle half; medians of both sides) | |")
    print("|---|---|---|---|")
    missed = False
    for name in given.names or NAMES:
        print(f"measuring: {name} …", file=sys.stderr, flush=True)
        for row in importlib.import_module(f"tests.bench.{name}").bench(given.runs):
            print(row, flush=True)
            missed = missed or row.passed is False
    print(f"\n{_machine()} Load of the machine before: {loads[0]:.1f}.")
    return int(missed)


def _machine() -> str:
    """Where and with what, for whoever compares."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("asyncssh", "fastapi", "uvicorn", "typer"))
    programs = {"ssh": "-V", "docker": "--version", **{peer.program: "--version" for peer in PEERS}}
    said = (_version(program, option) for program, option in programs.items())
    kernel = platform.release().partition("-")[0]
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {len(os.sched_getaffinity(0))} cores, Linux {kernel}, "
        f"Python {platform.python_version()}, {libraries}; {'; '.join(filter(None, said))}."
    )


def _version(program: str, option: str) -> str:
    """What a program says of its version, nothing when it is not there."""
    try:
        env = {"PATH": SBIN, "LANG": "C.UTF-8"}
        done = subprocess.run([program, option], env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return f"{program}: {(done.stdout or done.stderr).partition(chr(10))[0]}"


if __name__ == "__main__":
    sys.exit(main())
